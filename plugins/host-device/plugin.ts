// What does the host-device plugin do for each verb?

import { ignoreNeighbours } from '../../src/attach/container.ts';
import { planLayer3 } from '../../src/attach/device/plan.ts';
import { refuseHostsOwn } from '../../src/attach/hosts-own.ts';
import { prepareIpam, removeAndRelease } from '../../src/attach/ipam.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { getLink } from '../../src/netlink/rtnl/link.ts';
import { listRules } from '../../src/netlink/rtnl/rule.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { findNetnsCookie } from '../../src/sys/netns-cookie.ts';
import { checkDevice } from './check.ts';
import { HostDeviceConf, selectorOf } from './config.ts';
import { writeDeviceInfo } from './device-info.ts';
import { returnStale } from './garbage.ts';
import { giveBack, giveBackUnrecorded } from './give-back.ts';
import type { Inside } from './identity.ts';
import { configure, copyRules } from './network.ts';
import { mergeNetworks, networkOf, type OwnNetwork, ownNetwork, rulesFor } from './plan.ts';
import { type DeviceRecord, findRecord, removeUnreadable, writeRecord } from './record.ts';
import { repairDevice } from './repair.ts';
import { pciAddressOf, renderDevice, renderUserspace } from './report.ts';
import { select } from './select.ts';
import { probeDevice } from './status.ts';
import { type Taken, take } from './take.ts';

/** Moves a device of the host into a container, and back. */
export const hostDevice = definePlugin({
  name: 'host-device',
  config: HostDeviceConf,
  netns: 'required',

  async add(call) {
    const askIpam = prepareIpam(call);
    // The device first: an IPAM plugin such as dhcp asks through it.
    const taken = take(call);
    if (taken.kind === 'userspace') {
      refuseNetworkOf(call);
      writeDeviceInfo(call, taken.pciAddress);
      return renderUserspace(call, taken.pciAddress, await askIpam());
    }
    ignoreNeighbours(call, taken.link.name);
    writeDeviceInfo(call, pciAddressOf(taken.link));
    const own = call.conf.useInterfaceNetwork ? copyNetwork(call, taken) : undefined;
    const ipam = await askIpam();
    const addressing = mergeNetworks(own && networkOf(own), ipam);
    const planned = planLayer3(ipam ?? {});
    refuseHostsOwn(call, { index: taken.lower }, planned.ips);
    await configure(call, taken.link, planned, own);
    if (own) copyRules(call, taken.record.rules);
    return renderDevice(call, getLink(call.container, taken.link.index), ipam, addressing);
  },

  async check(call) {
    const { conf, prevResult } = call;
    const selector = selectorOf(conf);
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).check();
    if (prevResult === undefined) {
      throw new CniError(ErrorCode.invalidConfig, 'Cannot check attachment: the request has no "prevResult"');
    }
    if (select(call.host, selector).kind !== 'userspace') checkDevice(call, prevResult);
  },

  async repair(call) {
    if (select(call.host, selectorOf(call.conf)).kind !== 'userspace') await repairDevice(call);
  },

  async del(call) {
    await removeAndRelease(call, 'del', release => tryAll([() => returnDevice(call), release]));
  },

  async gc(call) {
    const { kept } = call;
    if (kept === undefined) return;
    await removeAndRelease(call, 'gc', release => tryAll([() => returnStale(call, kept), release]));
  },

  async status(call) {
    const type = call.conf.ipam?.type;
    probeDevice(call);
    if (type) await call.delegate(type).status();
  },
});

async function returnDevice(call: Call<HostDeviceConf>): Promise<void> {
  const attachment = attachmentOf(call);
  const record = findRecord(call.environment, attachment);
  if (record) await giveBack(call, record, insideOf(call, record));
  else giveBackUnrecorded(call);
  removeUnreadable(call.environment, attachment);
}

/** A namespace at the same path may be that of another container. */
function insideOf(call: Call<HostDeviceConf>, { netns: { cookie } }: DeviceRecord): Inside | undefined {
  if (call.findContainerNetns() === undefined) return undefined;
  if (cookie !== undefined && findNetnsCookie(call.env.netns) !== cookie) return undefined;
  return { socket: call.container, netns: call.containerNetns };
}

/** What the device had on the host; the rules are noted in the record first, so that DEL can remove them. */
function copyNetwork(call: Call<HostDeviceConf>, { record, link }: Taken): OwnNetwork {
  const own = ownNetwork(record, link.index);
  record.rules = rulesFor(own.routes, listRules(call.host));
  writeRecord(call.environment, record);
  return own;
}

function refuseNetworkOf({ conf }: Call<HostDeviceConf>): void {
  if (!conf.useInterfaceNetwork) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    'Cannot use host-device configuration: "useInterfaceNetwork" needs an interface, but a program in user space drives this device',
  );
}
