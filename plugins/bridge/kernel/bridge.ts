// How is the bridge created, adopted and removed?

import { AUTO_MTU, resolveMtu } from '../../../src/attach/mac-and-mtu.ts';
import { runDir } from '../../../src/cni/directories.ts';
import { CniError, ErrorCode, invalidConfig } from '../../../src/cni/errors.ts';
import { findUpper } from '../../../src/ipam/holders.ts';
import { randomHighMac, randomMac, renderMac } from '../../../src/net/interface.ts';
import { renderCidr } from '../../../src/net/ip.ts';
import { listAddresses, RT_SCOPE_LINK } from '../../../src/netlink/rtnl/addr.ts';
import {
  addPortVlans,
  listBridgePorts,
  removePortVlans,
  setGroupFwdMask,
  setVlanFiltering,
} from '../../../src/netlink/rtnl/bridge-vlan.ts';
import {
  createLink,
  findLink,
  getLink,
  IFF_LOOPBACK,
  IFF_PROMISC,
  IFF_UP,
  kindDataOf,
  type Link,
  listLinks,
  removeLink,
  setLink,
} from '../../../src/netlink/rtnl/link.ts';
import { isNetlinkError, type NetlinkSocket, tolerating } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { withPluginLock } from '../../../src/plugin/lock.ts';
import { confirm } from '../../../src/plugin/steps.ts';
import { Errno } from '../../../src/sys/errno.ts';
import { ownNetns } from '../../../src/sys/netns.ts';
import { trySysctl } from '../../../src/sys/sysctl.ts';
import { type BridgeConf, FIRST_VLAN, gatewayPortName, LAST_VLAN } from '../config.ts';
import { nativeVlan, planVlans, renderVlans, type VlanPlan, wantsFiltering } from '../plan.ts';

/** Alias of bridges that this plugin created and may therefore remove once nothing uses them. */
const CREATED_BY_US = 'catena:bridge';

/** True for a bridge that this plugin created, even if it was killed before it could set the alias. */
export function isOurs({ attrs: { alias }, mac = '' }: Link): boolean {
  const drawn = OURS.map(byte => byte.toString(16)).join(':');
  return alias === CREATED_BY_US || (!alias && mac.startsWith(`${drawn}:`));
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
  const created = tolerating([Errno.EEXIST], () => createBridge(call));
  // If another program created it first, the bridge is not ours.
  return created ?? adoptBridge(call, getLink(host, conf.bridge));
}

/**
 * Deletes a bridge that this plugin created and on which nothing can depend: it has no port but the uplink, no device on it, and no
 * address but the kernel's own. One with an address stays, as the reference's does: resolvers and registries of the host are bound to it.
 * Call under `withBridgeLock`.
 */
export function removeUnusedBridge(socket: NetlinkSocket, name: string, uplink: string | undefined): void {
  const bridge = findLink(socket, name);
  if (bridge?.kind !== 'bridge' || !isOurs(bridge) || hasAddress(socket, bridge)) return;
  const outer = uplink ? findLink(socket, uplink)?.index : undefined;
  if (listBridgePorts(socket, bridge.index).some(({ index }) => index !== outer)) return;
  if (findUpper(bridge.index, listLinks(socket)) === undefined) removeLink(socket, bridge.index);
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
    throw invalidConfig(`Cannot use "${link.name}" as bridge: a device of that name exists and is ${found}`);
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
  undoUnlessJoined(call, link, 'restore the flags of the bridge', () => setLink(host, link.index, before));
  setLink(host, link.index, wanted);
  return link;
}

/**
 * Registers how to undo a change of a bridge, which stays if a container joins before that, and relies on it.
 * @param own the port that the change itself adds
 */
function undoUnlessJoined(
  call: Call,
  { index, name }: Link,
  what: string,
  undo: () => void,
  own?: Link,
): void {
  const { host } = call;
  const known = new Set([...listBridgePorts(host, index), ...(own ? [own] : [])].map(port => port.index));
  call.onFailure(what, () =>
    withBridgeLock(name, () => {
      const isJoined = listBridgePorts(host, index).some(port => !known.has(port.index));
      if (!isJoined && findLink(host, index)) undo();
    }),
  );
}

