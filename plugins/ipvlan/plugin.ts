// What does the ipvlan plugin do for each verb?
import { addDevice } from '../../src/attach/device/address.ts';
import { removeDevices } from '../../src/attach/device/remove.ts';
import { repairDevice } from '../../src/attach/device/repair.ts';
import { renderDevice } from '../../src/attach/device/report.ts';
import { removeAndRelease } from '../../src/attach/ipam.ts';
import { removeStaleUppers } from '../../src/attach/upper/stale.ts';
import { probeUpper } from '../../src/attach/upper/status.ts';
import { setUpper } from '../../src/netlink/rtnl/upper.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import { checkIpvlan, checkModeAndFlags } from './check.ts';
import { IpvlanConf, validateIpvlanConf } from './config.ts';
import { createIpvlan, dataOf } from './kernel.ts';
import { givenAddresses } from './plan.ts';

/** Connects a container to the link of a host interface, with that interface's hardware address. */
export const ipvlan = definePlugin({
  name: 'ipvlan',
  config: IpvlanConf,
  netns: 'required',

  async add(call) {
    const { conf, prevResult } = call;
    validateIpvlanConf(conf);
    const given = givenAddresses(conf, prevResult);
    // No probe for IPv4 addresses: the kernel passes an answer on by the address that it is for, and a probe has none.
    const addressed = await addDevice(call, () => createIpvlan(call), { given, shared: true });
    // Addresses that it took over are reported once, as those of this interface.
    return renderDevice(call, addressed, given ? { ...prevResult, ips: [], routes: [] } : prevResult);
  },

  async check(call) {
    const { conf } = call;
    validateIpvlanConf(conf);
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).check();
    checkIpvlan(call);
  },

  repair: repairIpvlan,

  async del(call) {
    await removeAndRelease(call, 'del', release => removeDevices(call, 'ipvlan', release));
  },

  async gc(call) {
    const { kept } = call;
    if (kept === undefined) return;
    await removeAndRelease(call, 'gc', release => removeStaleUppers(call, 'ipvlan', kept, release));
  },

  async status(call) {
    const { conf } = call;
    validateIpvlanConf(conf);
    // Without an IPAM plugin it takes master and addresses from the plugin before, which STATUS does not know.
    const isChained = !conf.master && !conf.ipam?.type;
    probeUpper(call, 'ipvlan', { isChained });
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).status();
  },
});

/**
 * Brings the device up, and restores its routes, mode and flags. The kernel has one mode and one set of flags for all interfaces of a
 * master.
 * @throws Error when the device is missing: only a new ADD can make it
 */
function repairIpvlan(call: Call<IpvlanConf>): void {
  const link = repairDevice(call, 'ipvlan');
  mend(
    () => checkModeAndFlags(call.conf, link),
    () => setUpper(call.container, link.index, 'ipvlan', dataOf(call.conf)),
  );
}
