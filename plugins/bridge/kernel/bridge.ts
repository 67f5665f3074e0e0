// How is the bridge created, adopted and removed?

import { AUTO_MTU, resolveMtu } from '../../../src/attach/mtu.ts';
import { runDir } from '../../../src/cni/directories.ts';
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { renderMac } from '../../../src/net/mac.ts';
import { isNetlinkError } from '../../../src/netlink/errors.ts';
import { listAddresses, RT_SCOPE_LINK } from '../../../src/netlink/rtnl/addr.ts';
import { listBridgePorts, setGroupFwdMask } from '../../../src/netlink/rtnl/bridge-vlan.ts';
import {
  createLink,
  findLink,
  getLink,
  type Link,
  listLinks,
  removeLink,
  setLink,
} from '../../../src/netlink/rtnl/link.ts';
import { IFF_PROMISC, IFF_UP } from '../../../src/netlink/rtnl/link-attrs.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { withPluginLock } from '../../../src/plugin/lock.ts';
import { Errno } from '../../../src/sys/errno.ts';
import { ownNetns } from '../../../src/sys/netns.ts';
import { trySysctl } from '../../../src/sys/sysctl.ts';
import type { BridgeConf } from '../config.ts';
import { wantsFiltering } from '../plan.ts';
import { ensureFiltering, refuseVlans, requireFiltering } from './vlan.ts';

/** Alias of bridges that this plugin created and may therefore remove once nothing uses them. */
const CREATED_BY_US = 'catena:bridge';

/** True for a bridge that this plugin created, even if it was killed before it could set the alias. */
export function isOurs({ attrs: { alias }, mac }: Link): boolean {
  return alias === CREATED_BY_US || (!alias && isBridgeMac(mac));
}

/**
 * Returns the bridge, up. A missing one is created, with a hardware address of its own so that the address does not change with
 * its ports; an existing one keeps its settings. Registers its own undo steps. Call under `withBridgeLock`.
 * @throws CniError 7 when the name belongs to a device of another kind, 2 when VLANs are requested and the kernel lacks them
 * Same as: `ip link add <name> type bridge && ip link set <name> up`
 */
export function ensureBridge(call: Call<BridgeConf>): Link {
  const { conf, host } = call;
  const existing = findLink(host, conf.bridge);
  if (existing) return adoptBridge(call, existing);
  try {
    return createBridge(call);
  } catch (thrown) {
    // Another program created it first, so the bridge is not ours.
    if (isNetlinkError(thrown, Errno.EEXIST)) return adoptBridge(call, getLink(host, conf.bridge));
    throw thrown;
  }
}

/**
 * Deletes a bridge that this plugin created and on which nothing can depend: it has no port but the uplink, and no address but the
 * kernel's own. One with an address stays, as the reference's does: resolvers and registries of the host are bound to it. Call under
 * `withBridgeLock`.
 */
export function removeUnusedBridge(socket: NetlinkSocket, name: string, uplink: string | undefined): void {
  const bridge = findLink(socket, name);
  if (bridge?.kind !== 'bridge' || !isOurs(bridge) || hasAddress(socket, bridge)) return;
  const outer = uplink ? findLink(socket, uplink)?.index : undefined;
  if (listBridgePorts(socket, bridge.index).every(({ index }) => index === outer))
    removeLink(socket, bridge.index);
}

function hasAddress(socket: NetlinkSocket, { index }: Link): boolean {
  return listAddresses(socket, index).some(({ scope }) => scope !== RT_SCOPE_LINK);
}

/**
 * Rejects an existing device that cannot serve as the bridge.
 * @throws CniError 7, or 2 when VLANs are requested and the kernel lacks them
 */
