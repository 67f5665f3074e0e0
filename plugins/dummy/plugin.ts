// What does the dummy plugin do for each verb?

import { callIpam } from '../../src/attach/addressing.ts';
import { interfaceExists } from '../../src/attach/container.ts';
import {
  addDevice,
  checkDevice,
  removeDevices,
  renderDevice,
  repairDevice,
} from '../../src/attach/device.ts';
import { requestedMac } from '../../src/attach/mac-and-mtu.ts';
import { requireLinkKind } from '../../src/netlink/rtnl/kinds.ts';
import { type Link, makeLink, removeLink } from '../../src/netlink/rtnl/link.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { requireReadiness } from '../../src/plugin/steps.ts';
import { DummyConf, validateDummyConf } from './config.ts';

/** Gives a container a device that leads nowhere, for addresses that must exist in it. */
export const plugin = definePlugin({
  name: 'dummy',
  config: DummyConf,
  netns: 'required',
  validate: validateDummyConf,

  async add(call) {
    const mac = requestedMac(call, call.conf.mac);
    return renderDevice(call, await addDevice(call, () => createDummy(call, mac), { shared: false }));
  },

  async check(call) {
    await callIpam(call, 'check');
    checkDevice(call, { kind: 'dummy', mtu: call.conf.mtu });
  },

  async repair(call) {
    await repairDevice(call, { kind: 'dummy', mtu: call.conf.mtu });
  },

  del: call => removeDevices(call, 'dummy'),
  // The kernel deletes devices with the namespace.
  gc: call => callIpam(call, 'gc'),

  async status(call) {
    await requireReadiness(() => requireLinkKind(call.host, 'dummy'));
    await callIpam(call, 'status');
  },
});

/**
 * Makes the device, down, under its final name. Registers its own undo step.
 * @throws CniError 4 when the container already has an interface of that name
 */
function createDummy(call: Call<DummyConf>, mac: string | undefined): Link {
  const { conf, container, env } = call;
  const link = makeLink(container, { name: env.ifname, kind: 'dummy', mac, mtu: conf.mtu || undefined });
  if (link === undefined) throw interfaceExists(env.ifname, call.containerNetns);
  call.onFailure(`delete device "${link.name}"`, () => removeLink(container, link.index));
  return link;
}
