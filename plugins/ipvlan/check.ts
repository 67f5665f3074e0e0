// Is the device still as ADD made it?
import { checkUpper } from '../../src/attach/upper/check.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import { IPVLAN_FLAGS, IPVLAN_MODES } from '../../src/netlink/rtnl/link-attrs.ts';
import { upperDataOf } from '../../src/netlink/rtnl/upper.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import type { Call } from '../../src/plugin/define.ts';
import { flagsOf, type IpvlanConf, modeOf } from './config.ts';

/**
 * Compares device, master, addresses and routes with the result of ADD, mode and flags with the configuration.
 * @throws Error naming the first difference, CniError 7 without a result
 */
export function checkIpvlan(call: Call<IpvlanConf>): void {
  checkModeAndFlags(call.conf, checkUpper(call, 'ipvlan'));
}

/** @throws Error naming the first difference */
export function checkModeAndFlags(conf: IpvlanConf, link: Link): void {
  const { mode, flags = 0 } = upperDataOf(link, 'ipvlan') ?? {};
  const name = `interface "${link.name}"`;
  confirm(`mode of ${name}`, modeOf(conf), keyOf(IPVLAN_MODES, mode));
  confirm(`flags of ${name}`, flagsOf(conf), keyOf(IPVLAN_FLAGS, flags));
}

function keyOf(table: Readonly<Record<string, number>>, value: number | undefined): string | undefined {
  return Object.keys(table).find(key => table[key] === value);
}
