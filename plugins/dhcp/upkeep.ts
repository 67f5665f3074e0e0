// What becomes of a lease after ADD: when the daemon calls, and when it is given back?

import { awaitTraffic } from '../../src/attach/ready.ts';
import { describeError } from '../../src/cni/errors.ts';
import { bootId } from '../../src/files/process-stat.ts';
import { findLink, IFF_UP, setLink } from '../../src/netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import { bootClock, identityOf } from '../../src/node/upkeep/note.ts';
import type { Call } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/steps.ts';
import { closeNetns, findNetns, inNetns, type Netns } from '../../src/sys/netns.ts';
import type { ClientInterface, Refusals } from './conversation.ts';
import { dueAt, stageOf } from './plan.ts';
import {
  type CommonState,
  dropRecord,
  findInterface,
  findRecord,
  type KeptLease,
  type LeaseKind,
  listRecords,
  updateRecord,
} from './record.ts';

/** GC spares leases this young, in seconds, if no note says when their ADD began: that ADD may still be running. */
const UNNOTED_ADD_S = 60;

/** An interface that leases are released through. */
export interface OpenInterface extends ClientInterface {
  /** rtnetlink in its namespace. */
  readonly socket: NetlinkSocket;
  /** It was down until now. */
  readonly isFresh?: boolean;
}

/** Tells the server of a lease that it is over. */
export type Release<S> = (place: OpenInterface, state: S) => Promise<void>;

/** Releases and forgets the lease of the call's attachment, if it has one. */
export async function returnLease<S extends CommonState>(
  call: Call,
  kind: LeaseKind<S>,
  release: Release<S>,
): Promise<void> {
  const record = findRecord(call, kind);
  if (record === undefined) return;
  const netns = call.findContainerNetns();
  if (netns) await giveBack(call, record, { netns, path: call.env.netns }, release);
  dropRecord(call, record);
}

/** The same for leases of the network whose attachments GC does not keep. */
export async function collectLeases<S extends CommonState>(
  call: Call,
  kind: LeaseKind<S>,
  release: Release<S>,
): Promise<void> {
  const records = listRecords(call, kind);
  const { kept } = call;
  if (kept === undefined) return;
  const now = bootClock();
  const stale = records.filter(({ note, state }) => {
    const isNew = note.boot === bootId(call.environment) && now - state.lease.since < UNNOTED_ADD_S;
    return !kept.has(note) && (kept.isNoted(note) || !isNew);
  });
  await tryAll(stale.map(record => () => collect(call, record, release)));
}

async function collect<S extends CommonState>(
  call: Call,
  record: KeptLease<S>,
  release: Release<S>,
): Promise<void> {
  const { note, state } = record;
  call.log.info(`Releasing ${state.lease.address} of stale attachment ${note.containerId}/${note.ifname}`);
  const path = note.call.env.CNI_NETNS ?? '';
  const netns = findNetns(path);
  try {
    if (netns) await giveBack(call, record, { netns, path }, release);
  } finally {
    if (netns) closeNetns(netns);
  }
  dropRecord(call, record);
}

/** Releases a lease, if its interface still exists. Best effort: the server forgets the lease in time. */
async function giveBack<S extends CommonState>(
  call: Call,
  { note, state }: KeptLease<S>,
  { netns, path }: { netns: Netns; path: string },
  release: Release<S>,
): Promise<void> {
  const { lease, withdrawn } = state;
  const now = identityOf(call.environment, note, path);
  const isSame = note.boot === now.boot && note.netnsCookie === now.netnsCookie;
  if (withdrawn || !isSame || stageOf(lease, bootClock()) === 'expired') return;
  const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
  try {
    const link = findLink(socket, note.ifname);
    if (link === undefined) {
      call.log.info(`Not releasing ${lease.address}: "${note.ifname}" is gone already`);
      return;
    }
    // An ADD that failed while it brought the interface up again, or the container itself, has left it down.
    const isFresh = !(link.flags & IFF_UP);
    if (isFresh) {
      setLink(socket, link.index, { up: true });
      await awaitTraffic(call.log, [{ socket, link, ips: [] }]);
    }
    await release({ netns, link, socket, isFresh }, state);
  } catch (cause) {
    call.log.warn(
      `Cannot release ${lease.address}: ${describeError(cause)}; the server keeps it until it expires`,
    );
  } finally {
    socket.close();
  }
}

/** A worker waits for the answer to one question; the next attempt comes later. */
const ANSWER_MS = 4_000;
/** A new lease takes two questions, and probing for the address. */
const ACQUIRE_MS = 10_000;
/** Pause before the next attempt to obtain a lease in place of one that is over. */
const RETRY_S = 60;
/** How often, and for how long after ADD, the interface is looked at for the address that ADD reported. */
const LOOK_EVERY_S = 3;
const LOOK_FOR_S = 60;

/**
 * What servers said about a lease: the next one; that its address must not be used any longer; that the server does not know it,
 * while it stays valid until its end; or nothing.
 */
export type Response<L> = { readonly lease: L } | 'over' | 'unknown' | undefined;

/** How a family asks servers about a lease, and how its interface follows. Moments are in milliseconds of `performance.now()`. */
export interface Keeping<L> {
  /** What an interface without a lease lacks. */
  readonly what: string;
  /** `confirm` comes after a restart: the server may have been replaced as well. */
  ask(question: 'confirm' | 'renew' | 'rebind', giveUpAt: number): Promise<Response<L>>;
  /** @param former address to ask for */
  acquire(former: string | undefined, giveUpAt: number, refusals: Refusals): Promise<L | undefined>;
  release(lease: L, giveUpAt: number): Promise<unknown>;
  hasAddress(lease: L): boolean;
  /** Takes the address of a lease that is over from the interface. */
  withdraw(lease: L): void;
  /** Gives the interface the address of a lease in place of an earlier one's, and what comes with it. */
  apply(lease: L, before: L): void;
}

