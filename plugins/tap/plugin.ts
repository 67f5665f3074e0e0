// What does the tap plugin do for each verb?
import { existsSync, writeFileSync } from 'node:fs';
import { callIpam } from '../../src/attach/addressing.ts';
import { describeInterface, refuseTakenName } from '../../src/attach/container.ts';
import {
  addDevice,
  checkLayer3,
  checkReported,
  findDevice,
  removeDevices,
  renderLone,
  repairsOf,
  requirePrevResult,
} from '../../src/attach/device.ts';
import { derivedMac, requestedMac } from '../../src/attach/mac-and-mtu.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { makeUpper } from '../../src/attach/upper.ts';
import { interimName, renderOwner } from '../../src/cni/attachment.ts';
import { CniError, ErrorCode, invalidConfig } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import type { Result } from '../../src/cni/result.ts';
import { requireLinkChanges, requireLinkKind } from '../../src/netlink/rtnl/kinds.ts';
import {
  ALIAS_MAX_BYTES,
  findLink,
  getLink,
  IFF_UP,
  kindDataOf,
  type Link,
  MACVLAN_MODES,
  removeLink,
  setLink,
  TUN_TYPE_TAP,
} from '../../src/netlink/rtnl/link.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { confirm, requireReadiness, tryAll } from '../../src/plugin/steps.ts';
import { inNetns, type Netns } from '../../src/sys/netns.ts';
import { readTapNode } from '../../src/sys/sysctl.ts';
import { createTap, type NewTap, requireTaps } from '../../src/sys/tun.ts';
import { isMacvtap, TapConf, validateTapConf } from './config.ts';

/** Kinds of devices that this plugin makes; the kernel calls a tap by the name of its driver. */
const KINDS = ['tun', 'macvtap'];

/** Makes a tap in the container, for a program such as a virtual machine. */
export const plugin = definePlugin({
  name: 'tap',
  config: TapConf,
  netns: 'required',
  validate: validateTapConf,

  async add(call) {
    const mac = requestedMac(call, call.conf.mac);
    refuseTakenName(call);
    // The other end is a program, so no duplicate of an IPv6 address can exist on its link; and it starts after ADD.
    const { link, ipam } = await addDevice(call, () => makeTap(call, mac), { shared: false, carrier: false });
    return renderTap(call, getLink(call.container, link.index), ipam);
  },

  async check(call) {
    await callIpam(call, 'check');
    checkTap(call, requirePrevResult(call));
  },

  repair: repairTap,

  del: call => removeDevices(call, KINDS),

  async gc(call) {
    // The kernel deletes taps with their namespace.
    if (call.kept !== undefined) await callIpam(call, 'gc');
  },

  async status(call) {
    await probeTap(call);
    await callIpam(call, 'status');
  },
});

/**
 * Restores the tap and its bridge.
 * @throws Error when the tap is missing: only a new ADD can make it
 */
async function repairTap(call: Call<TapConf>): Promise<void> {
  const { container, conf, env, prevResult } = call;
  const link = findLink(container, env.ifname);
  if (!prevResult || !link) {
    throw new Error(`Cannot repair the attachment: only DEL and ADD can recreate tap "${env.ifname}"`);
  }
  await tryAll([
    ...repairsOf(call, link),
    () => {
      const bridge = conf.bridge ? findLink(container, conf.bridge) : undefined;
      if (bridge && bridge.index !== link.master) setLink(container, link.index, { master: bridge.index });
    },
  ]);
}

/** The result: one interface, and IPAM's addresses and routes. */
function renderTap(call: Call<TapConf>, link: Link, ipam: Result | undefined): Result {
  // The runtime, or its hook, makes a device node with this number in the container.
  const deviceNode = isMacvtap(call.conf)
    ? inNetns(call.containerNetns, () => readTapNode(call.env.ifname))
    : undefined;
  return renderLone(call, { ...describeInterface(call, link), ...defined({ deviceNode }) }, ipam);
}

/** Where SELinux is mounted if it is enabled. */
const SELINUX = '/sys/fs/selinux/enforce';

/**
 * Looks for anything that would make ADD fail: the driver of taps, or of macvtaps and the master. Changes nothing.
 * @throws CniError 50
 */
