// Which VLANs does a bridge port belong to, and how is that changed?
import { attrs, struct, u16, u32, Writer } from '../codec.ts';
import type { NetlinkSocket } from '../socket.ts';
import { ifinfomsg, linkMessage } from './link.ts';
import { AF, messages } from './message.ts';

/** linux/rtnetlink.h */
const RTEXT_FILTER_BRVLAN_COMPRESSED = 4;

/** linux/if_bridge.h */
const BRIDGE_FLAGS_MASTER = 1;
const IFLA_BRIDGE_VLAN_INFO = 2;
const BRIDGE_VLAN_INFO_PVID = 2;
const BRIDGE_VLAN_INFO_UNTAGGED = 4;
const BRIDGE_VLAN_INFO_RANGE_BEGIN = 8;
const BRIDGE_VLAN_INFO_RANGE_END = 16;

/** linux/if_bridge.h */
export const bridgeVlanInfo = struct('bridge_vlan_info', { flags: u16, vid: u16 });

/** `IFLA_AF_SPEC` of family AF_BRIDGE; linux/if_bridge.h, IFLA_BRIDGE_*. Its VLANs repeat one type, so see `unknown`. */
const bridgeSpec = attrs('bridge spec', { flags: [0, u16], mode: [1, u16] });
const portAttrs = attrs('bridge port', { master: [10, u32], afSpec: [26, bridgeSpec], extMask: [29, u32] });

/** RTM_SETLINK, RTM_DELLINK and RTM_GETLINK of family AF_BRIDGE. */
const portVlanMessage = messages('LINK', ifinfomsg, portAttrs, false);

/** Consecutive VLANs of a port with the same settings. */
export interface VlanRange {
  readonly first: number;
  readonly last: number;
  /** Incoming untagged frames belong to it; at most one VLAN per port. */
  readonly pvid: boolean;
  /** Frames leave the port untagged. */
  readonly untagged: boolean;
}

/**
 * Makes a bridge port a member of VLANs, in one request.
 * @throws NetlinkError EOPNOTSUPP when the kernel was built without bridge VLAN filtering
 * Same as: `bridge vlan add dev <port> vid <first>[-<last>] [pvid] [untagged]`
 */
export function addPortVlans(socket: NetlinkSocket, index: number, vlans: readonly VlanRange[]): void {
  if (vlans.length === 0) return;
  const names = vlans.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`));
  const op = `add VLANs ${names.join(', ')} of bridge port with index ${index}`;
  socket.request(portVlanMessage.change(op, { family: AF.bridge, index }, memberOf(vlans), 'SET'));
}

/**
 * Removes a bridge port from VLANs; those that it does not belong to are ignored.
 * Same as: `bridge vlan del dev <port> vid <first>-<last>`
 */
export function removePortVlans(socket: NetlinkSocket, index: number, first: number, last: number): void {
  const range = { first, last, pvid: false, untagged: false };
  const name = first === last ? `${first}` : `${first}-${last}`;
  const op = `remove VLANs ${name} of bridge port with index ${index}`;
  socket.request(portVlanMessage.remove(op, { family: AF.bridge, index }, memberOf([range])));
}

/** Ports of a bridge with their VLANs. Same as: `bridge -compressvlans vlan show` */
export function listBridgePorts(socket: NetlinkSocket, bridge: number) {
  const asked = { extMask: RTEXT_FILTER_BRVLAN_COMPRESSED };
  const all = portVlanMessage.list(socket, 'list bridge ports', { family: AF.bridge }, asked);
  return all.flatMap(({ header, attrs: own }) => {
    // The bridge itself is listed as a member of its VLANs, with itself as master.
    if (own.master !== bridge || header.index === bridge) return [];
    const entries = (own.afSpec?.unknown ?? []).filter(({ type }) => type === IFLA_BRIDGE_VLAN_INFO);
    return { index: header.index, vlans: decodeRanges(entries.map(({ bytes }) => bytes)) };
  });
}

/**
 * Enables or disables VLAN filtering of a bridge.
 * @throws NetlinkError EOPNOTSUPP when the kernel was built without bridge VLAN filtering
 * Same as: `ip link set <bridge> type bridge vlan_filtering 1`
 */
export function setVlanFiltering(socket: NetlinkSocket, index: number, on: boolean): void {
  const linkinfo = { kind: 'bridge', data: { vlanFiltering: Number(on) } };
  const op = `turn VLAN filtering ${on ? 'on' : 'off'} on link with index ${index}`;
  socket.request(linkMessage.change(op, { index }, { linkinfo }));
}

/**
 * Sets which link-local groups (01-80-C2-00-00-00 to -0F) a bridge forwards, one bit each. The kernel refuses bits 0 to 2.
 * Same as: `ip link set <bridge> type bridge group_fwd_mask <mask>`
 */
export function setGroupFwdMask(socket: NetlinkSocket, index: number, mask: number): void {
  const linkinfo = { kind: 'bridge', data: { groupFwdMask: mask } };
  const op = `set group_fwd_mask ${mask} on link with index ${index}`;
  socket.request(linkMessage.change(op, { index }, { linkinfo }));
}

function memberOf(vlans: readonly VlanRange[]) {
  const unknown = vlans.flatMap(encodeRange).map(bytes => ({ type: IFLA_BRIDGE_VLAN_INFO, bytes }));
  return { afSpec: { flags: BRIDGE_FLAGS_MASTER, unknown } };
}

/** One entry, or the two ends of a range, which the kernel fills in. */
function encodeRange({ first, last, pvid, untagged }: VlanRange): Uint8Array[] {
  const flags = (pvid ? BRIDGE_VLAN_INFO_PVID : 0) | (untagged ? BRIDGE_VLAN_INFO_UNTAGGED : 0);
  const info = (vid: number, more: number) => {
    const writer = new Writer();
    bridgeVlanInfo.encode(writer, { flags: flags | more, vid });
    return writer.finish().slice();
  };
  if (first === last) return [info(first, 0)];
  return [info(first, BRIDGE_VLAN_INFO_RANGE_BEGIN), info(last, BRIDGE_VLAN_INFO_RANGE_END)];
}

function decodeRanges(entries: readonly Uint8Array[]): VlanRange[] {
  const ranges: VlanRange[] = [];
  let begin: number | undefined;
  for (const bytes of entries) {
    const { flags, vid } = bridgeVlanInfo.decode(bytes);
    if (flags & BRIDGE_VLAN_INFO_RANGE_BEGIN) {
      begin = vid;
      continue;
    }
    const first = flags & BRIDGE_VLAN_INFO_RANGE_END ? (begin ?? vid) : vid;
    begin = undefined;
    ranges.push({
      first,
      last: vid,
      pvid: (flags & BRIDGE_VLAN_INFO_PVID) !== 0,
      untagged: (flags & BRIDGE_VLAN_INFO_UNTAGGED) !== 0,
    });
  }
  return ranges;
}
