// What does the vlan plugin do for each verb?
import { addressDevice } from '../../src/attach/device/address.ts';
import { releaseAddress, removeDevices } from '../../src/attach/device/remove.ts';
import { repairDevice } from '../../src/attach/device/repair.ts';
import { renderDevice } from '../../src/attach/device/report.ts';
import { interimName } from '../../src/attach/upper/create.ts';
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
    const link = createVlan(call);
    const addressed = await addressDevice(call, link, { shared: true });
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
    // The address is released last: it must not be reused while the container still has it.
    await removeDevices(call, 'vlan', () => releaseAddress(call), interimName(call));
  },

  async gc(call) {
    const type = call.conf.ipam?.type;
    const { kept } = call;
    if (kept === undefined) return;
    await removeStaleUppers(call, 'vlan', kept, () => (type ? call.delegate(type).gc() : undefined));
  },

  async status(call) {
    const { conf } = call;
    validateVlanConf(conf);
    probeUpper(call, 'vlan');
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).status();
  },
});