function probeTap(call: Call<TapConf>): Promise<void> {
  const { conf, host } = call;
  return requireReadiness(() => {
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
  const { container, conf } = call;
  const found = findDevice(call, prevResult);
  const { name, link } = found;
  if (isMacvtap(conf)) checkMacvtap(call, name, link);
  else checkOwners(conf, name, link);
  checkReported(found);
  if (conf.bridge) confirm(`bridge of ${name}`, findLink(container, conf.bridge)?.index, link.master);
  checkLayer3(call, link, prevResult);
}

function checkOwners({ owner, group, multiQueue }: TapConf, name: string, link: Link): void {
  confirm(`kind of ${name}`, 'tun', link.kind);
  const data = kindDataOf(link, 'tun');
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
  confirm(`mode of ${name}`, wanted, kindDataOf(link, 'macvtap')?.mode);
  confirm(`master of ${name}`, findLink(host, conf.master ?? '')?.index, link.peer);
}

/**
 * Makes the tap in the container under its final name, where it is down, with its hardware address, MTU and bridge. Registers its
 * own undo step.
 * @param requested hardware address; otherwise that of a macvtap, which its neighbours see, follows from the attachment, and the kernel
 * chooses the one of a tap, which only its program does
 */
function makeTap(call: Call<TapConf>, requested: string | undefined): Link {
  const { container, conf } = call;
  if (isMacvtap(conf)) {
    const parent = findMaster(call);
    // In mode `passthru`, the kernel gives it the address of the device that it replaces.
    const mac =
      requested ?? (conf.mode === 'passthru' ? undefined : derivedMac(attachmentOf(call), parent.mac ?? ''));
    const data = { mode: MACVLAN_MODES[conf.mode as keyof typeof MACVLAN_MODES] };
    const plan = { kind: 'macvtap', data, mac, mtu: conf.mtu } as const;
    return getLink(container, makeUpper(call, { link: parent, socket: call.host }, plan).index);
  }
  const bridge = conf.bridge ? findBridge(call, conf.bridge) : undefined;
  const master = bridge?.index;
  const index = createNamed(call);
  setLink(container, index, { mac: requested, mtu: conf.mtu || bridge?.mtu });
  if (master !== undefined) setLink(container, index, { master });
  return getLink(container, index);
}

/** As with other devices, DEL knows the tap by its first name until it has its own together with the alias. */
function createNamed(call: Call<TapConf>): number {
  const { container, containerNetns: netns, conf, env } = call;
  const { multiQueue, owner, group, selinuxContext } = conf;
  const tap = { ifname: interimName(attachmentOf(call)), multiQueue, owner, group };
  // An ADD that was killed may have left it; the runtime never runs two for one attachment.
  removeLink(container, tap.ifname);
  if (selinuxContext) createTapInContext(netns, tap, selinuxContext);
  else inNetns(netns, () => createTap(tap));
  let which: string | number = tap.ifname;
  call.onFailure(`delete tap "${env.ifname}"`, () => removeLink(container, which));
  which = getLink(container, tap.ifname).index;
  setLink(container, which, { name: env.ifname, alias: renderOwner(attachmentOf(call), ALIAS_MAX_BYTES) });
  return which;
}

/** The device of the host that a macvtap is made on. @throws CniError 7 when it is missing, down or too small */
function findMaster({ host, conf }: Call<TapConf>): Link {
  const { master = '', mtu } = conf;
  const link = findLink(host, master);
  if (link === undefined) throw refusal(`the host has no interface "${master}"`);
  if (!(link.flags & IFF_UP)) throw refusal(`"${master}" is down; bring it up`);
  if (mtu > link.mtu) throw refusal(`"mtu" is ${mtu}, but "${master}" has ${link.mtu}`);
  return link;
}

function findBridge({ container, env }: Call<TapConf>, name: string): Link {
  const link = findLink(container, name);
  if (link?.kind === 'bridge') return link;
  const what = link ? `is of kind "${link.kind}"` : 'does not exist';
  throw refusal(`"bridge" is "${name}", which ${what} in "${env.netns}"`);
}

function refusal(why: string): CniError {
  return invalidConfig(`Cannot attach tap: ${why}`);
}

// The kernel labels a tap with the context of the process that makes it, and ignores the context for new sockets
// (selinux_tun_dev_create in security/selinux/hooks.c). A process changes context when it executes a program, so one is needed:
// `ip`, as in the reference.

/** The context of the program that the thread executes next. */
const NEXT_CONTEXT = '/proc/thread-self/attr/exec';
const DEADLINE_MS = 10_000;

/**
 * Makes a tap as `createTap` does, in a context.
 * @throws CniError when this kernel has no SELinux, or the program fails; then there is no tap
 */
function createTapInContext(netns: Netns, tap: NewTap, context: string): void {
  const { exitCode, stderr } = inNetns(netns, () => {
    writeContext(context);
    try {
      return Bun.spawnSync(tapCommand(tap), {
        stdin: 'ignore',
        stdout: 'ignore',
        stderr: 'pipe',
        timeout: DEADLINE_MS,
      });
    } finally {
      writeContext('');
    }
  });
  if (exitCode === 0) return;
  throw new CniError(
    ErrorCode.internal,
    `Cannot create tap "${tap.ifname}" in context "${context}": "ip tuntap" failed: ${stderr.toString().trim() || 'no message'}`,
  );
}

/** The command line that makes a tap as `createTap` does. */
export function tapCommand({ ifname, multiQueue, owner, group }: NewTap): string[] {
  return [
    ...['ip', 'tuntap', 'add', 'mode', 'tap', 'name', ifname, 'vnet_hdr'],
    ...(multiQueue ? ['multi_queue'] : []),
    ...(owner === undefined ? [] : ['user', String(owner)]),
    ...(group === undefined ? [] : ['group', String(group)]),
  ];
}

function writeContext(context: string): void {
  try {
    // An empty line takes the context back.
    writeFileSync(NEXT_CONTEXT, context || '\n');
  } catch (cause) {
    if (context === '') return;
    throw invalidConfig(
      `Cannot use "selinuxContext" "${context}": ${(cause as NodeJS.ErrnoException).code}; is SELinux enabled, and does it have that context?`,
      { cause },
    );
  }
}
