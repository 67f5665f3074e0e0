// How are packets selected for redirection or for a class?
import { type Cidr, renderCidr } from '../../net/cidr.ts';
import { attrs, byKind, str } from '../codec/attrs.ts';
import { layout, NLM_F_CREATE, NLM_F_EXCL, type Request } from '../codec/message.ts';
import type { NetlinkSocket } from '../socket.ts';
import { traced } from '../trace.ts';
import { egressRedirect, redirectTarget } from './tc/redirect.ts';
import { TC_H_INGRESS_FILTERS, tcHandle, tcmsg } from './tc/tcmsg.ts';
import {
  MATCH_ALL,
  matchesAll,
  matchSubnet,
  type SubnetEnd,
  type U32Selector,
  u32Options,
} from './tc/u32.ts';

/** linux/rtnetlink.h */
const RTM_NEWTFILTER = 44;
const RTM_DELTFILTER = 45;
const RTM_GETTFILTER = 46;

/** linux/if_ether.h */
const ETH_P_ALL = 0x0003;
const ETH_P_IP = 0x0800;
const ETH_P_IPV6 = 0x86dd;

/** linux/rtnetlink.h, TCA_* */
const filterAttrs = attrs('filter', {
  kind: [1, str],
  options: [2, byKind('kind', { u32: u32Options })],
});

/** RTM_NEWTFILTER, RTM_DELTFILTER and RTM_GETTFILTER. */
export const filterMessage = traced(
  'NETLINK_ROUTE',
  { 44: 'RTM_NEWTFILTER', 45: 'RTM_DELTFILTER', 46: 'RTM_GETTFILTER' },
  layout(tcmsg, filterAttrs),
);

/** A filter as the kernel reports it. */
export interface Filter {
  readonly index: number;
  readonly kind: string;
  /** Filters of lower preference are evaluated first. */
  readonly preference: number;
  /** EtherType; 3 is every protocol. */
  readonly protocol: number;
  /** True for an actual filter: each u32 preference also lists itself and its hash tables. */
  readonly matches: boolean;
  /** For redirects of every packet: index of the target device, 0 when that no longer exists. */
  readonly redirectAllTo: number | undefined;
  /** For kind `u32`: handle of the class for matching packets, 0 for none. */
  readonly classid: number;
  /** For kind `u32`: which packets match. */
  readonly selector: U32Selector | undefined;
}

/** A filter that assigns packets from or to a subnet to a class. */
export interface SubnetFilter {
  readonly preference: number;
  readonly subnet: Cidr;
  readonly end: SubnetEnd;
  /** Handle of the class. */
  readonly classid: number;
}

/** Filters on incoming packets of a device, in evaluation order. Same as: `tc filter show dev <link> ingress` */
export function listIngressFilters(socket: NetlinkSocket, index: number): Filter[] {
  return listFilters(socket, index, TC_H_INGRESS_FILTERS);
}

/** Filters of one qdisc, in evaluation order. Same as: `tc filter show dev <link> parent <handle>` */
export function listFilters(socket: NetlinkSocket, index: number, parent: number): Filter[] {
  const body = filterMessage.encode({ index, parent }, {});
  const op = `list filters of link with index ${index}`;
  const bodies = socket.dump({ op, type: RTM_GETTFILTER, body });
  return bodies.map(decodeFilter).filter(filter => filter.matches);
}

/**
 * Redirects every incoming packet of a device to another device; needs an ingress qdisc. It would be added to an existing
 * filter of the same preference, so remove that first.
 * Same as: `tc filter add dev <link> ingress pref <preference> protocol all u32 match u32 0 0 classid 1:1
 * action mirred egress redirect dev <target>`
 */
export function redirectRequest(index: number, redirect: { preference: number; target: number }): Request {
  const { preference, target } = redirect;
  const body = filterMessage.encode(
    { index, parent: TC_H_INGRESS_FILTERS, info: filterInfo(preference, ETH_P_ALL) },
    {
      kind: 'u32',
      options: { classid: tcHandle(1, 1), actions: [egressRedirect(target)], selector: MATCH_ALL },
    },
  );
  const op = `redirect packets arriving on link with index ${index} to link with index ${target}`;
  return { op, type: RTM_NEWTFILTER, flags: NLM_F_CREATE | NLM_F_EXCL, body };
}

/**
 * Assigns packets from or to a subnet to a class of the qdisc `1:`.
 * Same as: `tc filter add dev <link> parent 1: pref <preference> protocol ip u32 match ip dst <subnet> flowid <class>`,
 * or `… protocol ipv6 u32 match ip6 dst …`
 */
export function subnetFilterRequest(index: number, filter: SubnetFilter): Request {
  const { preference, subnet, end, classid } = filter;
  const body = filterMessage.encode(
    { index, parent: tcHandle(1, 0), info: filterInfo(preference, protocolOf(subnet)) },
    { kind: 'u32', options: { classid, selector: matchSubnet(subnet, end) } },
  );
  const op = `classify packets of ${renderCidr(subnet)} on link with index ${index}`;
  return { op, type: RTM_NEWTFILTER, flags: NLM_F_CREATE | NLM_F_EXCL, body };
}

/** EtherType of a subnet's packets. */
export function protocolOf({ ip }: Cidr): number {
  return ip.family === 4 ? ETH_P_IP : ETH_P_IPV6;
}

/**
 * The request that deletes the u32 filters for every protocol of one preference; ENOENT, ENODEV or EINVAL if there are none.
 * Same as: `tc filter del dev <link> ingress pref <preference> protocol all u32`
 */
export function removeIngressFiltersRequest(index: number, preference: number): Request {
  const body = filterMessage.encode(
    { index, parent: TC_H_INGRESS_FILTERS, info: filterInfo(preference, ETH_P_ALL) },
    { kind: 'u32' },
  );
  const op = `delete ingress filters of preference ${preference} from link with index ${index}`;
  return { op, type: RTM_DELTFILTER, body };
}

/** `tcm_info` of a filter: preference in the upper half, EtherType in network byte order in the lower half. */
function filterInfo(preference: number, protocol: number): number {
  return ((preference << 16) | ((protocol & 0xff) << 8) | (protocol >>> 8)) >>> 0;
}

function decodeFilter(body: Uint8Array): Filter {
  const { header, attrs: own } = filterMessage.decode(body);
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
