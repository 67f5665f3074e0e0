// Does the container have an entry of its own for the gateway that leads nowhere?
import type { Cidr } from '../../../src/net/cidr.ts';
import { renderIp, sameIp } from '../../../src/net/ip.ts';
import type { Link } from '../../../src/netlink/rtnl/link.ts';
import {
  listPermanentNeighbours,
  type Neighbour,
  removeNeighbour,
} from '../../../src/netlink/rtnl/neighbour.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';

/** @throws Error naming a permanent neighbour entry of the container with another hardware address than the gateway's */
export function checkNeighbours(
  container: NetlinkSocket,
  inside: Link,
  target: Link,
  gateways: readonly Cidr[],
): void {
  const [wrong] = findWrong(container, inside, target, gateways);
  if (wrong === undefined) return;
  throw new Error(
    `Cannot confirm gateway ${renderIp(wrong.ip)} of "${inside.name}": ` +
      `a permanent neighbour entry says ${wrong.mac}, but "${target.name}" has ${target.mac}`,
  );
}

/** Removes them; the container then asks who has the address. */
export function removeWrongNeighbours(
  container: NetlinkSocket,
  inside: Link,
  target: Link,
  gateways: readonly Cidr[],
): void {
  for (const wrong of findWrong(container, inside, target, gateways)) removeNeighbour(container, wrong);
}

function findWrong(
  container: NetlinkSocket,
  inside: Link,
  target: Link,
  gateways: readonly Cidr[],
): Neighbour[] {
  return listPermanentNeighbours(container).filter(
    ({ index, ip, mac }) =>
      index === inside.index && mac !== target.mac && gateways.some(gateway => sameIp(gateway.ip, ip)),
  );
}
