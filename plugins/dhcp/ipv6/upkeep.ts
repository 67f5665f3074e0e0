// What happens to an IPv6 lease after ADD, when the daemon calls?

import { parseCidr } from '../../../src/net/cidr.ts';
import { parseIp, sameIp } from '../../../src/net/ip.ts';
import { type Address, limitAddress, listAddresses, removeAddress } from '../../../src/netlink/rtnl/addr.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { bootClock } from '../../../src/upkeep/boot-clock.ts';
import type { DhcpConf } from '../config.ts';
import type { OpenPlace } from '../give-back.ts';
import { type Keeping, keepLease } from '../upkeep.ts';
import { acquire, rebind, release, renew } from './client/acquire.ts';
import type { Client } from './client/conversation.ts';
import { withClient } from './client/session.ts';
import { FOREVER, IPV6_LEASES, identityIn, type Lease } from './lease.ts';
import { mannerFor } from './obtain.ts';

const QUESTIONS = { confirm: rebind, renew, rebind };

/** As {@link keepLease}, with the lifetimes of the address. */
export function keepIpv6(call: Call, conf: DhcpConf, restarted: boolean): Promise<void> {
  return keepLease(call, IPV6_LEASES, restarted, (place, state): Keeping<Lease> => {
    const manner = mannerFor(conf, place);
    const talk = <T>(giveUpAt: number, work: (client: Client) => Promise<T>) =>
      withClient(place, identityIn(state), giveUpAt, work);
    return {
      what: 'IPv6 address',
      ask: (question, giveUpAt) =>
        talk(giveUpAt, client => QUESTIONS[question](client, manner, state.lease, giveUpAt)),
      acquire: (former, giveUpAt, refusals) =>
        talk(giveUpAt, client => acquire(client, manner, former, giveUpAt, refusals)),
      release: (lease, giveUpAt) => talk(giveUpAt, client => release(client, lease)),
      hasAddress: lease => findAddress(place, lease) !== undefined,
      withdraw: lease => withdrawAddress(place, lease),
      apply(lease, before) {
        if (before.address !== lease.address) withdrawAddress(place, before);
        applyLease(place, lease, state.prefix);
      },
    };
  });
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

function withdrawAddress(place: OpenPlace, lease: Lease): void {
  const found = findAddress(place, lease);
  if (found) removeAddress(place.socket, place.link.index, found.cidr);
}

function findAddress({ socket, link }: OpenPlace, { address }: Lease): Address | undefined {
  const ip = parseIp(address);
  return listAddresses(socket, link.index).find(one => sameIp(one.cidr.ip, ip));
}
