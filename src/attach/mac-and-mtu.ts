// Which hardware address and which MTU does the container's interface get?

import { TUNNEL_ALIAS, TUNNELS } from '../between/names.ts';
import { type AttachmentId, digestOf, renderOwner } from '../cni/attachment.ts';
import { pickCniArgs } from '../cni/env.ts';
import { attempt, invalidConfig } from '../cni/errors.ts';
import { isUnicastMac, parseMac, renderMac } from '../net/interface.ts';
import { parseIp } from '../net/ip.ts';
import { findLink, findLinks } from '../netlink/rtnl/link.ts';
import {
  findMatch,
  findWay,
  listDefaultRoutes,
  type Route,
  RT_TABLE_MAIN,
  waysOf,
} from '../netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { Call } from '../plugin/define.ts';

/** Where a configuration may contain a hardware address besides a key of its own. */
interface MacSources {
  readonly args?: { readonly cni?: { readonly mac?: string | undefined } | undefined } | undefined;
  readonly runtimeConfig?: { readonly mac?: string | undefined } | undefined;
}

/**
 * The requested address in colon notation, or undefined when the kernel may choose. The `mac` capability overrides
 * `args.cni.mac`, which overrides `MAC` of `CNI_ARGS`, which overrides the configured one.
 * @param configured the value of the plugin's own key, if it has one
 * @throws CniError 7 for an address that an interface cannot have
 */
export function requestedMac({ conf, args }: Call<MacSources>, configured?: string): string | undefined {
  const text = conf.runtimeConfig?.mac || conf.args?.cni?.mac || pickCniArgs(args, ['MAC']).MAC || configured;
  if (!text) return undefined;
  const bytes = tryParse(text);
  if (bytes === undefined || !isUnicastMac(bytes)) {
    throw invalidConfig(
      `Cannot use hardware address "${text}": expected six unicast bytes such as "0a:58:0a:01:02:03"`,
    );
  }
  return renderMac(bytes);
}

/**
 * The address of an attachment for which none is requested: the same at each ADD, so that neighbours and DHCP servers recognise the
 * container, and locally administered. 46 bits are derived.
 * @param segment hardware address of the device below, which no other node on the link has: container ids may repeat between nodes
 */
export function derivedMac(attachment: AttachmentId, segment: string): string {
  const digest = BigInt(`0x${digestOf(`${renderOwner(attachment)} ${segment}`)}`);
  const mixed = mix((digest >> 64n) ^ (digest & MASK));
  const bytes = Uint8Array.from({ length: 6 }, (_, i) => Number((mixed >> BigInt(8 * i)) & 0xffn));
  bytes[0] = ((bytes[0] ?? 0) & 0xfc) | 0x02;
  return renderMac(bytes);
}

const MASK = (1n << 64n) - 1n;

/** Spreads a digest, whose last bytes reach only some of its bits, over all bits: the finalizer of MurmurHash3. */
function mix(value: bigint): bigint {
  let bits = value;
  for (const factor of [0xff51afd7ed558ccdn, 0xc4ceb9fe1a85ec53n]) {
    bits = ((bits ^ (bits >> 33n)) * factor) & MASK;
  }
  return bits ^ (bits >> 33n);
}

function tryParse(text: string): Uint8Array | undefined {
  return attempt(() => parseMac(text));
}

/** The value of `mtu` that follows the host's uplink. */
export const AUTO_MTU = 'auto';

/** linux/if_ether.h, ETH_MIN_MTU */
const IPV4_MIN_MTU = 68;

/** An MTU as configured: bytes, 0 for the kernel's default, or {@link AUTO_MTU}. */
type ConfiguredMtu = number | typeof AUTO_MTU;

/**
 * @param otherwise which values it may have besides a number of bytes
 * @returns what is wrong with a configured MTU, or undefined
 */
export function findMtuProblem(
  mtu: ConfiguredMtu,
  otherwise = '0 for the default, or "auto"',
): string | undefined {
  if (mtu === AUTO_MTU || mtu === 0) return undefined;
  if (mtu >= IPV4_MIN_MTU && mtu <= 65535) return undefined;
  return `"mtu" is ${mtu}, expected ${IPV4_MIN_MTU} to 65535, ${otherwise}`;
}

/**
 * The MTU in bytes, 0 for the kernel's default. `auto` is that of the uplink, or without one of the interface of the default route, IPv4's
 * before IPv6's; a route's own MTU counts if it is smaller, and so does that of a tunnel to other nodes. Without any of them it is the
 * kernel's default.
 * @param uplink the device that leads out, if that is not up to the routes
 */
export function resolveMtu(socket: NetlinkSocket, mtu: ConfiguredMtu, uplink?: string): number {
  if (typeof mtu === 'number') return mtu;
  const tunnels = findLinks(socket, Object.values(TUNNELS)).filter(
    link => link?.attrs.alias === TUNNEL_ALIAS,
  );
  const known = [uplinkMtu(socket, uplink), ...tunnels.map(link => link?.mtu ?? 0)].filter(one => one > 0);
  return known.length ? Math.min(...known) : 0;
}

function uplinkMtu(socket: NetlinkSocket, uplink: string | undefined): number {
  if (uplink) return findLink(socket, uplink)?.mtu ?? 0;
  const route = findDefaultRoute(socket);
  const links = route ? findLinks(socket, [...new Set(waysOf(route).map(({ oif }) => oif))]) : [];
  const known = links.flatMap(link => link?.mtu ?? []);
  return known.length ? Math.min(...known, route?.mtu ?? Infinity) : 0;
}

/** RFC 5737 and RFC 3849: addresses to which only a default route leads. */
const OUTSIDE = { 4: parseIp('192.0.2.1'), 6: parseIp('2001:db8::1') };

/**
 * The default route of the main table that the kernel prefers, IPv4's if there is one. One by a next hop object names no device where
 * `nexthop_compat_mode` is off, so the kernel is asked.
 */
export function findDefaultRoute(socket: NetlinkSocket): Route | undefined {
  // To list the routes of a router takes seconds. Where rules lead a packet to another table, nothing else tells.
  const used = findMatch(socket, OUTSIDE[4]);
  const all = used && isDefault(used) ? [used] : listDefaultRoutes(socket).filter(isDefault);
  return all
    .map(one => (one.oif ? one : { ...one, oif: findWay(socket, OUTSIDE[one.dst.ip.family])?.oif ?? 0 }))
    .filter(({ oif }) => oif > 0)
    .sort((a, b) => a.dst.ip.family - b.dst.ip.family || (a.priority ?? 0) - (b.priority ?? 0))[0];
}

function isDefault({ dst, table, type }: Route): boolean {
  return dst.prefix === 0 && table === RT_TABLE_MAIN && type === undefined;
}
