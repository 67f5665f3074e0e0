// How does a running container get one more network?
import { hold } from '../../attachments/store.ts';
import type { Conflist } from '../../chain/config/conflist.ts';
import { settleEarlierAdd } from '../../chain/records/transaction.ts';
import { withDetails } from '../../chain/run/plugin-outcome.ts';
import { addNetwork, deleteNetwork } from '../../chain/run/run.ts';
import { type Attachment, type ChainRuntime, holdCall } from '../../chain/run/runtime.ts';
import { inTurn } from '../../chain/run/turns.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import type { CniArgs } from '../../cni/env.ts';
import { CniError, ErrorCode, toCniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import type { ResultOf } from '../../cni/result.ts';
import { type Inside, readInside } from '../../node/devices.ts';
import type { KnownContainer } from './container.ts';
import { type ContainerPlace, checkPlace } from './place.ts';

/**
 * What the caller chooses; the name is the next free `net<N>` unless given. A caller that lost the reply asks again with the same
 * request key, and means the attachment that was made then.
 */
interface Wanted {
  readonly network: string;
  readonly ifname?: string | undefined;
  readonly request?: string | undefined;
  readonly args: CniArgs;
  readonly capabilityArgs: JsonObject;
}

/** Where an attachment is made. */
interface AttachTo {
  readonly container: KnownContainer;
  readonly place: ContainerPlace;
  readonly list: Conflist;
  /** The network may add a default route beside that of another interface. */
  readonly mayAddDefault: boolean;
}

/**
 * Deletes what an earlier try of the same request, or of an interface of the same name, began and did not end because its process
 * died: it would be in the way, and if the container is gone, there is no ADD that would do it. Call it within withContainer(), and look the container up again afterwards.
 * @throws CniError of what cannot be deleted
 */
export async function undoEarlierTry(
  { attachments }: KnownContainer,
  { network, ifname, request }: Pick<Wanted, 'network' | 'ifname' | 'request'>,
  runtime: ChainRuntime,
): Promise<void> {
  for (const { record, unsettled } of attachments) {
    if (record === undefined || unsettled === undefined) continue;
    const isTried = request !== undefined && record.request === request;
    const isSame = isTried || (ifname !== undefined && record.ifname === ifname);
    if (isSame && record.network === network) await settleTry(record, runtime);
  }
}

async function settleTry(id: AttachmentId, runtime: ChainRuntime): Promise<void> {
  const held = await hold(id, holdCall(runtime, 'add'));
  try {
    await settleEarlierAdd(id, held, runtime);
  } finally {
    held.release();
  }
}

/**
 * The attachment that is to be made. Call it, and attach(), within withContainer().
 * @throws CniError 4 if the container has an interface of that name
 */
export function planAttach(
  { containerId, attachments }: KnownContainer,
  { netns, inside }: ContainerPlace,
  { network, ifname, request, args, capabilityArgs }: Wanted,
): Attachment {
  const again = attachments.find(({ record }) => {
    return request !== undefined && record?.request === request && record.network === network;
  });
  if (again) return { containerId, netns, ifname: again.known.ifname, args, capabilityArgs };
  const taken = new Set([...inside.keys(), ...attachments.map(({ known }) => known.ifname)]);
  if (ifname !== undefined) checkFree(containerId, ifname, taken);
  return { containerId, netns, ifname: ifname ?? nextIfname(taken), args, capabilityArgs };
}

/**
 * Runs ADD in the container's namespace. If that is another one by then, or if a second default route came with the network,
 * everything is deleted again.
 * @throws CniError 8 if the container has ended, 7 for the default route; else as addNetwork()
 */
export function attach(to: AttachTo, attachment: Attachment, runtime: ChainRuntime): Promise<ResultOf> {
  const { container, place, list } = to;
  const { containerId, ifname } = attachment;
  return inTurn({ network: list.name, containerId, ifname }, runtime, async () => {
    checkPlace(container, place);
    const result = await addNetwork(list, attachment, runtime);
    try {
      checkPlace(container, place);
      if (!to.mayAddDefault) refuseSecondDefault(to, ifname);
      return result;
    } catch (refused) {
      throw await undo(refused, list, attachment, runtime);
    }
  });
}

async function undo(
  refused: unknown,
  list: Conflist,
  attachment: Attachment,
  runtime: ChainRuntime,
): Promise<unknown> {
  try {
    await deleteNetwork(list, attachment, { ...runtime, signal: undefined });
    return refused;
  } catch (failure) {
    return withDetails(refused, `undoing the ADD failed too: ${toCniError(failure).message}`);
  }
}

/** The first free name of `net1`, `net2`, …, as multus numbers the interfaces of additional networks. */
export function nextIfname(taken: ReadonlySet<string>): string {
  for (let number = 1; ; number++) if (!taken.has(`net${number}`)) return `net${number}`;
}

/** @throws CniError 4 if the container has an interface of that name, or is getting one */
export function checkFree(containerId: string, ifname: string, taken: ReadonlySet<string>): void {
  if (!taken.has(ifname)) return;
  throw new CniError(
    ErrorCode.invalidEnvironment,
    `Cannot attach container "${containerId}": it already has an interface "${ifname}"; choose another name (--ifname)`,
  );
}

// Of two default routes with the same metric the kernel uses the newer one: connections to the outside would leave through the new network.

const DEFAULTS = ['0.0.0.0/0', '::/0'];

/** @throws CniError 7 if the interface has a default route of a family in which the container had one before */
function refuseSecondDefault(
  {
    place: { netns, inside },
    list,
  }: { readonly place: ContainerPlace; readonly list: { readonly name: string } },
  ifname: string,
): void {
  const before = new Set([...inside].flatMap(([name, one]) => (name === ifname ? [] : defaultsOf(one))));
  const added = readInside(netns)?.get(ifname);
  const second = added && defaultsOf(added).find(destination => before.has(destination));
  if (second === undefined) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot attach to network "${list.name}": it adds a second default route (${second}), which would take the container's traffic; ` +
      'use a list without one, or allow it (--default-route)',
  );
}

function defaultsOf({ routes }: Inside): string[] {
  return routes.map(({ destination }) => destination).filter(one => DEFAULTS.includes(one));
}
