// Does an attachment still have the IPv6 addresses that ADD reported?
import { stateDir } from '../../../src/cni/directories.ts';
import { type Cidr, findCidr, renderCidr } from '../../../src/net/cidr.ts';
import { sameIp } from '../../../src/net/ip.ts';
import { findLink } from '../../../src/netlink/rtnl/link.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { bootClock } from '../../../src/upkeep/boot-clock.ts';
import { identityOf, isStillSame } from '../../../src/upkeep/identity.ts';
import type { DhcpConf } from '../config.ts';
import { stageOf } from '../plan.ts';
import { attachmentOf, findRecord } from '../record.ts';
import { formedAddresses } from './autoconf.ts';
import { IPV6_LEASES } from './kept.ts';

/** @throws Error naming what is missing, or what has replaced it */
export function checkIpv6(call: Call, way: NonNullable<DhcpConf['ipam']['ipv6']>): void {
  const reported = (call.prevResult?.ips ?? []).flatMap(({ address }) => findCidr(address) ?? []);
  const own = reported.filter(({ ip }) => ip.family === 6);
  if (way === 'dhcp') checkLease(call, call.prevResult && own);
  else checkFormed(call, own);
}

function checkLease(call: Call, reported: readonly Cidr[] | undefined): void {
  const record = findRecord(call, IPV6_LEASES);
  if (record === undefined)
    throw new Error(
      `Cannot find an IPv6 lease of "${call.env.ifname}" in "${stateDir(call.environment)}"; run DEL and ADD`,
    );
  const { lease, prefix, withdrawn } = record.state;
  const now = identityOf(call.environment, attachmentOf(call), call.env.netns);
  if (!isStillSame(record.note, now))
    throw new Error(
      `Cannot confirm the lease of ${lease.address}: it is of an earlier attachment of that name; run DEL and ADD`,
    );
  if (withdrawn || stageOf(lease, bootClock()) === 'expired')
    throw new Error(
      `Cannot confirm the lease of ${lease.address}: it has ended, and no server has granted another`,
    );
  const current = `${lease.address}/${prefix}`;
  const texts = reported?.map(renderCidr);
  if (texts && !texts.includes(current))
    throw new Error(
      `Cannot confirm the lease of ${record.state.reported ?? texts.join(', ')}: the server has replaced it by ${lease.address}; run DEL and ADD`,
    );
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
