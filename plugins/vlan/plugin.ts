// What does the vlan plugin do for each verb?
import { addDevice } from '../../src/attach/device/address.ts';
import { removeDevices } from '../../src/attach/device/remove.ts';
import { repairDevice } from '../../src/attach/device/repair.ts';
import { renderDevice } from '../../src/attach/device/report.ts';
import { removeAndRelease } from '../../src/attach/ipam.ts';
import { removeStaleUppers } from '../../src/attach/upper/stale.ts';
import { probeUpper } from '../../src/attach/upper/status.ts';
import { definePlugin } from '../../src/plugin/define.ts';
import { checkVlan } from './check.ts';
import { VlanConf, validateVlanConf } from './config.ts';
import { createVlan, raiseOuter } from './kernel.ts';

/** Connects a container to a VLAN of a host interface. */
export const vlan = definePlugin({
  name: 'vlan',
  config: VlanConf,
  netns: 'required',

  async add(call) {
    validateVlanConf(call.conf);
    const probe = call.conf.detectConflicts;
    const addressed = await addDevice(call, () => createVlan(call), { shared: true, probe });
    return renderDevice(call, addressed, call.prevResult);
  },

  async check(call) {
    const { conf } = call;
    validateVlanConf(conf);
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).check();
    checkVlan(call);
  },

  repair(call) {
    raiseOuter(call);
    repairDevice(call, 'vlan');
  },

  async del(call) {
    await removeAndRelease(call, 'del', release => removeDevices(call, 'vlan', release));
  },

  async gc(call) {
    const { kept } = call;
    if (kept === undefined) return;
    await removeAndRelease(call, 'gc', release => removeStaleUppers(call, 'vlan', kept, release));
  },

  async status(call) {
    const { conf } = call;
    validateVlanConf(conf);
    probeUpper(call, 'vlan');
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).status();
  },
});
