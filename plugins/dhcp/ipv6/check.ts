// Does an attachment still have the IPv6 addresses that ADD reported?
import { type Cidr, findCidr, renderCidr } from '../../../src/net/cidr.ts';
import { sameIp } from '../../../src/net/ip.ts';
import { findLink } from '../../../src/netlink/rtnl/link.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { checkLease } from '../check.ts';
import type { DhcpConf } from '../config.ts';
import { formedAddresses } from './autoconf.ts';
import { IPV6_LEASES } from './kept.ts';

/** @throws Error naming what is missing, or what has replaced it */
export function checkIpv6(call: Call, way: NonNullable<DhcpConf['ipam']['ipv6']>): void {
  const reported = (call.prevResult?.ips ?? []).flatMap(({ address }) => findCidr(address) ?? []);
  const own = reported.filter(({ ip }) => ip.family === 6);
  if (way === 'dhcp') {
    const addresses = call.prevResult && own.map(renderCidr);
    checkLease(
      call,
      IPV6_LEASES,
      'an IPv6 lease',
      addresses,
      ({ lease, prefix }) => `${lease.address}/${prefix}`,
    );
  } else checkFormed(call, own);
}

/** Lifetimes come with each advertisement; the address must exist, and new connections must use it. */
function checkFormed(call: Call, reported: readonly Cidr[]): void {
  const { ifname } = call.env;
  const link = findLink(call.container, ifname);
  const formed = link ? formedAddresses({ socket: call.container, link }).map(({ cidr }) => cidr) : [];
  const missing = reported.find(({ ip }) => !formed.some(one => sameIp(one.ip, ip)));
  if (missing === undefined && formed.length > 0) return;
  const what = missing ? renderCidr(missing) : 'an IPv6 address';
  const found = formed.length ? formed.map(renderCidr).join(', ') : 'none that is preferred';
  throw new Error(`Cannot confirm ${what} of "${ifname}": the interface has ${found}; run DEL and ADD`);
}
