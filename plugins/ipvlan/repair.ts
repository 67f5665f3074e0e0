// What does the plugin restore when others have changed the device?
import { repairDevice } from '../../src/attach/device/repair.ts';
import { setUpper } from '../../src/netlink/rtnl/upper.ts';
import type { Call } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import { checkModeAndFlags } from './check.ts';
import type { IpvlanConf } from './config.ts';
import { dataOf } from './kernel.ts';

/**
 * Brings the device up, and restores its routes, mode and flags. The kernel has one mode and one set of flags for all interfaces of a
 * master.
 * @throws Error when the device is missing: only a new ADD can make it
 */
export function repairIpvlan(call: Call<IpvlanConf>): void {
  const link = repairDevice(call, 'ipvlan');
  mend(
    () => checkModeAndFlags(call.conf, link),
    () => setUpper(call.container, link.index, 'ipvlan', dataOf(call.conf)),
  );
}
