// How is the tap made and configured in the kernel?

import { writeFileSync } from 'node:fs';
import type { ContainerAddressing } from '../../src/attach/addressing.ts';
import { addressContainer, ignoreNeighbours } from '../../src/attach/container.ts';
import { derivedMac } from '../../src/attach/mac.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { addRoutes } from '../../src/attach/routes.ts';
import { makeUpper } from '../../src/attach/upper/create.ts';
import { renderOwner } from '../../src/cni/attachment.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import {
  ALIAS_MAX_BYTES,
  findLink,
  getLink,
  type Link,
  removeLink,
  setLink,
} from '../../src/netlink/rtnl/link.ts';
import { IFF_UP, MACVLAN_MODES } from '../../src/netlink/rtnl/link-attrs.ts';
import type { Call } from '../../src/plugin/define.ts';
import { interimName } from '../../src/plugin/first-names.ts';
import { inNetns, type Netns } from '../../src/sys/netns.ts';
import { createTap, type NewTap } from '../../src/sys/tun.ts';
import { isMacvtap, type TapConf } from './config.ts';

/**
 * Makes the tap in the container under its final name, where it is down, with its hardware address, MTU and bridge. Registers its
 * own undo step.
 * @param requested hardware address; otherwise that of a macvtap, which its neighbours see, follows from the attachment, and the kernel
 * chooses the one of a tap, which only its program does
 */
export function makeTap(call: Call<TapConf>, requested: string | undefined): Link {
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

/**
 * Addresses the tap and brings it up. The other end is a program, so no duplicate of an IPv6 address can exist on its link; and
 * without that program there is no carrier, so detection would never end.
 */
export function configureTap(call: Call<TapConf>, link: Link, { ips, routes }: ContainerAddressing): void {
  if (ips.length === 0) {
    setLink(call.container, link.index, { up: true });
    return;
  }
  ignoreNeighbours(call, link.name);
  addressContainer(
    call,
    link,
    ips.map(({ cidr }) => cidr),
    false,
  );
  addRoutes(call.container, link, routes);
}

/** The device of the host that a macvtap is made on. @throws CniError 7 when it is missing, down or too small */
export function findMaster({ host, conf }: Call<TapConf>): Link {
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
  return new CniError(ErrorCode.invalidConfig, `Cannot attach tap: ${why}`);
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
  const { ifname, multiQueue, owner, group } = tap;
  const argv = [
    ...['ip', 'tuntap', 'add', 'mode', 'tap', 'name', ifname, 'vnet_hdr'],
    ...(multiQueue ? ['multi_queue'] : []),
    ...(owner === undefined ? [] : ['user', String(owner)]),
    ...(group === undefined ? [] : ['group', String(group)]),
  ];
  const { exitCode, stderr } = inNetns(netns, () => {
    writeContext(context);
    try {
      return Bun.spawnSync(argv, { stdin: 'ignore', stdout: 'ignore', stderr: 'pipe', timeout: DEADLINE_MS });
    } finally {
      writeContext('');
    }
  });
  if (exitCode === 0) return;
  throw new CniError(
    ErrorCode.internal,
    `Cannot create tap "${ifname}" in context "${context}": "ip tuntap" failed: ${stderr.toString().trim() || 'no message'}`,
  );
}

function writeContext(context: string): void {
  try {
    // An empty line takes the context back.
    writeFileSync(NEXT_CONTEXT, context || '\n');
  } catch (cause) {
    if (context === '') return;
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "selinuxContext" "${context}": ${(cause as NodeJS.ErrnoException).code}; is SELinux enabled, and does it have that context?`,
      { cause },
    );
  }
}
