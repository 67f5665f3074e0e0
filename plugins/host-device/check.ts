// Is everything that ADD made still as ADD made it?

import { checkAddresses, checkMac, stateOf } from '../../src/attach/check.ts';
import { addressesFromResult } from '../../src/attach/device/plan.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { checkRoutes } from '../../src/attach/routes.ts';
import type { Result } from '../../src/cni/result.ts';
import { parseCidr } from '../../src/net/cidr.ts';
import { findLink } from '../../src/netlink/rtnl/link.ts';
import { listRules } from '../../src/netlink/rtnl/rule.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { HostDeviceConf } from './config.ts';
import { findRecord } from './record.ts';

/**
 * Compares device, addresses, routes and rules in the container with the result of ADD and the record.
 * @throws Error naming the first difference
 */
export function checkDevice(call: Call<HostDeviceConf>, prevResult: Result): void {
  const { container, env } = call;
  const name = `interface "${env.ifname}"`;
  const record = findRecord(call.environment, attachmentOf(call));
  const reported = prevResult.interfaces?.find(one => one.name === env.ifname && one.sandbox === env.netns);
  confirm(`${name} of "${env.netns}" in the result`, env.ifname, reported?.name);
  const link = findLink(container, env.ifname);
  if (link === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  checkMac(name, reported, link);
  // The reference's DEL, and ours without a record, finds the name of the device there.
  if (record) confirm(`alias of ${name}`, record.name, link.attrs.alias);
  // A later plugin such as tuning may legitimately have changed it, and then says so in the result.
  if (reported?.mtu !== undefined) confirm(`MTU of ${name}`, reported.mtu, link.mtu);
  confirm(`state of ${name}`, 'up', stateOf(link));
  const { ips, routes } = addressesFromResult(prevResult, env.ifname, env.netns);
  checkAddresses(
    container,
    link,
    ips.map(({ cidr }) => cidr),
  );
  checkRoutes(container, link, routes);
  if (record?.rules.length) checkRules(call, record.rules);
}

function checkRules({ container, env }: Call, rules: readonly { from: string; table: number }[]): void {
  const present = listRules(container);
  for (const { from, table } of rules) {
    const { ip, prefix } = parseCidr(from);
    const found = present.some(rule => {
      return rule.table === table && rule.from?.prefix === prefix && rule.from.ip.value === ip.value;
    });
    if (!found) confirm(`rules of "${env.netns}"`, `from ${from} lookup ${table}`, 'none');
  }
}
