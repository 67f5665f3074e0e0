// What happens to a lease after ADD, when the daemon calls?

import type { Link } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { bootClock } from '../../src/upkeep/boot-clock.ts';
import { limitMtu, moveAddress, withdrawAddress } from './apply.ts';
import { acquire, confirm, type Manner, rebind, release, renew, type Verdict } from './client/acquire.ts';
import { type Place, withAddressedClient } from './client/session.ts';
import { clientIdIn, IPV4_LEASES, type LeaseRecord, type LeaseState } from './kept.ts';
import type { Lease } from './lease.ts';
import { dueAt, stageOf } from './plan.ts';
import { findInterface, findRecord, updateRecord } from './record.ts';

/** A worker waits for the answer to one question; the next attempt comes later. */
const ANSWER_MS = 4_000;
/** A new lease takes two questions, and some servers probe the address first. */
const ACQUIRE_MS = 10_000;
/** Pause before the next attempt to obtain a lease in place of one that is over. */
const RETRY_S = 60;

/** What the call needs of the configuration. */
export interface Wanted {
  readonly manner: Manner;
  readonly priority: number | undefined;
}

/**
 * Renews the lease of the call's attachment if it is time, or confirms it after a restart. Does nothing in the namespace of
 * another attachment, and nothing if that is gone.
 * @param restarted whether this is the first call since the daemon started
 * @throws Error when the kernel refuses a change; it is tried again
 */
export async function keepLease(
  call: Call,
  restarted: boolean,
  wantedFor: (link: Link) => Wanted,
): Promise<void> {
  const record = findRecord(call, IPV4_LEASES);
  if (record === undefined) return;
  const { state } = record;
  const link = findInterface(call, record);
  if (link === undefined) {
    updateRecord(call, record, state, undefined);
    call.log.info(`Not renewing ${state.lease.address}: the interface that it was for is gone`);
    return;
  }
  const wanted = wantedFor(link);
  const place = { netns: call.containerNetns, link };
  const verdict = await askAbout(place, state, wanted, restarted);
  if (typeof verdict === 'object') return take(call, record, place, wanted, verdict.lease);
  const isOver = verdict === 'refused' || stageOf(state.lease, bootClock()) === 'expired';
  if (!isOver && !state.withdrawn) {
    if (stageOf(state.lease, bootClock()) === 'rebinding')
      call.log.warn(
        `No server extends the lease of ${state.lease.address} for "${link.name}", which ends soon`,
      );
    updateRecord(call, record, state, dueAt(state.lease, bootClock()));
    return;
  }
  await replace(
    call,
    record,
    place,
    wanted,
    verdict === 'refused' ? 'the server has withdrawn it' : 'it has expired',
  );
}

/** The question that a lease is due for. */
function askAbout(place: Place, state: LeaseState, { manner }: Wanted, restarted: boolean): Promise<Verdict> {
  const { lease, withdrawn } = state;
  const stage = withdrawn ? 'expired' : stageOf(lease, manner.clock());
  if (stage === 'expired') return Promise.resolve(undefined);
  if (stage === 'bound' && !restarted) return Promise.resolve(undefined);
  return withAddressedClient(place, clientIdIn(state), client => {
    const giveUpAt = performance.now() + ANSWER_MS;
    if (restarted) return confirm(client, manner, lease, giveUpAt);
    const extend = stage === 'renewing' ? renew : rebind;
    return extend(client, manner, lease, giveUpAt);
  });
}

/** Obtains another lease, in place of one that must not be used any longer. */
async function replace(
  call: Call,
  record: LeaseRecord,
  place: Place,
  wanted: Wanted,
  why: string,
): Promise<void> {
  const { state } = record;
  const { lease, withdrawn } = state;
  if (!withdrawn) {
    withdrawAddress(call.container, place.link, lease);
    call.log.warn(`Removed ${lease.address} from "${place.link.name}": ${why}`);
  }
  const refusals = { reasons: [] };
  const fresh = await withAddressedClient(place, clientIdIn(state), client =>
    acquire(client, wanted.manner, undefined, performance.now() + ACQUIRE_MS, refusals),
  );
  if (fresh) return take(call, record, place, wanted, fresh);
  const heard = refusals.reasons.join('; ') || 'no server answers';
  call.log.error(`"${place.link.name}" has no address: ${heard}; trying again in ${RETRY_S} s`);
  updateRecord(call, record, { ...state, withdrawn: true }, bootClock() + RETRY_S);
}

/** Notes a lease, then applies it. If a DEL has released the address since, the new lease is released as well. */
async function take(
  call: Call,
  record: LeaseRecord,
  place: Place,
  { priority }: Wanted,
  lease: Lease,
): Promise<void> {
  const { state } = record;
  const reported = state.reported ?? state.lease.address;
  const { clientId } = state;
  const next = { lease, clientId, ...(reported === lease.address ? {} : { reported }) };
  if (!updateRecord(call, record, next, dueAt(lease, bootClock()))) {
    await withAddressedClient(place, clientIdIn(state), client => release(client, lease));
    return;
  }
  limitMtu(call.container, place.link, lease, call.log);
  const moved = moveAddress(call.container, place.link, { before: state.lease, after: lease, priority });
  if (!moved) return;
  call.log.warn(
    `"${place.link.name}" of container "${call.env.containerId}" now has ${lease.address}: ADD reported ${reported}, ` +
      'and host ports, packet filters and the runtime still refer to that; recreate the container',
  );
}
