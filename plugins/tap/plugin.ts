// What does the tap plugin do for each verb?
import { existsSync } from 'node:fs';
import { checkMac, stateOf } from '../../src/attach/check.ts';
import { checkLayer3, findDevice, raise, requirePrevResult } from '../../src/attach/device/check.ts';
import { addressesFromResult, planLayer3 } from '../../src/attach/device/plan.ts';
import { removeDevices } from '../../src/attach/device/remove.ts';
import { describeInterface, onlyInterfaceHas } from '../../src/attach/device/report.ts';
import { refuseTakenName } from '../../src/attach/free-name.ts';
import { hostEndOf, refuseHostsOwn } from '../../src/attach/hosts-own.ts';
import { dnsOf, prepareIpam, removeAndRelease } from '../../src/attach/ipam.ts';
import { requestedMac } from '../../src/attach/mac.ts';
import { requireReadiness } from '../../src/attach/readiness.ts';
import { checkRoutes, putRoutesRight } from '../../src/attach/routes.ts';
import { defined } from '../../src/cni/defined.ts';
import type { Result } from '../../src/cni/result.ts';
import type { ValuesOf } from '../../src/netlink/codec/attrs.ts';
import { findLink, getLink, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import { MACVLAN_MODES, TUN_TYPE_TAP, type tun } from '../../src/netlink/rtnl/link-attrs.ts';
import { requireLinkChanges, requireLinkKind } from '../../src/netlink/rtnl/supported.ts';
import { upperDataOf } from '../../src/netlink/rtnl/upper.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { inNetns } from '../../src/sys/netns.ts';
import { readTapNode } from '../../src/sys/sysfs.ts';
import { requireTaps } from '../../src/sys/tun.ts';
import { isMacvtap, TapConf, validateTapConf } from './config.ts';
import { configureTap, findMaster, makeTap } from './kernel.ts';

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
    const { conf } = call;
    validateTapConf(conf);
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).check();
    const prevResult = requirePrevResult(call);
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

/**
 * Restores the tap's state, its bridge and the routes.
 * @throws Error when the tap is missing: only a new ADD can make it
 */
async function repairTap({ container, conf, env, prevResult }: Call<TapConf>): Promise<void> {
  const link = findLink(container, env.ifname);
  if (!prevResult || !link) {
    throw new Error(`Cannot repair the attachment: only DEL and ADD can recreate tap "${env.ifname}"`);
  }
  const { routes } = addressesFromResult(prevResult, env.ifname, env.netns);
  await tryAll([
    () => {
      raise(container, link);
    },
    () => {
      const bridge = conf.bridge ? findLink(container, conf.bridge) : undefined;
      if (bridge && bridge.index !== link.master) setLink(container, link.index, { master: bridge.index });
    },
    () =>
      mend(
        () => checkRoutes(container, link, routes),
        () => putRoutesRight(container, link, routes),
      ),
  ]);
}

/** The result: one interface, and IPAM's addresses and routes. */
function renderTap(call: Call<TapConf>, link: Link, ipam: Result | undefined): Result {
  const deviceNode = isMacvtap(call.conf) ? readNode(call) : undefined;
  return {
    ...ipam,
    interfaces: [{ ...describeInterface(call, link), ...defined({ deviceNode }) }],
    ...(ipam?.ips ? { ips: onlyInterfaceHas(ipam.ips) } : {}),
    ...defined({ dns: dnsOf(call.conf, ipam) }),
  };
}

/** The runtime, or its hook, makes a device node with this number in the container. */
function readNode({ containerNetns, env }: Call): string {
  return inNetns(containerNetns, () => readTapNode(env.ifname));
}

/** Where SELinux is mounted if it is enabled. */
const SELINUX = '/sys/fs/selinux/enforce';

/**
 * Looks for anything that would make ADD fail: the driver of taps, or of macvtaps and the master. Changes nothing.
 * @throws CniError 50
 */
function probeTap(call: Call<TapConf>): void {
  const { conf, host } = call;
  requireReadiness(() => {
    if (isMacvtap(conf)) {
      requireLinkKind(host, 'macvtap');
      findMaster(call);
      return;
    }
    requireLinkChanges(host);
    requireTaps();
    if (conf.selinuxContext && !existsSync(SELINUX)) {
      throw new Error('"selinuxContext" is set, but SELinux is not enabled');
    }
  });
}

/**
 * Compares the tap, its owner, bridge, addresses and routes with the configuration and the result of ADD.
 * @throws Error naming the first difference
 */
function checkTap(call: Call<TapConf>, prevResult: Result): void {
  const { container, conf, env } = call;
  const { name, reported, link } = findDevice(call, prevResult);
  if (isMacvtap(conf)) checkMacvtap(call, name, link);
  else checkOwners(conf, name, link);
  checkMac(name, reported, link);
  // A later plugin such as tuning may legitimately have changed it, and then says so in the result.
  if (reported?.mtu !== undefined) confirm(`MTU of ${name}`, reported.mtu, link.mtu);
  confirm(`state of ${name}`, 'up', stateOf(link));
  if (conf.bridge) confirm(`bridge of ${name}`, findLink(container, conf.bridge)?.index, link.master);
  checkLayer3(call, link, addressesFromResult(prevResult, env.ifname, env.netns));
}

function checkOwners({ owner, group, multiQueue }: TapConf, name: string, link: Link): void {
  confirm(`kind of ${name}`, 'tun', link.kind);
  const data = tunDataOf(link);
  // Before Linux 4.18 the kernel does not report them.
  if (data?.type === undefined) return;
  confirm(`kind of ${name}`, TUN_TYPE_TAP, data.type);
  confirm(`persistence of ${name}`, 1, data.persist);
  confirm(`owner of ${name}`, owner, data.owner);
  confirm(`group of ${name}`, group, data.group);
  confirm(`"multiQueue" of ${name}`, Number(multiQueue), data.multiQueue);
}

function checkMacvtap({ conf, host }: Call<TapConf>, name: string, link: Link): void {
  confirm(`kind of ${name}`, 'macvtap', link.kind);
  const wanted = MACVLAN_MODES[conf.mode as keyof typeof MACVLAN_MODES];
  confirm(`mode of ${name}`, wanted, upperDataOf(link, 'macvtap')?.mode);
  confirm(`master of ${name}`, findLink(host, conf.master ?? '')?.index, link.peer);
}

function tunDataOf(link: Link): ValuesOf<typeof tun> | undefined {
  const data = link.attrs.linkinfo?.data;
  return data === undefined || data instanceof Uint8Array ? undefined : (data as ValuesOf<typeof tun>);
}