/** Has the bridge forward the configured groups. Registers its own undo step. */
export function ensureGroupFwdMask(call: Call<BridgeConf>, link: Link): void {
  const { conf, host } = call;
  const before = groupFwdMaskOf(link);
  if (!conf.groupFwdMask || conf.groupFwdMask === before) return;
  undoUnlessJoined(call, link, `restore the groups that "${link.name}" forwards`, () =>
    setGroupFwdMask(host, link.index, before),
  );
  setGroupFwdMask(host, link.index, conf.groupFwdMask);
}

/** The link-local groups that the bridge forwards, one bit each. */
export function groupFwdMaskOf(bridge: Link): number {
  return kindDataOf(bridge, 'bridge')?.groupFwdMask ?? 0;
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

/**
 * Makes the configured uplink a port of the bridge, up, and a tagged member of the container's VLANs. Does nothing without one, or if it is
 * a port already. Registers its own undo step. Call under `withBridgeLock`.
 * @throws CniError 7 when the device cannot be the bridge's
 */
export function ensureUplink(call: Call<BridgeConf>, bridge: Link): void {
  const { conf, host } = call;
  if (!conf.uplinkInterface) return;
  const uplink = requireUplink(host, conf, bridge);
  if (uplink.master !== bridge.index) {
    const release = () => {
      if (findLink(host, uplink.index)?.master === bridge.index)
        setLink(host, uplink.index, { master: 0, up: (uplink.flags & IFF_UP) !== 0 });
    };
    undoUnlessJoined(call, bridge, `take "${uplink.name}" out of bridge "${bridge.name}"`, release, uplink);
    // In one request, the kernel would bring up what it then refuses as a port.
    setLink(host, uplink.index, { master: bridge.index });
  }
  if (!(uplink.flags & IFF_UP)) setLink(host, uplink.index, { up: true });
  const vlans = planVlans(conf)?.vlans ?? [];
  // The default VLAN stays as it is: untagged frames of the network outside.
  addPortVlans(
    host,
    uplink.index,
    vlans
      .filter(({ first, pvid }) => !(pvid && first === 1))
      .map(vlan => ({ ...vlan, pvid: false, untagged: false })),
  );
}

/**
 * The uplink, if the bridge can have it. A device with addresses of its own is refused: as a port it would stop to answer for them, and a node
 * whose address is there would be cut off.
 * @param bridge undefined if it does not exist yet
 * @throws CniError 7
 */
export function requireUplink(
  host: NetlinkSocket,
  { bridge: name, uplinkInterface = '' }: BridgeConf,
  bridge: Link | undefined,
): Link {
  const link = findLink(host, uplinkInterface);
  const problem = link ? findProblem(host, link, bridge) : 'there is no such device';
  if (link && problem === undefined) return link;
  throw invalidConfig(`Cannot use "${uplinkInterface}" as uplink of bridge "${name}": ${problem}`);
}

function findProblem(host: NetlinkSocket, link: Link, bridge: Link | undefined): string | undefined {
  if (bridge && link.index === bridge.index) return 'it is the bridge itself';
  if (link.kind === 'bridge') return 'it is a bridge; use it as "bridge", or name one of its ports';
  if (link.flags & IFF_LOOPBACK) return 'it is the loopback device';
  if (bridge && link.master === bridge.index) return undefined;
  if (link.master !== 0) {
    return `it belongs to "${findLink(host, link.master)?.name ?? link.master}"; release it first`;
  }
  const [own] = listAddresses(host, link.index).filter(({ scope }) => scope < RT_SCOPE_LINK);
  return own && `it has address ${renderCidr(own.cidr)}; move that to the bridge first, or the node loses it`;
}

/**
 * Makes a port a member of VLANs, and of no other unless the plan keeps the default one.
 * @throws CniError 2 when the kernel does not support it
 */
export function setPortVlans(host: NetlinkSocket, conf: BridgeConf, port: Link, plan: VlanPlan): void {
  try {
    if (plan.leavesDefault) removePortVlans(host, port.index, FIRST_VLAN, LAST_VLAN);
    addPortVlans(host, port.index, plan.vlans);
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.EOPNOTSUPP)) throw refuseVlans(conf, thrown);
    throw thrown;
  }
}

