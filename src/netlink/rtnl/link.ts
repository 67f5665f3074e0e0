// How are network devices found, made, changed and removed?
import { IFNAME_MAX_BYTES } from '../../net/ifname.ts';
import { Errno } from '../../sys/errno.ts';
import { askAll, type Question } from '../ask.ts';
import type { RawAttribute } from '../codec/attrs.ts';
import { NLM_F_CREATE, NLM_F_EXCL, type Request } from '../codec/message.ts';
import { isNetlinkError, NetlinkError, tolerating } from '../errors.ts';
import type { NetlinkSocket } from '../socket.ts';
import {
  IFF_ALLMULTI,
  IFF_PROMISC,
  IFF_UP,
  type linkAttrs,
  linkMessage,
  type Vxlan,
  vxlanData,
} from './link-attrs.ts';

/** Longest alias of a device. linux/if.h: IFALIASZ, less the terminating zero and one byte that the kernel does not use. */
export const ALIAS_MAX_BYTES = 254;

/** linux/rtnetlink.h */
const RTM_NEWLINK = 16;
export const RTM_DELLINK = 17;
const RTM_GETLINK = 18;
const RTM_SETLINK = 19;
const RTM_NEWLINKPROP = 108;
const AF_BRIDGE = 7;

/** Groups used by people and other programs are small numbers; the field has 32 bits. */
const GROUPS_FROM = 1_000_000_000;

type LinkAttrs = ReturnType<typeof linkAttrs.decode>;

/** A network device as the kernel reports it. */
export interface Link {
  readonly index: number;
  readonly name: string;
  /** `veth`, `bridge`, `ifb`, …; empty for devices without a kind, such as loopback. */
  readonly kind: string;
  readonly flags: number;
  readonly mac: string | undefined;
  /** Bytes. */
  readonly mtu: number;
  /** Index of the bridge (or other master) that this is a port of; 0 for none. */
  readonly master: number;
  /** Index of the veth peer or lower device, in the namespace `linkNetnsId` when that is set. */
  readonly peer: number;
  readonly attrs: LinkAttrs;
}

/** The properties of a new link. */
export interface NewLink {
  readonly name: string;
  readonly kind: 'veth' | 'bridge' | 'ifb' | 'dummy' | 'vrf' | 'vxlan';
  readonly mac?: string | undefined;
  readonly mtu?: number | undefined;
  readonly master?: number | undefined;
  readonly txqlen?: number | undefined;
  readonly up?: boolean | undefined;
  /** For bridges: enable VLAN filtering. */
  readonly vlanFiltering?: boolean | undefined;
  /** For VRFs: the routing table of the members. */
  readonly vrfTable?: number | undefined;
  /** For VXLANs: what the packets of the tunnel carry. It learns nothing from the packets that arrive. */
  readonly vxlan?: Vxlan | undefined;
  /** The other end, for veth; `netnsFd` creates it directly in another namespace. */
  readonly peer?: {
    name: string;
    netnsFd?: number | undefined;
    mac?: string | undefined;
    mtu?: number | undefined;
  };
}

/** Changes to a link; absent properties are left unchanged. */
export interface LinkChange {
  readonly up?: boolean | undefined;
  readonly promisc?: boolean | undefined;
  readonly allmulti?: boolean | undefined;
  /** Flags as IFF_*, and which of them to set or clear. */
  readonly flags?: { readonly of: number; readonly value: number } | undefined;
  readonly mac?: string | undefined;
  readonly mtu?: number | undefined;
  readonly txqlen?: number | undefined;
  /** Index of the new master; 0 releases the port. */
  readonly master?: number | undefined;
  readonly name?: string | undefined;
  /** A note of up to 255 bytes that `ip link` shows. */
  readonly alias?: string | undefined;
  /**
   * Descriptor of the namespace to move it to. The kernel moves it first, under its old name, or under `name` if that one is taken
   * there, and then makes the other changes.
   */
  readonly netnsFd?: number | undefined;
}

/**
 * The link with that name or index, or undefined; also undefined for a name that no link can have.
 * Same as: `ip link show dev <name>`
 */
export function findLink(socket: NetlinkSocket, which: string | number): Link | undefined {
  if (typeof which === 'string' && Buffer.byteLength(which) > IFNAME_MAX_BYTES) return undefined;
  return findLinks(socket, [which])[0];
}

/** Like {@link findLink} for several links at once. */
export function findLinks(socket: NetlinkSocket, which: readonly (string | number)[]): (Link | undefined)[] {
  return askAll(socket, which.map(linkQuestion));
}

