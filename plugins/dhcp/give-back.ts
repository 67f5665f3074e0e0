// How is a lease given back, if that can still be done?
import { awaitTraffic } from '../../src/attach/ready.ts';
import { describeError } from '../../src/cni/errors.ts';
import { bootId } from '../../src/files/process-stat.ts';
import { findLink, IFF_UP, setLink } from '../../src/netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import { bootClock } from '../../src/node/upkeep/boot-clock.ts';
import { identityOf } from '../../src/node/upkeep/identity.ts';
import type { Call } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/steps.ts';
import { closeNetns, findNetns, inNetns, type Netns } from '../../src/sys/netns.ts';
import type { Place } from './client/conversation.ts';
import { stageOf } from './plan.ts';
import {
  type CommonState,
  dropRecord,
  findRecord,
  type KeptLease,
  type LeaseKind,
  listRecords,
} from './record.ts';

/** GC spares leases this young, in seconds, if no note says when their ADD began: that ADD may still be running. */
const UNNOTED_ADD_S = 60;

/** An interface that leases are released through. */
export interface OpenPlace extends Place {
  /** rtnetlink in its namespace. */
  readonly socket: NetlinkSocket;
  /** It was down until now. */
  readonly isFresh?: boolean;
}

/** Tells the server of a lease that it is over. */
export type Release<S> = (place: OpenPlace, state: S) => Promise<void>;

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
