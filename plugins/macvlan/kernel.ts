// How is the device created in the kernel?
import { requestedMac } from '../../src/attach/mac.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { makeUpper } from '../../src/attach/upper/create.ts';
import { findMaster, requireMtu } from '../../src/attach/upper/master.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { MacvlanConf } from './config.ts';
import { chainedMaster, planMacvlan } from './plan.ts';
import { refuseWireless } from './wireless.ts';

/**
 * Creates the device in the container, down and without addresses. Registers its own undo step.
 * @throws CniError 7 when there is no usable master, 4 when the container has an interface of that name
 */
export function createMacvlan(call: Call<MacvlanConf>): Link {
  const { conf } = call;
  const mac = requestedMac(call, call.conf.mac);
  const master = findMaster(call, chainedMaster(conf, call.prevResult));
  requireMtu(conf.mtu, master);
  if (!conf.linkInContainer) refuseWireless(master);
  return makeUpper(call, master, planMacvlan(conf, attachmentOf(call), master.link, mac));
}
