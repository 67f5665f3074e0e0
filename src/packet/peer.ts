// Does a packet for a pod of another node take a route to that node?
import type { Packet } from '../doctor/filter/packet.ts';
import { cidrContains, renderCidr } from '../net/cidr.ts';
import { parseIp } from '../net/ip.ts';
import { RT_TABLE_MAIN } from '../netlink/rtnl/route.ts';
import type { Walk } from './hop.ts';
import { hop } from './report.ts';
import type { World } from './world.ts';

/** Without a route to the block, the packet takes a wider one, such as the default route, and gets lost there. */
export function* judgePeer(world: World, packet: Packet, device: string): Walk {
  const { destination = '' } = packet;
  const { node } = world;
  const peer = world.findPeer(destination);
  if (peer === undefined) return;
  const ip = parseIp(destination);
  const routes = node.tables.routes.filter(
    ({ dst, table = RT_TABLE_MAIN }) => table === RT_TABLE_MAIN && cidrContains(dst, ip),
  );
  const smallest = Math.max(...routes.map(({ dst }) => dst.prefix), 0);
  if (smallest >= peer.block.prefix) return;
  const words = `${destination} is an address of node "${peer.node}", but no route leads to its block ${renderCidr(peer.block)}: the packet leaves through "${device}" with a wider one`;
  yield hop(node, packet, 'route', 'stops', words, world.routeCommand(node, destination));
}
