// What happens to an IPv6 lease after ADD, when the daemon calls?

import { parseCidr } from '../../../src/net/cidr.ts';
import { parseIp, sameIp } from '../../../src/net/ip.ts';
import { type Address, limitAddress, listAddresses, removeAddress } from '../../../src/netlink/rtnl/addr.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { bootClock } from '../../../src/upkeep/boot-clock.ts';
import type { DhcpConf } from '../config.ts';
import type { OpenPlace } from '../give-back.ts';
import { dueAt, stageOf } from '../plan.ts';
import { findInterface, findRecord, updateRecord } from '../record.ts';
import { acquire, type Manner, rebind, release, renew, type Verdict } from './client/acquire.ts';
import { withClient } from './client/session.ts';
import { IPV6_LEASES, identityIn, type LeaseRecord, type LeaseState } from './kept.ts';
import { FOREVER, type Lease } from './lease.ts';
import { mannerFor } from './obtain.ts';

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
 * Renews the lease of the call's attachment if it is time, and rebinds it after a restart. Does nothing in the namespace of another
 * attachment, and nothing if that is gone.
 * @param restarted whether this is the first call since the daemon started
 * @throws Error when the kernel refuses a change; it is tried again
 */
export async function keepIpv6(call: Call, conf: DhcpConf, restarted: boolean): Promise<void> {
  const record = findRecord(call, IPV6_LEASES);
  if (record === undefined) return;
  const { state } = record;
  const link = findInterface(call, record);
  if (link === undefined) {
    updateRecord(call, record, state, undefined);
    call.log.info(`Not renewing ${state.lease.address}: the interface that it was for is gone`);
    return;
  }
  const place = { netns: call.containerNetns, link, socket: call.container };
  if (state.unseen && isWaiting(place, state)) {
    updateRecord(call, record, state, bootClock() + LOOK_EVERY_S);
    return;
  }
  const manner = mannerFor(conf, place);
  const verdict = await askAbout(place, state, manner, restarted && !state.unseen);
  if (typeof verdict === 'object') return take(call, record, place, verdict.lease);
  const isOver = verdict === 'over' || stageOf(state.lease, bootClock()) === 'expired';
  if (isOver || state.withdrawn || verdict === 'unknown')
    return replace(call, record, place, manner, verdict);
  if (stageOf(state.lease, bootClock()) === 'rebinding')
    call.log.warn(
      `No server extends the lease of ${state.lease.address} for "${link.name}", which ends soon`,
    );
  const { unseen, ...seen } = state;
  if (unseen && hasAddress(place, state.lease)) applyLease(place, state.lease, state.prefix);
  updateRecord(call, record, seen, dueAt(state.lease, bootClock()));
}

/** Whether the plugin that called ADD has yet to address the interface. */
function isWaiting(place: OpenPlace, { lease }: LeaseState): boolean {
  const isYoung = bootClock() < lease.since + LOOK_FOR_S && stageOf(lease, bootClock()) === 'bound';
  return isYoung && !hasAddress(place, lease);
}

/** The question that a lease is due for. After a restart, the server may have been replaced as well. */
function askAbout(place: OpenPlace, state: LeaseState, manner: Manner, restarted: boolean): Promise<Verdict> {
  const { lease, withdrawn } = state;
  const stage = withdrawn ? 'expired' : stageOf(lease, manner.clock());
  if (stage === 'expired' || (stage === 'bound' && !restarted)) return Promise.resolve(undefined);
  const giveUpAt = performance.now() + ANSWER_MS;
  return withClient(place, identityIn(state), giveUpAt, client => {
    const extend = stage === 'renewing' && !restarted ? renew : rebind;
    return extend(client, manner, lease, giveUpAt);
  });
}

/**
 * Obtains another lease. The address of one that a server merely does not know stays until its end: it asks for the same one, and
 * often gets it.
 */
