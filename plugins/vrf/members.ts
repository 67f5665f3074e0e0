// How does an interface join a VRF and leave it, with its addresses and routes?
//
// The kernel takes an interface down and up again when its VRF changes (cycle_netdev in drivers/net/vrf.c). That deletes all its
// routes, in every table, and without keep_addr_on_down its IPv6 addresses. Those that the kernel makes for addresses return in the
// table of the VRF; the others are put there.
import { addRoutes } from '../../src/attach/routes.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { NetlinkError } from '../../src/netlink/errors.ts';
import { listAddresses, restoreAddress } from '../../src/netlink/rtnl/addr.ts';
import { findLink, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import { listRoutes, RT_TABLE_MAIN, removeRoute } from '../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import type { Call } from '../../src/plugin/define.ts';
import { inNetns } from '../../src/sys/netns.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import type { Vrf } from './device.ts';
import { type Belongings, belongingsOf, movedRoutes, needlessRoutes } from './plan.ts';

/**
 * Makes the interface a member. Does nothing if it is one already. Registers its own undo step.
 * @throws CniError 7 when it belongs to another device
 */
export function join(call: Call, link: Link, vrf: Vrf): void {
  const { container } = call;
  if (link.master === vrf.link.index) return;
  if (link.master !== 0) {
    const master = findLink(container, link.master)?.name ?? `device ${link.master}`;
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot add "${link.name}" to VRF "${vrf.link.name}": it belongs to "${master}"`,
    );
  }
  const before = readBelongings(container, link, RT_TABLE_MAIN);
  call.onFailure(`take "${link.name}" out of VRF "${vrf.link.name}"`, () => {
    move(call, link, before, { master: 0, from: RT_TABLE_MAIN, to: RT_TABLE_MAIN });
  });
  move(call, link, before, { master: vrf.link.index, from: RT_TABLE_MAIN, to: vrf.table });
}

/** Takes the interface out of the VRF; its routes return to the main table. */
export function leave(call: Call, link: Link, vrf: Vrf): void {
  const before = readBelongings(call.container, link, vrf.table);
  move(call, link, before, { master: 0, from: vrf.table, to: RT_TABLE_MAIN });
}

interface Move {
  /** Index of the VRF, 0 for none. */
  readonly master: number;
  readonly from: number;
  readonly to: number;
}

function move(call: Call, link: Link, before: Belongings, { master, from, to }: Move): void {
  const { container, containerNetns } = call;
  // Other plugins set it as well; without it the kernel would delete the addresses.
  inNetns(containerNetns, () => trySysctl(`net/ipv6/conf/${link.name}/keep_addr_on_down`, '1'));
  setLink(container, link.index, { master });
  restoreAddresses(container, link, before);
  for (const route of needlessRoutes(link.index, to, listRoutes(container), before))
    removeRoute(container, route);
  if (from !== to) releaseNexthops(container, link, from);
  const moved = movedRoutes(before, from, to);
  addRoutes(
    container,
    link,
    moved.filter(({ table }) => table === to),
  );
  // A preferred source is valid in these only while its own table is consulted for it.
  for (const route of moved.filter(({ table }) => table !== to)) {
    try {
      addRoutes(container, link, [route]);
    } catch (thrown) {
      if (!(thrown instanceof NetlinkError)) throw thrown;
      addRoutes(container, link, [{ ...route, source: undefined }]);
    }
  }
}

/**
 * Of a route that IPv6 combined, the kernel keeps the next hop of an interface that was down for a moment: the old table would still send
 * packets there.
 */
function releaseNexthops(socket: NetlinkSocket, { index }: Link, table: number): void {
  for (const route of belongingsOf(index, table, [], listRoutes(socket)).routes) {
    if (route.dst.ip.family === 6 && route.table === table) removeRoute(socket, route);
  }
}

function restoreAddresses(socket: NetlinkSocket, { index }: Link, { addresses }: Belongings): void {
  const present = new Set(listAddresses(socket, index).map(({ cidr }) => renderCidr(cidr)));
  for (const address of addresses) {
    if (!present.has(renderCidr(address.cidr))) restoreAddress(socket, address);
  }
}

function readBelongings(socket: NetlinkSocket, { index }: Link, from: number): Belongings {
  return belongingsOf(index, from, listAddresses(socket, index), listRoutes(socket));
}
