// How is the tap made, configured and deleted in the kernel?

import type { ContainerAddressing } from '../../src/attach/addressing.ts';
import { addressContainer } from '../../src/attach/container.ts';
import { derivedMac } from '../../src/attach/mac.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { addRoutes } from '../../src/attach/routes.ts';
import { findOwner, renderOwner } from '../../src/cni/attachment.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { MACVLAN_MODES } from '../../src/netlink/rtnl/kinds/macvlan.ts';
import {
  ALIAS_MAX_BYTES,
  findLink,
  getLink,
  type Link,
  removeLink,
  setLink,
} from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import { createUpper } from '../../src/netlink/rtnl/upper.ts';
import type { Call } from '../../src/plugin/define.ts';
import { deleteInContainer } from '../../src/plugin/delete-devices.ts';
import { inNetns } from '../../src/sys/netns.ts';
import { createTap } from '../../src/sys/tun.ts';
import { isMacvtap, type TapConf } from './config.ts';
import { createTapInContext } from './selinux.ts';

/** Kinds of devices that this plugin makes; the kernel calls a tap by the name of its driver. */
const KINDS = ['tun', 'macvtap'];

/**
 * Makes the tap in the container under its final name, where it is down, with its hardware address, MTU and bridge. Registers its
 * own undo step.
 * @param requested hardware address; otherwise that of a macvtap, which its neighbours see, follows from the attachment, and the kernel
 * chooses the one of a tap, which only its program does
 */
export function makeTap(call: Call<TapConf>, requested: string | undefined): Link {
  const { container, containerNetns: netns, conf, env } = call;
  const { multiQueue, owner, group, selinuxContext } = conf;
  const master = conf.bridge ? findBridge(call, conf.bridge).index : undefined;
  let mac = requested;
  if (isMacvtap(conf)) {
    const parent = findMaster(call);
    // In mode `passthru`, the kernel gives it the address of the device that it replaces.
    if (conf.mode !== 'passthru') mac ??= derivedMac(attachmentOf(call), parent.mac ?? '');
    const data = { mode: MACVLAN_MODES[conf.mode as keyof typeof MACVLAN_MODES] };
    const upper = {
      name: env.ifname,
      kind: 'macvtap',
      data,
      lower: parent.index,
      netnsFd: netns.fd,
    } as const;
    createUpper(call.host, upper);
  } else {
    const tap = { ifname: env.ifname, multiQueue, owner, group };
    if (selinuxContext) createTapInContext(netns, tap, selinuxContext);
    else inNetns(netns, () => createTap(tap));
  }
  call.onFailure(`delete tap "${env.ifname}"`, () => removeLink(container, env.ifname));
  const { index } = getLink(container, env.ifname);
  const alias = renderOwner(attachmentOf(call), ALIAS_MAX_BYTES);
  setLink(container, index, { mac, mtu: conf.mtu || undefined, alias });
  if (master !== undefined) setLink(container, index, { master });
  return getLink(container, index);
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
  addressContainer(
    call,
    link,
    ips.map(({ cidr }) => cidr),
    false,
  );
  addRoutes(call.container, link, routes);
}

/** Deletes the tap of an attachment; one of another attachment, and an interface of another kind, stay. */
export function removeTap(call: Call<TapConf>): void {
  if (call.findContainerNetns() === undefined) return;
  const { container, env, log } = call;
  const link = findLink(container, env.ifname);
  if (link === undefined) return;
  const { alias } = link.attrs;
  const isOthers =
    findOwner(alias) !== undefined && alias !== renderOwner(attachmentOf(call), ALIAS_MAX_BYTES);
  if (KINDS.includes(link.kind) && !isOthers) {
    deleteInContainer(call, [link.index]);
    return;
  }
  const why = isOthers ? `it belongs to "${alias}"` : `it is of kind "${link.kind}", not a tap`;
  log.warn(`Cannot delete "${env.ifname}": ${why}`);
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
