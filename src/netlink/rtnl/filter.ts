// How are packets selected for redirection or for a class?

import { type Cidr, ipToBytes, networkOf, renderCidr } from '../../net/ip.ts';
import {
  attrs,
  byKind,
  type Field,
  listOf,
  type Request,
  s16,
  s32,
  str,
  struct,
  u8,
  u16,
  u16be,
  u32,
  u32be,
} from '../codec.ts';
import type { NetlinkSocket } from '../socket.ts';
import { messages } from './message.ts';
import { TC_H_INGRESS_FILTERS, tcHandle, tcmsg } from './qdisc.ts';

/** linux/tc_act/tc_mirred.h, where the first five are tc_gen of linux/pkt_cls.h */
export const tcMirred = struct('tc_mirred', {
  index: u32,
  capab: u32,
  action: s32,
  refcnt: s32,
  bindcnt: s32,
  eaction: s32,
  ifindex: u32,
});

/** `TCA_ACT_OPTIONS` of kind `mirred`; linux/tc_act/tc_mirred.h, TCA_MIRRED_*. */
const mirred = attrs('mirred', { parms: [2, tcMirred] });

/** One action of a filter; linux/pkt_cls.h, TCA_ACT_*. */
const action = attrs('action', {
  kind: [1, str],
  options: [2, byKind('kind', { mirred })],
  index: [3, u32],
});

type Action = ReturnType<typeof action.decode>;

/** linux/pkt_cls.h: the action has consumed the packet, and processing stops. */
const TC_ACT_STOLEN = 4;
/** linux/tc_act/tc_mirred.h */
const TCA_EGRESS_REDIR = 1;

/** Redirects packets to the egress of a device. Same as: `action mirred egress redirect dev <device>` */
export function egressRedirect(index: number): Action {
  const parms = { ...tcMirred.zero, action: TC_ACT_STOLEN, eaction: TCA_EGRESS_REDIR, ifindex: index };
  return { kind: 'mirred', options: { parms } };
}

/** Index of the device that an action redirects to (0: it no longer exists); undefined for another kind of action. */
function redirectTarget({ options }: Action): number | undefined {
  if (options === undefined || options instanceof Uint8Array) return undefined;
  return options.parms?.eaction === TCA_EGRESS_REDIR ? options.parms.ifindex : undefined;
}

/** linux/pkt_cls.h; the keys follow it. */
export const tcU32Sel = struct('tc_u32_sel', {
  flags: u8,
  offshift: u8,
  nkeys: u8,
  _pad: u8,
  offmask: u16be,
  off: u16,
  offoff: s16,
  hoff: s16,
  hmask: u32be,
});

/** linux/pkt_cls.h */
export const tcU32Key = struct('tc_u32_key', { mask: u32be, val: u32be, off: s32, offmask: s32 });

/** linux/pkt_cls.h: a match ends the search. */
const TC_U32_TERMINAL = 1;

interface U32Selector {
  readonly flags: number;
  readonly keys: readonly ReturnType<typeof tcU32Key.decode>[];
}

const selector: Field<U32Selector> = {
  encode(writer, { flags, keys }) {
    tcU32Sel.encode(writer, { flags, nkeys: keys.length });
    for (const key of keys) tcU32Key.encode(writer, key);
  },
  decode(bytes) {
    const { flags, nkeys } = tcU32Sel.decode(bytes);
    const keys = Array.from({ length: nkeys }, (_, i) =>
      tcU32Key.decode(bytes.subarray(tcU32Sel.size + i * tcU32Key.size)),
    );
    return { flags, keys };
  },
};

/** `TCA_OPTIONS` of kind `u32`; linux/pkt_cls.h, TCA_U32_*. */
const u32Options = attrs('u32', {
  classid: [1, u32],
  hash: [2, u32],
  divisor: [4, u32],
  selector: [5, selector],
  actions: [7, listOf(action, 'numbered')],
  flags: [11, u32],
});

/** Matches every packet: one key with an empty mask. Same as: `u32 match u32 0 0` */
export const MATCH_ALL: U32Selector = { flags: TC_U32_TERMINAL, keys: [tcU32Key.zero] };

export function matchesAll({ flags, keys }: U32Selector): boolean {
  return (flags & TC_U32_TERMINAL) !== 0 && keys.every(key => key.mask === 0 && key.val === 0);
}

export type SubnetEnd = 'source' | 'destination';

/** Bytes from the start of the network header to the addresses (RFC 791, RFC 8200). */
const ADDRESS_OFFSET = { 4: { source: 12, destination: 16 }, 6: { source: 8, destination: 24 } } as const;
const WORD_BITS = 32;

/**
 * Matches packets with an address in the subnet: one key for each 32-bit word that the prefix covers at least partly.
 * Same as: `match ip src <subnet>`, `match ip6 dst <subnet>`
 */
export function matchSubnet(subnet: Cidr, end: SubnetEnd): U32Selector {
  const { family } = subnet.ip;
  const words = new DataView(ipToBytes(networkOf(subnet)).buffer);
  const keys = Array.from({ length: Math.ceil(subnet.prefix / WORD_BITS) }, (_, i) => {
    const free = Math.max(0, WORD_BITS - (subnet.prefix - i * WORD_BITS));
    const mask = (0xffffffff << free) >>> 0;
    return { mask, val: words.getUint32(i * 4), off: ADDRESS_OFFSET[family][end] + i * 4, offmask: 0 };
  });
  return keys.length ? { flags: TC_U32_TERMINAL, keys } : MATCH_ALL;
}

