// How does a running container get one more network, how does it lose one, and how do processes that do so wait for each other?

import { hold, lifeOf, pastOf } from '../../attachments/store.ts';
import { type Conflist, parseFrozen } from '../../chain/config/conflist.ts';
import { settleEarlierAdd } from '../../chain/records/recover.ts';
import { withDetails } from '../../chain/run/call-plugins.ts';
import { addNetwork, deleteNetwork } from '../../chain/run/run.ts';
import { type Attachment, type ChainRuntime, holdCall } from '../../chain/run/runtime.ts';
import { inTurn, withContainerAlone } from '../../chain/run/turns.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import type { CniArgs } from '../../cni/env.ts';
import {
  decodingFailure,
  invalidConfig,
  invalidEnvironment,
  toCniError,
  tryAgainLater,
} from '../../cni/errors.ts';
import { defined, type JsonObject } from '../../cni/json.ts';
import type { ResultOf } from '../../cni/result.ts';
import { type Inside, readInside } from '../../node/devices.ts';
import type { RecordedAttachment } from '../../node/facts.ts';
import { originOf, sinceOf } from '../../node/read-node.ts';
import { holdFlock } from '../../sys/flock.ts';
import { type ContainerPlace, checkPlace, type KnownContainer } from './container.ts';

/** The name of an interface is chosen by looking which ones are free. As withContainerAlone(). */
export function withContainer<T>(
  containerId: string,
  runtime: Pick<ChainRuntime, 'env' | 'signal'>,
  waitMs: number,
  work: () => Promise<T>,
): Promise<T> {
  const take = (path: string) => holdFlock(path, { mode: 0o600, directoryMode: 0o700 });
  return withContainerAlone(containerId, runtime, { waitMs, take }, work);
}

/**
 * What the caller chooses; the name is the next free `net<N>` unless given. A caller that lost the reply asks again with the same
 * request key, and means the attachment that was made then.
 */
interface AttachRequest {
  readonly network: string;
  readonly ifname?: string | undefined;
  readonly request?: string | undefined;
  readonly args: CniArgs;
  readonly capabilityArgs: JsonObject;
}

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
  { network, ifname, request }: Pick<AttachRequest, 'network' | 'ifname' | 'request'>,
  runtime: ChainRuntime,
): Promise<void> {
  for (const one of attachments) {
    if (one.unsettled === undefined) continue;
    const isTried = request !== undefined && one.request === request;
    const isSame = isTried || (ifname !== undefined && one.ifname === ifname);
    if (isSame && one.network === network) await settleTry(one, runtime);
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
  { containerId, attachments, inPod }: KnownContainer,
  { netns, inside }: ContainerPlace,
  { network, ifname, request, args, capabilityArgs }: AttachRequest,
): Attachment {
  const again = attachments.find(
    one => request !== undefined && one.request === request && one.network === network,
  );
  if (again) return { containerId, netns, ifname: again.ifname, args, capabilityArgs };
  const taken = new Set([...inside.keys(), ...attachments.map(one => one.ifname), ...inPod]);
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
  throw invalidEnvironment(
    `Cannot attach container "${containerId}": it already has an interface "${ifname}", or is getting one; choose another name (--ifname)`,
  );
}

// Of two default routes with the same metric the kernel uses the newer one: connections to the outside would leave through the new network.

const DEFAULTS = ['0.0.0.0/0', '::/0'];

/** @throws CniError 7 if the interface has a default route of a family in which the container had one before */
function refuseSecondDefault({ place: { netns, inside }, list }: AttachTo, ifname: string): void {
  const before = new Set([...inside].flatMap(([name, one]) => (name === ifname ? [] : defaultsOf(one))));
  const added = readInside(netns)?.get(ifname);
  const second = added && defaultsOf(added).find(destination => before.has(destination));
  if (second === undefined) return;
  throw invalidConfig(
    `Cannot attach to network "${list.name}": it adds a second default route (${second}), which would take the container's traffic; ` +
      'use a list without one, or allow it (--default-route)',
  );
}

function defaultsOf({ routes }: Inside): string[] {
  return routes.map(({ destination }) => destination).filter(one => DEFAULTS.includes(one));
}

/**
 * Refuses what the container's runtime counts on while it runs.
 * @throws CniError 7 for an attachment that another program made, and for the container's first interface
 */
export function refuseNeeded(one: RecordedAttachment, { containerId, attachments }: KnownContainer): void {
  // Its namespace is gone, and with it its interface.
  if (one.netns === '' || pastOf(one, process.env).netns() !== 'same') return;
  const why = reasonToKeep(one, attachments);
  if (why === undefined) return;
  const { network, ifname } = one;
  throw invalidConfig(
    `Cannot detach interface "${ifname}" of container "${containerId}" from network "${network}": ${why}; --force detaches it nevertheless`,
  );
}

/**
 * Runs DEL with the configuration of the ADD.
 * @throws CniError 6 if that is not known, 11 if it has been attached again since; else as deleteNetwork()
 */
export async function detach(one: RecordedAttachment, runtime: ChainRuntime): Promise<void> {
  const { network, containerId } = one;
  const list = listOf(one);
  const within = whereRecorded(one, runtime);
  if (one.stateDir === undefined) return deleteNetwork(list, one, within);
  let isAnother = false;
  await deleteNetwork(list, one, within, life => {
    const isThat = life === lifeOf(one);
    isAnother = !isThat && life !== '';
    return isThat;
  });
  if (!isAnother) return;
  throw tryAgainLater(
    `Cannot detach container "${containerId}" from network "${network}": it has been attached again or changed since it was looked up; try again`,
  );
}

/** The directories in which an attachment is on record: a delegate runner and other runtimes have caches of their own. */
export function whereRecorded(
  { stateDir, cacheDir }: RecordedAttachment,
  runtime: ChainRuntime,
): ChainRuntime {
  return { ...runtime, cacheDir, ...defined({ stateDir }) };
}

function listOf({ source, network, containerId }: RecordedAttachment): Conflist {
  if (source !== '') return parseFrozen(source);
  throw decodingFailure(
    `Cannot detach container "${containerId}" from network "${network}": the configuration of its ADD is not on record; run DEL with the network's own`,
  );
}

function reasonToKeep(one: RecordedAttachment, all: readonly RecordedAttachment[]): string | undefined {
  const { runner } = originOf(one);
  if (one.through !== undefined)
    return `the delegate runner of network "${one.through}" attached it, and reports it in the pod's network status`;
  if (one.stateDir === undefined)
    return `${runner} made it, reports its address, and deletes it with the container`;
  if (firstOf(all) === one) return "it is the container's first, by which its runtime reaches it";
  return undefined;
}

/** `eth0`, which runtimes attach first; else the oldest. */
function firstOf(all: readonly RecordedAttachment[]): RecordedAttachment | undefined {
  const since = (one: RecordedAttachment) => sinceOf(one, process.env) ?? '';
  const oldestFirst = all.toSorted((a, b) => (since(a) < since(b) ? -1 : 1));
  return all.find(({ ifname }) => ifname === 'eth0') ?? oldestFirst[0];
}
