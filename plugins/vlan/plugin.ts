// What does the vlan plugin do for each verb?

import { callIpam } from '../../src/attach/addressing.ts';
import { addDevice, removeDevices, renderDevice, stateOf } from '../../src/attach/device.ts';
import { requestedMac } from '../../src/attach/mac-and-mtu.ts';
import {
  checkUpper,
  findMaster,
  makeUpper,
  probeUpper,
  removeStaleUppers,
  repairUpper,
} from '../../src/attach/upper.ts';

import { digestOf } from '../../src/cni/attachment.ts';
import { IFNAME_MAX_BYTES } from '../../src/net/interface.ts';
import type { UpperData } from '../../src/netlink/rtnl/kinds.ts';
import { findLink, kindDataOf, type Link, setLink, VLAN_PROTOCOLS } from '../../src/netlink/rtnl/link.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { confirm } from '../../src/plugin/steps.ts';
import { inNetns } from '../../src/sys/netns.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import { protocolOf, VlanConf, validateVlanConf } from './config.ts';

/** Connects a container to a VLAN of a host interface. */
export const plugin = definePlugin({
  name: 'vlan',
  config: VlanConf,
  netns: 'required',
  validate: validateVlanConf,

  async add(call) {
    const probe = call.conf.detectConflicts;
    const addressed = await addDevice(call, () => createVlan(call), { shared: true, probe });
    return renderDevice(call, addressed, call.prevResult);
  },

  async check(call) {
    await callIpam(call, 'check');
    checkVlan(call);
  },

  async repair(call) {
    raiseOuter(call);
    await repairUpper(call, 'vlan', outerOf(call));
  },

  del: call => removeDevices(call, 'vlan'),
  gc: call => removeStaleUppers(call, 'vlan'),

  async status(call) {
    await probeUpper(call, 'vlan');
    await callIpam(call, 'status');
  },
});

/**
 * Compares devices, master, addresses and routes with the result of ADD, and the VLANs with the configuration.
 * @throws Error naming the first difference, CniError 7 without a result
 */
function checkVlan(call: Call<VlanConf>): void {
  const [lowest, inner] = planTags(call.conf, call.env.ifname);
  const link = checkUpper(call, 'vlan', outerOf(call));
  if (inner) checkTag(inner, link);
  if (lowest) checkTag(lowest, outerOf(call)(link));
}

/** Finds the device on the master: with two tags, the interface is on the outer one. */
function outerOf({ conf, container, env }: Call<VlanConf>): (link: Link) => Link {
  const [, inner] = planTags(conf, env.ifname);
  return link => (inner && findLink(container, link.peer)) || link;
}

function checkTag({ name, data }: PlannedTag, link: Link): void {
  const found = kindDataOf(link, 'vlan');
  confirm(`VLAN of "${name}"`, data.id, found?.id);
  const [protocol] = Object.entries(VLAN_PROTOCOLS).find(([, number]) => number === found?.protocol) ?? [];
  const [expected] = Object.entries(VLAN_PROTOCOLS).find(([, number]) => number === data.protocol) ?? [];
  confirm(`protocol of VLAN ${data.id} of "${name}"`, expected, protocol);
  for (const key of ['egressQos', 'ingressQos'] as const) {
    for (const mapping of data[key] ?? []) {
      const to = found?.[key]?.find(one => one.from === mapping.from)?.to ?? 0;
      confirm(`${key} of "${name}" from ${mapping.from}`, mapping.to, to);
    }
  }
}

/**
 * Creates a device for each tag in the container, the last one with the interface's name, down and without addresses. Registers its
 * own undo steps.
 * @throws CniError 7 when the master is missing, too small or has the VLAN already, 11 when it is down
 */
function createVlan(call: Call<VlanConf>): Link {
  const { conf, container } = call;
  const mac = requestedMac(call, call.conf.mac);
  const master = findMaster(call);
  const [lowest, inner] = planTags(conf, call.env.ifname);
  if (lowest === undefined) throw new Error('Cannot create interface: there is no VLAN');
  const common = { kind: 'vlan', mtu: conf.mtu } as const;
  if (inner === undefined) return makeUpper(call, master, { ...common, ...lowest, mac });
  const outer = makeUpper(call, master, { ...common, ...lowest });
  // It only carries frames; with addresses of its own it would answer to a VLAN that the container is not in.
  inNetns(call.containerNetns, () => trySysctl(`net/ipv6/conf/${outer.name}/disable_ipv6`, '1'));
  setLink(container, outer.index, { up: true });
  return makeUpper(call, { link: outer, socket: container }, { ...common, ...inner, mac });
}

/** Brings up the outer one of two devices: the kernel took the interface down with it, and does not bring that up before. */
function raiseOuter({ conf, container, env }: Call<VlanConf>): void {
  const [lowest, inner] = planTags(conf, env.ifname);
  const outer = inner && lowest && findLink(container, lowest.name);
  if (outer?.kind === 'vlan' && stateOf(outer) === 'down') setLink(container, outer.index, { up: true });
}

/** A device for one tag, from the master outwards: the last one is the container's interface. */
interface PlannedTag {
  readonly name: string;
  readonly data: UpperData['vlan'];
}

/**
 * One device for each tag. The outer one of two is also in the container, so that it ends with the attachment. Priorities are
 * those of the interface's own tag.
 */
export function planTags(conf: VlanConf, ifname: string): PlannedTag[] {
  const ids = [conf.vlanId].flat();
  const { egressQosMap, ingressQosMap } = conf;
  return ids.map((id, i) => {
    const isOutermost = i === 0;
    const isInterface = i === ids.length - 1;
    return {
      name: isInterface ? ifname : outerName(ifname, id),
      data: {
        id,
        protocol: VLAN_PROTOCOLS[isOutermost ? protocolOf(conf) : '802.1q'],
        ...(isInterface && egressQosMap?.length ? { egressQos: egressQosMap } : {}),
        ...(isInterface && ingressQosMap?.length ? { ingressQos: ingressQosMap } : {}),
      },
    };
  });
}

/** `net1-100`: the interface, and the VLAN below it. Of a long name only a digest has room: cut names of two interfaces could be the same. */
function outerName(ifname: string, id: number): string {
  const name = `${ifname}-${id}`;
  return Buffer.byteLength(name) > IFNAME_MAX_BYTES ? `${digestOf(ifname).slice(-8)}-${id}` : name;
}
