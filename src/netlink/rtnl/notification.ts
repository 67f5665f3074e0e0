// What does the kernel say when a device, an address, a route or forwarding changes?
import type { Instruction } from '../../sys/socket-filter.ts';
import { attrs, s32, u8 } from '../codec/attrs.ts';
import { type Envelope, layout, struct } from '../codec/message.ts';
import { traced } from '../trace.ts';
import { ifaddrmsg } from './addr.ts';
import { IFF_UP, linkMessage } from './link-attrs.ts';
import { routeMessage } from './route.ts';
import { tcmsg } from './tc/tcmsg.ts';

/** linux/rtnetlink.h, RTNLGRP_LINK, _TC, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE, _IPV4_NETCONF, _IPV6_NETCONF. */
export const ROUTE_GROUPS: readonly number[] = [1, 4, 5, 7, 9, 11, 24, 25];
/** Those for other namespaces, in which only devices, addresses and routes are ours. */
export const PEER_GROUPS: readonly number[] = [1, 5, 7, 9, 11];

/** linux/rtnetlink.h */
const RTM_NEWLINK = 16;
const RTM_DELLINK = 17;
const RTM_DELADDR = 21;
const RTM_DELROUTE = 25;
const RTM_DELQDISC = 37;
const RTM_DELTFILTER = 45;
const RTM_NEWNETCONF = 80;
/** linux/socket.h: a bridge reports its ports under this family, too. */
const AF_BRIDGE = 7;
/** linux/netconf.h: the index that stands for all devices. */
const NETCONFA_IFINDEX_ALL = -1;

/** A change of the namespace's devices, addresses, routes, traffic control or forwarding. Additions other than devices are left out. */
export type RouteNotification =
  | {
      readonly what: 'device';
      readonly index: number;
      readonly name: string;
      readonly isGone: boolean;
      readonly isUp: boolean;
      /** Index of its bridge or other master; 0 for none. */
      readonly master: number;
      readonly mac: string | undefined;
      /** Bytes. */
      readonly mtu: number;
      /** Index of its other end or lower device; 0 for none. */
      readonly peer: number;
      /** Number of the namespace that `peer` is in; undefined: the same. */
      readonly nsid: number | undefined;
    }
  /** Something was removed from the device. */
  | { readonly what: 'address' | 'route' | 'traffic control'; readonly index: number }
  /** Forwarding was turned off: on a device, or on all (undefined). */
  | { readonly what: 'forwarding'; readonly index: number | undefined };

/** linux/netconf.h: struct netconfmsg { __u8 ncm_family; }, NETCONFA_* */
const netconfMessage = traced(
  'NETLINK_ROUTE',
  { [RTM_NEWNETCONF]: 'RTM_NEWNETCONF' },
  layout(
    struct('netconfmsg', [
      ['family', u8],
      ['_pad1', u8],
      ['_pad2', u8],
      ['_pad3', u8],
    ]),
    attrs('netconf', { index: [1, s32], forwarding: [2, s32] }),
  ),
);

/**
 * What {@link decodeRouteNotification} reads, which is half of what the kernel says of an ADD. The first byte of the type is all of it, and the first one
 * after the envelope is the family.
 */
export const ROUTE_FILTER: readonly Instruction[] = routeFilter([
  ...[RTM_NEWLINK, RTM_DELLINK, RTM_DELADDR, RTM_DELROUTE, RTM_DELQDISC, RTM_DELTFILTER, RTM_NEWNETCONF],
]);

function routeFilter(types: readonly number[]): Instruction[] {
  const [LDB, JEQ, RET] = [0x30, 0x15, 0x06];
  return [
    [LDB, 0, 0, 4],
    ...types.map((type, i): Instruction => [JEQ, types.length - i, 0, type]),
    [RET, 0, 0, 0],
    [LDB, 0, 0, 16],
    [JEQ, 0, 1, AF_BRIDGE],
    [RET, 0, 0, 0],
    [RET, 0, 0, 0xffff_ffff],
  ];
}

/** @returns undefined for an addition, and for what no attachment consists of */
export function decodeRouteNotification({ type, body }: Envelope): RouteNotification | undefined {
  if (type === RTM_NEWLINK || type === RTM_DELLINK) return decodeDevice(type, body);
  if (type === RTM_DELADDR) return { what: 'address', index: ifaddrmsg.decode(body).index };
  if (type === RTM_DELQDISC || type === RTM_DELTFILTER) {
    const { index, handle } = tcmsg.decode(body);
    // The kernel's default, which the first discipline takes the place of.
    const isDefault = type === RTM_DELQDISC && handle === 0;
    return isDefault ? undefined : { what: 'traffic control', index };
  }
  if (type === RTM_DELROUTE) {
    const index = routeMessage.decode(body).attrs.oif;
    return index === undefined ? undefined : { what: 'route', index };
  }
  if (type !== RTM_NEWNETCONF) return undefined;
  const { index, forwarding } = netconfMessage.decode(body).attrs;
  if (forwarding !== 0 || index === undefined) return undefined;
  if (index === NETCONFA_IFINDEX_ALL) return { what: 'forwarding', index: undefined };
  // -2 is the default for devices to come.
  return index > 0 ? { what: 'forwarding', index } : undefined;
}

function decodeDevice(type: number, body: Uint8Array): RouteNotification | undefined {
  const { header, attrs: own } = linkMessage.decode(body);
  const { index, flags, family } = header;
  // A port that leaves its bridge is deleted for the bridge alone.
  if (own.ifname === undefined || family === AF_BRIDGE) return undefined;
  const isGone = type === RTM_DELLINK;
  return {
    what: 'device',
    index,
    name: own.ifname,
    isGone,
    isUp: (flags & IFF_UP) !== 0,
    master: own.master ?? 0,
    mac: own.address,
    mtu: own.mtu ?? 0,
    peer: own.link ?? 0,
    nsid: own.linkNetnsId,
  };
}