/** @throws Error naming the VLANs that a port should be in, and those it is in */
export function checkPortVlans(host: NetlinkSocket, bridge: Link, port: Link, plan: VlanPlan): void {
  const found = listBridgePorts(host, bridge.index).find(({ index }) => index === port.index)?.vlans ?? [];
  const wanted = renderVlans(plan.vlans);
  // A port that keeps the default VLAN may be in further VLANs that the bridge assigned.
  const present = plan.leavesDefault
    ? renderVlans(found)
    : renderVlans(found).filter(vlan => wanted.includes(vlan));
  confirm(`VLANs of "${port.name}"`, wanted, present);
}

/**
 * Rejects an existing bridge that does not filter VLANs and must not be switched. A bridge that this plugin made can be switched;
 * on one that others made this might cut off their traffic.
 * @throws CniError 2 when the kernel does not support it, 7 when the operator has to decide
 */
function requireFiltering(conf: BridgeConf, bridge: Link, ours: boolean): void {
  const filtering = vlanFilteringOf(bridge);
  if (filtering === undefined) throw refuseVlans(conf);
  if (filtering === 1 || ours) return;
  throw invalidConfig(
    `Cannot use ${vlanKeys(conf)} on bridge "${bridge.name}": its VLAN filtering is off, and this plugin did not create it`,
    { details: `run: ip link set ${bridge.name} type bridge vlan_filtering 1` },
  );
}

/** Turns on VLAN filtering of a bridge if it is off. Registers its own undo steps. */
export function ensureFiltering(call: Call<BridgeConf>, bridge: Link): void {
  if (vlanFilteringOf(bridge) === 1) return;
  const turn = (on: boolean) => setVlanFiltering(call.host, bridge.index, on);
  undoUnlessJoined(call, bridge, `turn VLAN filtering of "${bridge.name}" off`, () => turn(false));
  turn(true);
}

/** 1 when the bridge filters VLANs, 0 when it does not, undefined when the kernel does not support it. */
export function vlanFilteringOf(bridge: Link): number | undefined {
  const data = kindDataOf(bridge, 'bridge');
  // Every kernel has the switch, but only those that can turn it on report the VLAN protocol.
  return data?.vlanProtocol === undefined ? undefined : data.vlanFiltering;
}

/** The kernel does not support VLANs on bridges (SPEC: code 2 names key and value). */
function refuseVlans(conf: BridgeConf, cause?: unknown): CniError {
  return new CniError(
    ErrorCode.unsupportedField,
    `Cannot use ${vlanKeys(conf)}: this kernel is built without VLAN filtering on bridges`,
    { details: 'it needs CONFIG_BRIDGE_VLAN_FILTERING', cause },
  );
}

function vlanKeys({ vlan, vlanTrunk }: BridgeConf): string {
  return [
    ...(vlan ? [`"vlan": ${vlan}`] : []),
    ...(vlanTrunk ? [`"vlanTrunk": ${JSON.stringify(vlanTrunk)}`] : []),
  ].join(' and ');
}

/**
 * Returns the interface that carries the gateway of a VLAN: one end of a veth pair on the host, whose other end is a port of the
 * bridge in that VLAN. An existing one is used if it leads there. Registers its own undo steps. Call under `withBridgeLock`.
 * @param onFailure where it registers them
 * @throws CniError 7 when a device of that name leads elsewhere
 */
