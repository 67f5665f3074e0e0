// Are the devices still as ADD made them?
import { checkUpper } from '../../src/attach/upper/check.ts';
import { VLAN_PROTOCOLS } from '../../src/netlink/rtnl/kinds/vlan.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import { upperDataOf } from '../../src/netlink/rtnl/upper.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { VlanConf } from './config.ts';
import { type PlannedTag, planTags } from './plan.ts';

/**
 * Compares devices, master, addresses and routes with the result of ADD, and the VLANs with the configuration.
 * @throws Error naming the first difference, CniError 7 without a result
 */
export function checkVlan(call: Call<VlanConf>): void {
  const [lowest, inner] = planTags(call.conf, call.env.ifname);
  const outerOf = (link: Link): Link => (inner && findLink(call.container, link.peer)) || link;
  const link = checkUpper(call, 'vlan', outerOf);
  if (inner) checkTag(inner, link);
  if (lowest) checkTag(lowest, outerOf(link));
}

function checkTag({ name, data }: PlannedTag, link: Link): void {
  const found = upperDataOf(link, 'vlan');
  confirm(`VLAN of "${name}"`, data.id, found?.id);
  const [protocol] = Object.entries(VLAN_PROTOCOLS).find(([, number]) => number === found?.protocol) ?? [];
  const [expected] = Object.entries(VLAN_PROTOCOLS).find(([, number]) => number === data.protocol) ?? [];
  confirm(`protocol of VLAN ${data.id} of "${name}"`, expected, protocol);
  for (const key of ['egressQos', 'ingressQos'] as const) {
    for (const mapping of data[key] ?? []) {
      const to = found?.[key]?.find(one => one.from === mapping.from)?.to ?? 0;
      confirm(`${key} of "${name}" from ${mapping.from}`, mapping.to, to);
    }
  }
}
