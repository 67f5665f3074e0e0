// What does the macvlan plugin do for each verb?
import { addressDevice } from '../../src/attach/device/address.ts';
import { releaseAddress, removeDevices } from '../../src/attach/device/remove.ts';
import { renderDevice } from '../../src/attach/device/report.ts';
import { interimName } from '../../src/attach/upper/create.ts';
import { removeStaleUppers } from '../../src/attach/upper/stale.ts';
import { probeUpper } from '../../src/attach/upper/status.ts';
import { definePlugin } from '../../src/plugin/define.ts';
import { checkMacvlan } from './check.ts';
import { MacvlanConf, validateMacvlanConf } from './config.ts';
import { createMacvlan } from './kernel.ts';
import { repairMacvlan } from './repair.ts';
import { refuseWireless } from './wireless.ts';

/** Connects a container to the link of a host interface, with a hardware address of its own. */
export const macvlan = definePlugin({
  name: 'macvlan',
  config: MacvlanConf,
  netns: 'required',

  async add(call) {
    validateMacvlanConf(call.conf);
    const link = createMacvlan(call);
    const addressed = await addressDevice(call, link, { shared: true });
    return renderDevice(call, addressed, call.prevResult);
  },

  async check(call) {
    const { conf } = call;
    validateMacvlanConf(conf);
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).check();
    checkMacvlan(call);
  },

  repair: repairMacvlan,

  async del(call) {
    // The address is released last: it must not be reused while the container still has it.
    await removeDevices(call, 'macvlan', () => releaseAddress(call), interimName(call));
  },

  async gc(call) {
    const type = call.conf.ipam?.type;
    const { kept } = call;
    if (kept === undefined) return;
    await removeStaleUppers(call, 'macvlan', kept, () => (type ? call.delegate(type).gc() : undefined));
  },

  async status(call) {
    const { conf } = call;
    validateMacvlanConf(conf);
    probeUpper(call, 'macvlan', { examine: refuseWireless });
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).status();
  },
});