/** Like {@link findLink}, but throws a NetlinkError with ENODEV when there is none. */
export function getLink(socket: NetlinkSocket, which: string | number): Link {
  const [link] = askAll(socket, [{ ...linkQuestion(which), absent: [] }]);
  if (link === undefined) throw new NetlinkError(`find ${wordsFor(which)}`, Errno.ENODEV);
  return link;
}

/** All links of the namespace. Same as: `ip -d link show` */
export function listLinks(socket: NetlinkSocket): Link[] {
  return socket
    .dump({ op: 'list links', type: RTM_GETLINK, body: linkMessage.encode({}, {}) })
    .map(decodeLink);
}

/**
 * Creates a link; fails with EEXIST when the name is taken. The kernel refuses IFF_UP with a peer in another namespace
 * (ENOTCONN), so pairs are brought up afterwards.
 * Same as: `ip link add <name> type <kind> [peer name <peer> netns <ns>]`, `… type bridge vlan_filtering 1` `… type vrf table <table>`, or
 * `… type vxlan id <id> local <address> dstport <port> nolearning`
 */
export function createLink(socket: NetlinkSocket, link: NewLink): void {
  socket.request(newLinkRequest(link));
}

/** Like {@link createLink}, but also queries the new link in the same batch; undefined when the name is taken. */
export function makeLink(socket: NetlinkSocket, link: NewLink): Link | undefined {
  const [made, found] = socket.attemptAll([newLinkRequest(link), linkQuestion(link.name)]);
  if (isNetlinkError(made, Errno.EEXIST)) return undefined;
  if (made instanceof NetlinkError) throw made;
  const [body] = found instanceof NetlinkError ? [] : (found ?? []);
  if (body !== undefined) return decodeLink(body);
  // The caller does not know about the new link.
  removeLink(socket, link.name);
  throw found instanceof NetlinkError ? found : new NetlinkError(`find link "${link.name}"`, Errno.ENODEV);
}

function newLinkRequest(link: NewLink): Request {
  const { name, kind, peer, up = false, vlanFiltering, vrfTable, vxlan } = link;
  const peerAttrs = peer && {
    ifname: peer.name,
    mtu: peer.mtu,
    address: peer.mac,
    netnsFd: peer.netnsFd,
  };
  const body = linkMessage.encode(
    { flags: up ? IFF_UP : 0, change: up ? IFF_UP : 0 },
    {
      ifname: name,
      ...defined({ mtu: link.mtu, address: link.mac, master: link.master, txqlen: link.txqlen }),
      linkinfo: {
        kind,
        ...(peerAttrs ? { data: { peer: defined(peerAttrs) } } : {}),
        ...(vlanFiltering === undefined ? {} : { data: { vlanFiltering: Number(vlanFiltering) } }),
        ...(vrfTable === undefined ? {} : { data: { table: vrfTable } }),
        ...(vxlan === undefined ? {} : { data: vxlanData(vxlan) }),
      },
    },
  );
  const op = `create link "${name}" of kind ${kind}`;
  return { op, type: RTM_NEWLINK, flags: NLM_F_CREATE | NLM_F_EXCL, body };
}

/** Changes a link in one request. Same as: `ip link set dev <link> …` */
export function setLink(socket: NetlinkSocket, index: number, change: LinkChange): void {
  socket.request(setLinkRequest(index, change));
}

/** The request of {@link setLink}, for a batch. */
export function setLinkRequest(index: number, change: LinkChange): Request {
  const switches: readonly (readonly [boolean | undefined, number])[] = [
    [change.up, IFF_UP],
    [change.promisc, IFF_PROMISC],
    [change.allmulti, IFF_ALLMULTI],
  ];
  let { of: mask, value: flags } = change.flags ?? { of: 0, value: 0 };
  for (const [on, bit] of switches) {
    if (on === undefined) continue;
    mask |= bit;
    if (on) flags |= bit;
  }
  const { mac, mtu, txqlen, master, name, alias, netnsFd } = change;
  const body = linkMessage.encode(
    { index, flags, change: mask },
    defined({ address: mac, mtu, txqlen, master, ifname: name, alias, netnsFd }),
  );
  const words = Object.entries(defined(change)).map(
    ([key, value]) => `${key} ${typeof value === 'object' ? value.value : value}`,
  );
  return { op: `set ${words.join(', ')} on link with index ${index}`, type: RTM_NEWLINK, body };
}

