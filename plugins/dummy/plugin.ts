// What does the dummy plugin do for each verb?
import { askIpam } from '../../src/attach/ipam.ts';
import { requestedMac } from '../../src/attach/mac.ts';
import { CniError, describeError, ErrorCode } from '../../src/cni/errors.ts';
import { requireLinkKind } from '../../src/netlink/rtnl/supported.ts';
import { definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { DummyConf, validateDummyConf } from './config.ts';
import { bringUp, checkDummy, createDummy, removeDummy, repairDummy } from './kernel.ts';
import { planDummy, planFromResult } from './plan.ts';
import { renderDummy } from './report.ts';

/** Gives a container a device that leads nowhere, for addresses that must exist in it. */
export const dummy = definePlugin({
  name: 'dummy',
  config: DummyConf,
  netns: 'required',

  async add(call) {
    const { conf } = call;
    validateDummyConf(conf);
    const link = createDummy(call, requestedMac(call, conf.mac));
    // IPAM plugins such as dhcp use the interface, so it exists before they are called.
    const ipam = await askIpam(call);
    const addressing = ipam && planDummy(ipam, conf.ipam?.type);
    bringUp(call, link, addressing);
    return renderDummy(call, link, ipam, addressing);
  },

  async check(call) {
    const { conf, env, prevResult } = call;
    validateDummyConf(conf);
    const type = conf.ipam?.type;
    if (type) await call.delegate(type).check();
    if (prevResult === undefined) {
      throw new CniError(ErrorCode.invalidConfig, 'Cannot check attachment: the request has no "prevResult"');
    }
    checkDummy(call, prevResult, type ? planFromResult(prevResult, env.ifname, type) : undefined);
  },

  repair(call) {
    const { conf, env, prevResult } = call;
    const type = conf.ipam?.type;
    const nothing = { ips: [], routes: [] };
    return repairDummy(call, type && prevResult ? planFromResult(prevResult, env.ifname, type) : nothing);
  },

  async del(call) {
    const type = call.conf.ipam?.type;
    // The address is released last: it must not be reused while the device has it.
    await tryAll([() => removeDummy(call), () => (type ? call.delegate(type).del() : undefined)]);
  },

  async gc(call) {
    // The kernel deletes devices with the namespace.
    const type = call.conf.ipam?.type;
    if (type) await call.delegate(type).gc();
  },

  async status(call) {
    validateDummyConf(call.conf);
    try {
      requireLinkKind(call.host, 'dummy');
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, `Cannot attach containers: ${describeError(cause)}`, {
        cause,
      });
    }
    const type = call.conf.ipam?.type;
    if (type) await call.delegate(type).status();
  },
});