/** A lease while the daemon calls for it. */
interface Visit<S extends CommonState> {
  readonly call: Call;
  readonly record: KeptLease<S>;
  readonly name: string;
  readonly keeping: Keeping<S['lease']>;
}

/**
 * Renews the lease of the call's attachment if it is time, or confirms it after a restart. Does nothing in the namespace of
 * another attachment, and nothing if that is gone.
 * @param restarted whether this is the first call since the daemon started
 * @throws Error when the kernel refuses a change; it is tried again
 */
export async function keepLease<S extends CommonState>(
  call: Call,
  kind: LeaseKind<S>,
  restarted: boolean,
  open: (place: OpenInterface, state: S) => Keeping<S['lease']>,
): Promise<void> {
  const record = findRecord(call, kind);
  if (record === undefined) return;
  const { state } = record;
  const { lease } = state;
  const link = findInterface(call, record);
  if (link === undefined) {
    updateRecord(call, record, state, undefined);
    call.log.info(`Not renewing ${lease.address}: the interface that it was for is gone`);
    return;
  }
  const keeping = open({ netns: call.containerNetns, link, socket: call.container }, state);
  if (state.unseen && isWaiting(keeping, lease)) {
    updateRecord(call, record, state, bootClock() + LOOK_EVERY_S);
    return;
  }
  const visit = { call, record, name: link.name, keeping };
  const response = await askAbout(visit, restarted && !state.unseen);
  if (typeof response === 'object') return take(visit, response.lease);
  const stage = stageOf(lease, bootClock());
  if (response !== undefined || stage === 'expired' || state.withdrawn) return replace(visit, response);
  if (stage === 'rebinding')
    call.log.warn(`No server extends the lease of ${lease.address} for "${link.name}", which ends soon`);
  const { unseen, ...seen } = state;
  if (unseen && keeping.hasAddress(lease)) keeping.apply(lease, lease);
  updateRecord(call, record, seen as S, dueAt(lease, bootClock()));
}

/** Whether the plugin that called ADD has yet to address the interface. */
function isWaiting<L extends CommonState['lease']>(keeping: Keeping<L>, lease: L): boolean {
  const isYoung = bootClock() < lease.since + LOOK_FOR_S && stageOf(lease, bootClock()) === 'bound';
  return isYoung && !keeping.hasAddress(lease);
}

/** The question that a lease is due for. */
async function askAbout<S extends CommonState>(
  { record, keeping }: Visit<S>,
  restarted: boolean,
): Promise<Response<S['lease']>> {
  const { lease, withdrawn } = record.state;
  const stage = withdrawn ? 'expired' : stageOf(lease, bootClock());
  if (stage === 'expired' || (stage === 'bound' && !restarted)) return undefined;
  const question = restarted ? 'confirm' : stage === 'renewing' ? 'renew' : 'rebind';
  return keeping.ask(question, performance.now() + ANSWER_MS);
}

/**
 * Obtains another lease. The address of one that a server merely does not know stays until its end: it asks for the same one, and
 * often gets it.
 */
async function replace<S extends CommonState>(
  visit: Visit<S>,
  response: 'over' | 'unknown' | undefined,
): Promise<void> {
  const { call, record, name, keeping } = visit;
  const { state } = record;
  const { lease, withdrawn } = state;
  const isUnknown = response === 'unknown';
  if (!isUnknown && !withdrawn) {
    keeping.withdraw(lease);
    const why = response === 'over' ? 'the server has withdrawn it' : 'it has expired';
    call.log.warn(`Removed ${lease.address} from "${name}": ${why}`);
  }
  const refusals = { reasons: [] };
  const former = isUnknown ? lease.address : undefined;
  const fresh = await keeping.acquire(former, performance.now() + ACQUIRE_MS, refusals);
  if (fresh) return take(visit, fresh);
  const heard = refusals.reasons.join('; ') || 'no server answers';
  if (isUnknown) {
    call.log.warn(`The server no longer knows ${lease.address}, and grants no other: ${heard}`);
    updateRecord(call, record, state, dueAt(lease, bootClock()));
    return;
  }
  call.log.error(`"${name}" has no ${keeping.what}: ${heard}; trying again in ${RETRY_S} s`);
  updateRecord(call, record, { ...state, withdrawn: true }, bootClock() + RETRY_S);
}

/** Notes a lease, then applies it. If a DEL has released the address since, the new lease is released as well. */
async function take<S extends CommonState>(
  { call, record, name, keeping }: Visit<S>,
  lease: S['lease'],
): Promise<void> {
  const { lease: before, reported = before.address, withdrawn: _, unseen: __, ...client } = record.state;
  const next = { ...client, lease, ...(reported === lease.address ? {} : { reported }) } as unknown as S;
  if (!updateRecord(call, record, next, dueAt(lease, bootClock()))) {
    await keeping.release(lease, performance.now() + ANSWER_MS);
    return;
  }
  const isMoved = !keeping.hasAddress(lease);
  keeping.apply(lease, before);
  if (!isMoved) return;
  call.log.warn(
    `"${name}" of container "${call.env.containerId}" now has ${lease.address}: ADD reported ${reported}, ` +
      'and host ports, packet filters and the runtime still refer to that; recreate the container',
  );
}
