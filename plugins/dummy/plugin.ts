// What does the dummy plugin do for each verb?
import { addDevice } from '../../src/attach/device/address.ts';
import { checkDevice } from '../../src/attach/device/check.ts';
import { removeDevices } from '../../src/attach/device/remove.ts';
import { renderDevice } from '../../src/attach/device/report.ts';
import { removeAndRelease } from '../../src/attach/ipam.ts';
import { requestedMac } from '../../src/attach/mac.ts';
import { requireReadiness } from '../../src/attach/readiness.ts';
import { requireLinkKind } from '../../src/netlink/rtnl/supported.ts';
import { definePlugin } from '../../src/plugin/define.ts';
import { DummyConf, validateDummyConf } from './config.ts';
import { createDummy, repairDummy } from './kernel.ts';

/** Gives a container a device that leads nowhere, for addresses that must exist in it. */
export const dummy = definePlugin({
  name: 'dummy',
  config: DummyConf,
  netns: 'required',

  async add(call) {
    const { conf } = call;
    validateDummyConf(conf);
    const mac = requestedMac(call, conf.mac);
    return renderDevice(call, await addDevice(call, () => createDummy(call, mac), { shared: false }));
  },

  async check(call) {
    const { conf } = call;
    validateDummyConf(conf);
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).check();
    checkDevice(call, { kind: 'dummy', mtu: conf.mtu });
  },

  repair: repairDummy,

  async del(call) {
    await removeAndRelease(call, 'del', release => removeDevices(call, 'dummy', release));
  },

  async gc(call) {
    // The kernel deletes devices with the namespace.
    const type = call.conf.ipam?.type;
    if (type) await call.delegate(type).gc();
  },

  async status(call) {
    validateDummyConf(call.conf);
    requireReadiness(() => {
      requireLinkKind(call.host, 'dummy');
    });
    const type = call.conf.ipam?.type;
    if (type) await call.delegate(type).status();
  },
});