/** True when two selectors match the same packets with the same keys. */
export function sameSelector(a: U32Selector, b: U32Selector): boolean {
  return (
    (a.flags & TC_U32_TERMINAL) === (b.flags & TC_U32_TERMINAL) &&
    a.keys.length === b.keys.length &&
    a.keys.every((key, i) => {
      const other = b.keys[i];
      return key.mask === other?.mask && key.val === other.val && key.off === other.off;
    })
  );
}

/** linux/if_ether.h: every protocol */
export const ETH_P_ALL = 0x0003;
const ETH_P_IP = 0x0800;
const ETH_P_IPV6 = 0x86dd;

/** linux/rtnetlink.h, TCA_* */
const filterAttrs = attrs('filter', {
  kind: [1, str],
  options: [2, byKind('kind', { u32: u32Options })],
});

export const filterMessage = messages('TFILTER', tcmsg, filterAttrs);

export interface Filter {
  readonly index: number;
  readonly kind: string;
  /** Filters of lower preference are evaluated first. */
  readonly preference: number;
  /** EtherType; 3 is every protocol. */
  readonly protocol: number;
  /** True for an actual filter: each u32 preference also lists itself and its hash tables. */
  readonly matches: boolean;
  /** For redirects of every packet of the protocol: index of the target device, 0 when that no longer exists. */
  readonly redirectAllTo: number | undefined;
  /** For kind `u32`: handle of the class for matching packets, 0 for none. */
  readonly classid: number;
  /** For kind `u32`: which packets match. */
  readonly selector: U32Selector | undefined;
}

export interface SubnetFilter {
  readonly preference: number;
  readonly subnet: Cidr;
  readonly end: SubnetEnd;
  readonly classid: number;
}

/** Filters on incoming packets of a device, in evaluation order. Same as: `tc filter show dev <link> ingress` */
export function listIngressFilters(socket: NetlinkSocket, index: number): Filter[] {
  return listFilters(socket, index, TC_H_INGRESS_FILTERS);
}

/** Filters of one qdisc, in evaluation order. Same as: `tc filter show dev <link> parent <handle>` */
export function listFilters(socket: NetlinkSocket, index: number, parent: number): Filter[] {
  const all = filterMessage.list(socket, `list filters of link with index ${index}`, { index, parent });
  return all.map(toFilter).filter(filter => filter.matches);
}

/**
 * Redirects every incoming packet of a device to another device; needs an ingress qdisc. It would be added to an existing
 * filter of the same preference, so remove that first.
 * Same as: `tc filter add dev <link> ingress pref <preference> protocol all u32 match u32 0 0 classid 1:1
 * action mirred egress redirect dev <target>`
 */
export function redirectRequest(index: number, redirect: { preference: number; target: number }): Request {
  const { preference, target } = redirect;
  const op = `redirect packets arriving on link with index ${index} to link with index ${target}`;
  const place = { index, parent: TC_H_INGRESS_FILTERS, info: filterInfo(preference, ETH_P_ALL) };
  const options = { classid: tcHandle(1, 1), actions: [egressRedirect(target)], selector: MATCH_ALL };
  return filterMessage.add(op, place, { kind: 'u32', options });
}

/**
 * Assigns packets from or to a subnet to a class of the qdisc `1:`.
 * Same as: `tc filter add dev <link> parent 1: pref <preference> protocol ip u32 match ip dst <subnet> flowid <class>`,
 * or `… protocol ipv6 u32 match ip6 dst …`
 */
export function subnetFilterRequest(index: number, filter: SubnetFilter): Request {
  const { preference, subnet, end, classid } = filter;
  const op = `classify packets of ${renderCidr(subnet)} on link with index ${index}`;
  const place = { index, parent: tcHandle(1, 0), info: filterInfo(preference, protocolOf(subnet)) };
  const options = { classid, selector: matchSubnet(subnet, end) };
  return filterMessage.add(op, place, { kind: 'u32', options });
}

export function protocolOf({ ip }: Cidr): number {
  return ip.family === 4 ? ETH_P_IP : ETH_P_IPV6;
}

/**
 * The request that deletes the u32 filters of one preference, which are for one protocol; ENOENT, ENODEV or EINVAL if there are none.
 * Same as: `tc filter del dev <link> ingress pref <preference> protocol <protocol> u32`
 */
export function removeIngressFiltersRequest(
  index: number,
  { preference, protocol }: Pick<Filter, 'preference' | 'protocol'>,
): Request {
  const op = `delete ingress filters of preference ${preference} from link with index ${index}`;
  const place = { index, parent: TC_H_INGRESS_FILTERS, info: filterInfo(preference, protocol) };
  return filterMessage.remove(op, place, { kind: 'u32' });
}

/** `tcm_info` of a filter: preference in the upper half, EtherType in network byte order in the lower half. */
function filterInfo(preference: number, protocol: number): number {
  return ((preference << 16) | ((protocol & 0xff) << 8) | (protocol >>> 8)) >>> 0;
}

function toFilter({ header, attrs: own }: ReturnType<typeof filterMessage.decode>): Filter {
  const { kind = '', options } = own;
  const u32 = options instanceof Uint8Array ? undefined : options;
  const all = u32?.selector !== undefined && matchesAll(u32.selector);
  const [first] = u32?.actions ?? [];
  return {
    index: header.index,
    kind,
    preference: header.info >>> 16,
    protocol: ((header.info & 0xff) << 8) | ((header.info >>> 8) & 0xff),
    matches: kind !== 'u32' || u32?.selector !== undefined,
    redirectAllTo: all && first !== undefined ? redirectTarget(first) : undefined,
    classid: u32?.classid ?? 0,
    selector: u32?.selector,
  };
}