export function ensureGatewayPort(call: Call<BridgeConf>, bridge: Link, onFailure: Call['onFailure']): Link {
  const { conf, host } = call;
  const name = gatewayPortName(conf);
  const existing = findLink(host, name);
  if (existing === undefined) return createGatewayPort(call, bridge, name, onFailure);
  const problem = findGatewayProblem(host, bridge, existing, conf.vlan);
  if (problem) {
    throw invalidConfig(`Cannot use "${name}" for the gateway of VLAN ${conf.vlan}: ${problem}`);
  }
  if ((existing.flags & IFF_UP) === 0) {
    setLink(host, existing.index, { up: true });
    onFailure(`set "${name}" down`, () =>
      withBridgeLock(bridge.name, () => {
        if (!isVlanUsed(host, bridge, existing, conf.vlan)) setLink(host, existing.index, { up: false });
      }),
    );
  }
  return existing;
}

/** Why an interface cannot carry the gateway, in human-readable form; undefined when it can. */
export function findGatewayProblem(
  host: NetlinkSocket,
  bridge: Link,
  link: Link,
  vlan: number,
): string | undefined {
  // A manual set-up: the bridge itself is in the VLAN, and this is a VLAN device on top of it.
  if (link.kind === 'vlan' && link.peer === bridge.index) return undefined;
  if (link.kind !== 'veth') return `it is of kind "${link.kind}"`;
  const port = listBridgePorts(host, bridge.index).find(({ index }) => index === link.peer);
  if (port === undefined) return `its other end is not a port of bridge "${bridge.name}"`;
  const native = port.vlans.find(({ pvid }) => pvid)?.first;
  return native === vlan ? undefined : `its other end is in VLAN ${native ?? 'none'}`;
}

function createGatewayPort(
  call: Call<BridgeConf>,
  bridge: Link,
  name: string,
  onFailure: Call['onFailure'],
): Link {
  const { conf, host } = call;
  const port = `veth${Buffer.from(crypto.getRandomValues(new Uint8Array(4))).toString('hex')}`;
  const { mtu } = bridge;
  // Not left to the kernel: udev replaces random addresses that it chose.
  const [mac, innerMac] = [randomHighMac(), randomMac()];
  createLink(host, {
    name: port,
    kind: 'veth',
    master: bridge.index,
    mac,
    mtu,
    peer: { name, mtu, mac: innerMac },
  });
  onFailure(`remove "${name}"`, () =>
    withBridgeLock(bridge.name, () => removeFailedPort(host, bridge, name, conf.vlan)),
  );
  trySysctl(`net/ipv6/conf/${port}/accept_ra`, '0');
  trySysctl(`net/ipv6/conf/${name}/accept_ra`, '0');
  trySysctl(`net/ipv6/conf/${name}/accept_dad`, '0');
  const outer = getLink(host, port);
  setPortVlans(host, conf, outer, {
    leavesDefault: !conf.preserveDefaultVlan,
    vlans: [nativeVlan(conf.vlan)],
  });
  const inner = getLink(host, name);
  setLink(host, outer.index, { up: true, alias: GATEWAY_PORT_ALIAS });
  setLink(host, inner.index, { up: true, alias: GATEWAY_PORT_ALIAS });
  return { ...inner, flags: inner.flags | IFF_UP };
}

/** Removes what a failed ADD created, unless another container is already in the VLAN. */
function removeFailedPort(host: NetlinkSocket, bridge: Link, name: string, vlan: number): void {
  const gateway = findLink(host, name);
  if (gateway === undefined) return;
  if (!isVlanUsed(host, bridge, gateway, vlan)) removeLink(host, gateway.index);
}

/** Whether the bridge has a port in the VLAN besides that of its gateway. */
function isVlanUsed(host: NetlinkSocket, bridge: Link, gateway: Link, vlan: number): boolean {
  const others = listBridgePorts(host, bridge.index).filter(({ index }) => index !== gateway.peer);
  return others.some(({ vlans }) => vlans.some(({ first, last }) => first <= vlan && vlan <= last));
}