async function replace(
  call: Call,
  record: LeaseRecord,
  place: OpenPlace,
  manner: Manner,
  verdict: Verdict,
): Promise<void> {
  const { state } = record;
  const { lease, withdrawn } = state;
  const isUnknown = verdict === 'unknown';
  if (!isUnknown && !withdrawn) {
    withdrawAddress(place, lease);
    const why = verdict === 'over' ? 'the server has withdrawn it' : 'it has expired';
    call.log.warn(`Removed ${lease.address} from "${place.link.name}": ${why}`);
  }
  const refusals = { reasons: [] };
  const giveUpAt = performance.now() + ACQUIRE_MS;
  const fresh = await withClient(place, identityIn(state), giveUpAt, client =>
    acquire(client, manner, isUnknown ? lease.address : undefined, giveUpAt, refusals),
  );
  if (fresh) return take(call, record, place, fresh);
  const heard = refusals.reasons.join('; ') || 'no server answers';
  if (isUnknown) {
    call.log.warn(`The server no longer knows ${lease.address}, and grants no other: ${heard}`);
    updateRecord(call, record, state, dueAt(lease, bootClock()));
    return;
  }
  call.log.error(`"${place.link.name}" has no IPv6 address: ${heard}; trying again in ${RETRY_S} s`);
  updateRecord(call, record, { ...state, withdrawn: true }, bootClock() + RETRY_S);
}

/** Notes a lease, then applies it. If a DEL has released the address since, the new lease is released as well. */
async function take(call: Call, record: LeaseRecord, place: OpenPlace, lease: Lease): Promise<void> {
  const { duid, iaid, prefix, lease: before, ...former } = record.state;
  const reported = former.reported ?? before.address;
  const next = {
    ...{ lease, duid, iaid, prefix },
    ...(reported === lease.address ? {} : { reported }),
  };
  if (!updateRecord(call, record, next, dueAt(lease, bootClock()))) {
    const giveUpAt = performance.now() + ANSWER_MS;
    await withClient(place, identityIn(record.state), giveUpAt, client => release(client, lease));
    return;
  }
  const isMoved = !hasAddress(place, lease);
  if (before.address !== lease.address) withdrawAddress(place, before);
  applyLease(place, lease, prefix);
  if (!isMoved) return;
  call.log.warn(
    `"${place.link.name}" of container "${call.env.containerId}" now has ${lease.address}: ADD reported ${reported}, ` +
      'and host ports, packet filters and the runtime still refer to that; recreate the container',
  );
}

/**
 * Gives the interface the address of a lease, with what is left of its lifetimes: the kernel itself removes the address of a lease that
 * has ended, whether a daemon runs or not.
 * @param prefix length
 */
function applyLease(
  { socket, link }: OpenPlace,
  { address, since, duration, preferred }: Lease,
  prefix: number,
): void {
  const age = Math.floor(bootClock() - since);
  const left = (lifetime: number | undefined) =>
    lifetime === undefined ? FOREVER : Math.max(0, lifetime - age);
  // The kernel refuses an address that is valid for no time.
  const valid = Math.max(1, left(duration));
  const lifetimes = { valid, preferred: Math.min(valid, left(preferred)) };
  limitAddress(socket, link.index, parseCidr(`${address}/${prefix}`), lifetimes);
}

/** Whether the interface has the address of a lease. */
function hasAddress(place: OpenPlace, lease: Lease): boolean {
  return find(place, lease) !== undefined;
}

/** Takes the address of a lease that is over from the interface. */
function withdrawAddress(place: OpenPlace, lease: Lease): void {
  const found = find(place, lease);
  if (found) removeAddress(place.socket, place.link.index, found.cidr);
}

function find({ socket, link }: OpenPlace, { address }: Lease): Address | undefined {
  const ip = parseIp(address);
  return listAddresses(socket, link.index).find(one => sameIp(one.cidr.ip, ip));
}
