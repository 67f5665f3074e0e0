// How does the interface get its addresses, routes and rules in the container?
import type { ContainerAddressing } from '../../src/attach/addressing.ts';
import { addressContainer } from '../../src/attach/container.ts';
import { addRoutes } from '../../src/attach/routes.ts';
import { settleAddresses } from '../../src/attach/settle.ts';
import { parseCidr, renderCidr } from '../../src/net/cidr.ts';
import { isNetlinkError } from '../../src/netlink/errors.ts';
import { getLink, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import { IFF_LOWER_UP } from '../../src/netlink/rtnl/link-header.ts';
import { restoreRoutes } from '../../src/netlink/rtnl/route.ts';
import { addRule, removeRule } from '../../src/netlink/rtnl/rule.ts';
import type { Call } from '../../src/plugin/define.ts';
import { Errno } from '../../src/sys/errno.ts';
import type { OwnNetwork } from './plan.ts';
import type { RecordedRule } from './record.ts';

/**
 * Addresses the interface and brings it up. Other hosts share its link, so IPv6 duplicate address detection stays on, and is awaited
 * if there is a carrier.
 * @param own addresses and routes that the device had on the host, which come first
 * @throws Error when another host has one of the addresses
 */
export async function configure(
  call: Call,
  link: Link,
  { ips, routes }: ContainerAddressing,
  own: OwnNetwork = { addresses: [], routes: [] },
): Promise<void> {
  const { container } = call;
  const cidrs = ips.map(({ cidr }) => cidr);
  const known = new Set(cidrs.map(renderCidr));
  const kept = own.addresses.filter(({ cidr }) => !known.has(renderCidr(cidr)));
  if (cidrs.length + kept.length === 0) setLink(container, link.index, { up: true });
  else addressContainer(call, link, cidrs, true, kept);
  const [refused] = restoreRoutes(container, own.routes);
  if (refused) throw refused;
  addRoutes(container, link, routes);
  if (![...cidrs, ...kept.map(({ cidr }) => cidr)].some(({ ip }) => ip.family === 6)) return;
  if (getLink(container, link.index).flags & IFF_LOWER_UP) await settleAddresses(container, link);
  else call.log.info(`"${link.name}" has no carrier yet: duplicate addresses are detected once it has`);
}

/** Copies rules into the container; existing ones stay, and those that were added are removed when ADD fails. */
export function copyRules(call: Call, rules: readonly RecordedRule[]): void {
  for (const { from, table, priority } of rules) {
    const rule = { from: parseCidr(from), table, priority };
    try {
      addRule(call.container, rule);
    } catch (thrown) {
      if (!isNetlinkError(thrown, Errno.EEXIST)) throw thrown;
      continue;
    }
    call.onFailure(`delete the rule for ${from}`, () => removeRule(call.container, rule));
  }
}
