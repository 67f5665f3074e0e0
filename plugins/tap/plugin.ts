// What does the tap plugin do for each verb?
import { planLayer3 } from '../../src/attach/device/plan.ts';
import { removeDevices } from '../../src/attach/device/remove.ts';
import { refuseTakenName } from '../../src/attach/free-name.ts';
import { hostEndOf, refuseHostsOwn } from '../../src/attach/hosts-own.ts';
import { prepareIpam, removeAndRelease } from '../../src/attach/ipam.ts';
import { requestedMac } from '../../src/attach/mac.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { getLink } from '../../src/netlink/rtnl/link.ts';
import { definePlugin } from '../../src/plugin/define.ts';
import { checkTap } from './check.ts';
import { TapConf, validateTapConf } from './config.ts';
import { configureTap, makeTap } from './kernel.ts';
import { repairTap } from './repair.ts';
import { renderTap } from './report.ts';
import { probeTap } from './status.ts';

/** Kinds of devices that this plugin makes; the kernel calls a tap by the name of its driver. */
const KINDS = ['tun', 'macvtap'];

/** Makes a tap in the container, for a program such as a virtual machine. */
export const tap = definePlugin({
  name: 'tap',
  config: TapConf,
  netns: 'required',

  async add(call) {
    validateTapConf(call.conf);
    const mac = requestedMac(call, call.conf.mac);
    refuseTakenName(call);
    const askIpam = prepareIpam(call);
    // The tap first: an IPAM plugin may need the interface.
    const link = makeTap(call, mac);
    const ipam = await askIpam();
    const planned = planLayer3(ipam ?? {});
    refuseHostsOwn(call, hostEndOf(link), planned.ips);
    configureTap(call, link, planned);
    return renderTap(call, getLink(call.container, link.index), ipam);
  },

  async check(call) {
    const { conf, prevResult } = call;
    validateTapConf(conf);
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).check();
    if (prevResult === undefined) {
      throw new CniError(ErrorCode.invalidConfig, 'Cannot check attachment: the request has no "prevResult"');
    }
    checkTap(call, prevResult);
  },

  repair: repairTap,

  async del(call) {
    await removeAndRelease(call, 'del', release => removeDevices(call, KINDS, release));
  },

  async gc(call) {
    const type = call.conf.ipam?.type;
    // The kernel deletes taps with their namespace.
    if (type && call.kept !== undefined) await call.delegate(type).gc();
  },

  async status(call) {
    validateTapConf(call.conf);
    probeTap(call);
    if (call.conf.ipam?.type) await call.delegate(call.conf.ipam.type).status();
  },
});
