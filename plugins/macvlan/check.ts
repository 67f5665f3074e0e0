// Is the device still as ADD made it?
import { checkUpper } from '../../src/attach/upper/check.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import { MACVLAN_MODES } from '../../src/netlink/rtnl/link-attrs.ts';
import { upperDataOf } from '../../src/netlink/rtnl/upper.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import type { Call } from '../../src/plugin/define.ts';
import { type MacvlanConf, modeOf } from './config.ts';

/**
 * Compares device, master, addresses and routes with the result of ADD, and the mode with the configuration.
 * @returns the interface
 * @throws Error naming the first difference, CniError 7 without a result
 */
export function checkMacvlan(call: Call<MacvlanConf>): Link {
  const link = checkUpper(call, 'macvlan');
  checkMode(call.conf, link);
  const { bcqueuelen } = call.conf;
  // Kernels before 5.13 report no length.
  const length = upperDataOf(link, 'macvlan')?.queueLength;
  if (bcqueuelen && length !== undefined) {
    confirm(`broadcast queue length of interface "${link.name}"`, bcqueuelen, length);
  }
  return link;
}

/** @throws Error when the mode differs */
export function checkMode(conf: MacvlanConf, link: Link): void {
  const found = upperDataOf(link, 'macvlan')?.mode;
  const [name] = Object.entries(MACVLAN_MODES).find(([, mode]) => mode === found) ?? [];
  confirm(`mode of interface "${link.name}"`, modeOf(conf), name);
}