/** The request that sends attributes of a link back as the kernel told them. */
export function linkSettingRequest(index: number, setting: RawAttribute): Request {
  const body = linkMessage.encode({ index }, { unknown: [setting] });
  return { op: `set attribute ${setting.type} on link with index ${index}`, type: RTM_NEWLINK, body };
}

/** The request that gives a link one more alternative name. Same as: `ip link property add dev <link> altname <name>` */
export function addAltNameRequest(index: number, name: string): Request {
  const body = linkMessage.encode({ index }, { propList: [name] });
  const op = `add alternative name "${name}" to link with index ${index}`;
  return { op, type: RTM_NEWLINKPROP, flags: NLM_F_CREATE | NLM_F_EXCL, body };
}

/** Sets flags of a bridge port. Same as: `bridge link set dev <link> hairpin on isolated on` */
export function setBridgePort(
  socket: NetlinkSocket,
  index: number,
  port: { hairpin?: boolean; isolated?: boolean },
): void {
  socket.request(bridgePortRequest(index, port));
}

/** The request of {@link setBridgePort}, for a batch. */
export function bridgePortRequest(index: number, port: { hairpin?: boolean; isolated?: boolean }): Request {
  const toNumber = (value: boolean | undefined) => (value === undefined ? undefined : Number(value));
  const protinfo = defined({ hairpin: toNumber(port.hairpin), isolated: toNumber(port.isolated) });
  const body = linkMessage.encode({ family: AF_BRIDGE, index }, { protinfo });
  return { op: `set bridge port flags of link with index ${index}`, type: RTM_SETLINK, body };
}

/** Deletes a link; a missing one is ignored. Same as: `ip link del` */
export function removeLink(socket: NetlinkSocket, which: string | number): void {
  const request = { op: `delete ${wordsFor(which)}`, type: RTM_DELLINK, body: bodyFor(which) };
  tolerating([Errno.ENODEV], () => socket.request(request));
}

/**
 * Deletes several links with one request. The kernel then waits for one grace period, not for one per link (100 pairs: 38 ms, one by
 * one 4.6 s). Missing ones are ignored.
 * Same as: `ip link set dev <link> group <n>` for each, then `ip link delete group <n>`
 */
export function removeLinks(socket: NetlinkSocket, indexes: readonly number[]): void {
  const request = deletionOf(socket, indexes);
  if (request) tolerating([Errno.ENODEV], () => socket.request(request));
}

/** The request that deletes the links, which are in one group after this; undefined if there are none. */
export function deletionOf(socket: NetlinkSocket, indexes: readonly number[]): Request | undefined {
  const [first, ...others] = new Set(indexes);
  if (first === undefined) return undefined;
  if (others.length === 0)
    return { op: `delete ${wordsFor(first)}`, type: RTM_DELLINK, body: bodyFor(first) };
  // Any other link in the group would be deleted as well, so the group is a random ten-digit number, which people do not use.
  const group = GROUPS_FROM + Math.floor(Math.random() * GROUPS_FROM);
  const joining = [first, ...others].map(index => ({
    op: `set group ${group} on link with index ${index}`,
    type: RTM_NEWLINK,
    body: linkMessage.encode({ index }, { group }),
  }));
  tolerating([Errno.ENODEV], () => socket.requestAll(joining));
  const body = linkMessage.encode({}, { group });
  return { op: `delete links with indexes ${[first, ...others].join(', ')}`, type: RTM_DELLINK, body };
}

/** The question of {@link findLink}, for a batch. */
export function linkQuestion(which: string | number): Question<Link> {
  return {
    op: `find ${wordsFor(which)}`,
    type: RTM_GETLINK,
    body: bodyFor(which),
    isQuestion: true,
    absent: [Errno.ENODEV],
    read: decodeLink,
  };
}

function wordsFor(which: string | number): string {
  return typeof which === 'string' ? `link "${which}"` : `link with index ${which}`;
}

function bodyFor(which: string | number): Uint8Array {
  return typeof which === 'string'
    ? linkMessage.encode({}, { ifname: which })
    : linkMessage.encode({ index: which }, {});
}

function decodeLink(body: Uint8Array): Link {
  const { header, attrs } = linkMessage.decode(body);
  return {
    index: header.index,
    name: attrs.ifname ?? '',
    kind: attrs.linkinfo?.kind ?? '',
    flags: header.flags,
    mac: attrs.address,
    mtu: attrs.mtu ?? 0,
    master: attrs.master ?? 0,
    peer: attrs.link ?? 0,
    attrs,
  };
}

/** Drops undefined members, because every named attribute is sent. */
function defined<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}
