// What does the plugin restore when others have changed the device?
import { repairDevice } from '../../src/attach/device/repair.ts';
import { MACVLAN_MODES } from '../../src/netlink/rtnl/kinds/macvlan.ts';
import { setUpper } from '../../src/netlink/rtnl/upper.ts';
import type { Call } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import { checkMode } from './check.ts';
import { type MacvlanConf, modeOf } from './config.ts';

/**
 * Brings the device up, and restores its routes and mode.
 * @throws Error when the device is missing: only a new ADD can make it
 */
export function repairMacvlan(call: Call<MacvlanConf>): void {
  const { conf, container } = call;
  const link = repairDevice(call, 'macvlan');
  mend(
    () => checkMode(conf, link),
    () => setUpper(container, link.index, 'macvlan', { mode: MACVLAN_MODES[modeOf(conf)] }),
  );
}
