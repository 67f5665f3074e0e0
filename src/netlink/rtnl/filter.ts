// How are packets picked out as they come into a device, and sent elsewhere?
import { Errno } from '../../sys/errno.ts';
import { attrs, byKind } from '../codec/attrs.ts';
import { str } from '../codec/fields.ts';
import { layout, NLM_F_CREATE, NLM_F_EXCL } from '../codec/message.ts';
import { tolerating } from '../errors.ts';
import type { NetlinkSocket } from '../socket.ts';
import { traced } from '../trace.ts';
import { egressRedirect, redirectTarget } from './tc/mirred.ts';
import { TC_H_INGRESS_FILTERS, tcHandle, tcmsg } from './tc/tcmsg.ts';
import { MATCH_ALL, matchesAll, u32Options } from './tc/u32.ts';

/** linux/rtnetlink.h */
const RTM_NEWTFILTER = 44;
const RTM_DELTFILTER = 45;
const RTM_GETTFILTER = 46;

/** linux/if_ether.h, in network byte order as `tcm_info` has it: every protocol. */
const ETH_P_ALL_BE = 0x0300;

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

/** A filter on what comes into a device. */
export interface IngressFilter {
  readonly index: number;
  readonly kind: string;
  /** Filters of lower preference look first. */
  readonly preference: number;
  /** EtherType; 3 is every protocol. */
  readonly protocol: number;
  /** Whether it is a filter in its own right: each u32 preference also lists itself and its hash tables. */
  readonly matches: boolean;
  /** For redirects of every packet: index of the device they go to, 0 when that is gone. */
  readonly redirectAllTo: number | undefined;
}

/** Filters on what comes into a device, in the order in which they look. Same as: `tc filter show dev <link> ingress` */
export function listIngressFilters(socket: NetlinkSocket, index: number): IngressFilter[] {
  const body = filterMessage.encode({ index, parent: TC_H_INGRESS_FILTERS }, {});
  const op = `list ingress filters of link with index ${index}`;
  const bodies = socket.dump({ op, type: RTM_GETTFILTER, body });
  return bodies.map(decodeFilter).filter(filter => filter.matches);
}

/**
 * Sends every packet that comes into a device out through another one; needs an ingress qdisc. A filter that is there
 * already at that preference is joined, so remove it first.
 * Same as: `tc filter add dev <link> ingress pref <preference> protocol all u32 match u32 0 0 classid 1:1
 * action mirred egress redirect dev <target>`
 */
export function addIngressRedirect(
  socket: NetlinkSocket,
  index: number,
  redirect: { preference: number; target: number },
): void {
  const { preference, target } = redirect;
  const body = filterMessage.encode(
    { index, parent: TC_H_INGRESS_FILTERS, info: filterInfo(preference) },
    {
      kind: 'u32',
      options: { classid: tcHandle(1, 1), actions: [egressRedirect(target)], selector: MATCH_ALL },
    },
  );
  const op = `redirect what comes into link with index ${index} to link with index ${target}`;
  socket.request({ op, type: RTM_NEWTFILTER, flags: NLM_F_CREATE | NLM_F_EXCL, body });
}

/**
 * Removes the u32 filters for every protocol of one preference; none there is fine.
 * Same as: `tc filter del dev <link> ingress pref <preference> protocol all u32`
 */
export function removeIngressFilters(socket: NetlinkSocket, index: number, preference: number): void {
  const body = filterMessage.encode(
    { index, parent: TC_H_INGRESS_FILTERS, info: filterInfo(preference) },
    { kind: 'u32' },
  );
  const op = `delete ingress filters of preference ${preference} from link with index ${index}`;
  tolerating([Errno.ENOENT, Errno.ENODEV, Errno.EINVAL], () =>
    socket.request({ op, type: RTM_DELTFILTER, body }),
  );
}

/** `tcm_info` of a filter: preference above, EtherType below. */
function filterInfo(preference: number): number {
  return ((preference << 16) | ETH_P_ALL_BE) >>> 0;
}

function decodeFilter(body: Uint8Array): IngressFilter {
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
  };
}
