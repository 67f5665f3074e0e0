// How are the tunnel devices made as planned, and others of these names left alone?
import { sameIp } from '../net/ip.ts';
import {
  createLink,
  findLinks,
  getLink,
  IFF_UP,
  type Link,
  removeLinks,
  setLink,
  vxlanOf,
} from '../netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { TUNNEL_ALIAS, TUNNELS } from './names.ts';
import type { TunnelPlan } from './plan.ts';

const NAMES = Object.values(TUNNELS);

/** The tunnel devices that exist, ours and others of their names. */
interface FoundTunnels {
  readonly ours: readonly Link[];
  readonly foreign: readonly Link[];
}

/** Devices with the names of tunnels. One that we were about to name when we were killed has no alias yet. */
export function findTunnels(socket: NetlinkSocket): FoundTunnels {
  const found = findLinks(socket, NAMES).filter(link => link !== undefined);
  const isOurs = ({ kind, attrs: { alias } }: Link) =>
    kind === 'vxlan' && (alias === undefined || alias === '' || alias === TUNNEL_ALIAS);
  return { ours: found.filter(isOurs), foreign: found.filter(link => !isOurs(link)) };
}

/** What is wrong with a device that is ours, human-readable; undefined: it is missing altogether. */
export function tunnelProblems(plan: TunnelPlan, link: Link | undefined): readonly string[] | undefined {
  if (link === undefined) return undefined;
  return [
    ...(isSameTunnel(plan, link) ? [] : ['it has other ends, or learns']),
    ...(link.mac === plan.mac ? [] : [`its hardware address is ${link.mac}`]),
    ...(link.mtu === plan.mtu ? [] : [`its MTU is ${link.mtu}`]),
    ...(link.flags & IFF_UP ? [] : ['it is down']),
    ...(link.attrs.alias === TUNNEL_ALIAS ? [] : ['it has no alias']),
  ];
}

/**
 * Makes a device as planned.
 * @param link the device, if there is one of ours
 * @returns what was changed, human-readable, and the device's index
 * @throws NetlinkError when the kernel refuses
 */
export function applyTunnel(
  socket: NetlinkSocket,
  plan: TunnelPlan,
  link: Link | undefined,
): { readonly index: number; readonly changed: readonly string[] } {
  const { name, mac, mtu, vni: id, local, port } = plan;
  const problems = tunnelProblems(plan, link);
  if (link && problems?.length === 0) return { index: link.index, changed: [] };
  if (link && isSameTunnel(plan, link)) {
    setLink(socket, link.index, { mac, mtu, alias: TUNNEL_ALIAS, up: true });
    return { index: link.index, changed: [`set device "${name}": ${problems?.join(', ')}`] };
  }
  if (link) removeLinks(socket, [link.index]);
  createLink(socket, { name, kind: 'vxlan', mac, mtu, vxlan: { id, local, port } });
  const { index } = getLink(socket, name);
  setLink(socket, index, { alias: TUNNEL_ALIAS, up: true });
  return { index, changed: [`${link ? 'make again' : 'make'} device "${name}"`] };
}

function isSameTunnel({ vni, local, port }: TunnelPlan, link: Link): boolean {
  const found = vxlanOf(link);
  return (
    found !== undefined &&
    found.id === vni &&
    found.port === port &&
    sameIp(found.local, local) &&
    !found.learning
  );
}