export function requireBridge(conf: BridgeConf, link: Link): void {
  if (link.kind !== 'bridge') {
    const found = link.kind ? `of kind "${link.kind}"` : 'not a bridge';
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "${link.name}" as bridge: a device of that name exists and is ${found}`,
    );
  }
  if (wantsFiltering(conf)) requireFiltering(conf, link, isOurs(link));
}

/**
 * The MTU of a port for a container, in bytes; 0 for the kernel's default. `auto` is at most that of the bridge and of its ports that
 * lead elsewhere, such as a tunnel: none of them says that a packet was too large.
 */
export function portMtuOf({ conf, host }: Call<BridgeConf>, bridge: Link): number {
  const wanted = resolveMtu(host, conf.mtu, conf.uplinkInterface);
  if (conf.mtu !== AUTO_MTU) return wanted;
  const ports = listLinks(host).filter(
    ({ attrs, master }) => master === bridge.index && !attrs.alias?.startsWith('catena:'),
  );
  return Math.min(wanted || bridge.mtu, bridge.mtu, ...ports.map(({ mtu }) => mtu));
}

function createBridge(call: Call<BridgeConf>): Link {
  const { conf, host } = call;
  const { bridge: name, promiscMode, groupFwdMask } = conf;
  const mtu = resolveMtu(host, conf.mtu, conf.uplinkInterface);
  const vlanFiltering = wantsFiltering(conf) || undefined;
  try {
    createLink(host, { name, kind: 'bridge', mac: randomBridgeMac(), mtu: mtu || undefined, vlanFiltering });
  } catch (thrown) {
    if (vlanFiltering && isNetlinkError(thrown, Errno.EOPNOTSUPP)) throw refuseVlans(conf, thrown);
    throw thrown;
  }
  call.onFailure(`remove bridge "${name}"`, () => withBridgeLock(name, () => removeFailedBridge(host, name)));
  trySysctl(`net/ipv6/conf/${name}/accept_ra`, '0');
  // During duplicate address detection of its link-local address (one second) the host could not resolve containers.
  trySysctl(`net/ipv6/conf/${name}/accept_dad`, '0');
  const { index } = getLink(host, name);
  if (groupFwdMask) setGroupFwdMask(host, index, groupFwdMask);
  setLink(host, index, { up: true, alias: CREATED_BY_US, ...(promiscMode ? { promisc: true } : {}) });
  return getLink(host, index);
}

function adoptBridge(call: Call<BridgeConf>, link: Link): Link {
  const { conf, host } = call;
  requireBridge(conf, link);
  if (wantsFiltering(conf)) ensureFiltering(call, link);
  ensureGroupFwdMask(call, link);
  const wanted = { up: true, ...(conf.promiscMode ? { promisc: true } : {}) };
  const before = {
    up: (link.flags & IFF_UP) !== 0,
    ...(conf.promiscMode ? { promisc: (link.flags & IFF_PROMISC) !== 0 } : {}),
  };
  if (JSON.stringify(wanted) === JSON.stringify(before)) return link;
  // Containers that join before the undo rely on the new flags.
  const known = new Set(listBridgePorts(host, link.index).map(({ index }) => index));
  call.onFailure('restore the flags of the bridge', () =>
    withBridgeLock(link.name, () => {
      const joined = listBridgePorts(host, link.index).some(({ index }) => !known.has(index));
      if (!joined) setLink(host, link.index, before);
    }),
  );
  setLink(host, link.index, wanted);
  return link;
}

/** Has the bridge forward the configured groups. Registers its own undo step. */
export function ensureGroupFwdMask(call: Call<BridgeConf>, link: Link): void {
  const { conf, host } = call;
  const before = groupFwdMaskOf(link);
  if (!conf.groupFwdMask || conf.groupFwdMask === before) return;
  call.onFailure(`restore the groups that "${link.name}" forwards`, () => {
    if (findLink(host, link.index)) setGroupFwdMask(host, link.index, before);
  });
  setGroupFwdMask(host, link.index, conf.groupFwdMask);
}

/** The link-local groups that the bridge forwards, one bit each. */
export function groupFwdMaskOf(bridge: Link): number {
  const data = bridge.attrs.linkinfo?.data;
  if (data === undefined || data instanceof Uint8Array || !('groupFwdMask' in data)) return 0;
  return data.groupFwdMask ?? 0;
}

/** Removes a bridge that a failed ADD created, even if its alias was not set yet. */
function removeFailedBridge(host: NetlinkSocket, name: string): void {
  const bridge = findLink(host, name);
  if (bridge && listBridgePorts(host, bridge.index).length === 0) removeLink(host, bridge.index);
}

/** Prefix of the hardware addresses of bridges that this plugin creates: locally administered and unicast. */
const OURS = [0xca, 0x7e];

/**
 * An address for a bridge, which identifies it as ours before it has its alias: the kernel accepts an alias only for an existing
 * device, and the creating process may be killed in between.
 */
function randomBridgeMac(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes.set(OURS);
  return renderMac(bytes);
}

/** Whether an address may come from {@link randomBridgeMac}. */
function isBridgeMac(mac: string | undefined): boolean {
  return mac?.startsWith(`${OURS.map(byte => byte.toString(16)).join(':')}:`) === true;
}

/** A locally administered unicast address. */
export function randomMac(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes[0] = ((bytes[0] ?? 0) & 0xfc) | 0x02;
  return renderMac(bytes);
}

/**
 * Runs a step during which no other process of ours may create or remove the bridge. Otherwise attaching a port could race with
 * removing the bridge after the last one.
 * @throws CniError 11 when the lock is not available in time
 */
export function withBridgeLock<T>(name: string, step: () => T): T {
  return withPluginLock(`${runDir()}/bridge-${ownNetns().ino}-${name}.lock`, step);
}

/** Alias of both ends of the pairs that this plugin creates to carry a VLAN's gateway. */
export const GATEWAY_PORT_ALIAS = 'catena:gateway';
