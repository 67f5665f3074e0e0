// Which attached containers does this node route for, and through which of its devices?
import { defined } from '../../cni/json.ts';
import { cidrsOverlap, findCidr } from '../../net/ip.ts';
import type { HostRoute } from '../devices.ts';
import type { NodeAttachment, NodeModel } from '../model.ts';
import { type NodeView, ROOT, type RoutedPod } from './finding.ts';

/**
 * The addresses to which the node's own route leads through a device of the attachment. A bridge without an address and a macvlan
 * connect containers to a network that others route for.
 * @returns undefined if this user may not look into the containers, so that their devices are unknown
 */
export function routedPods(
  { attachments }: Pick<NodeModel, 'attachments'>,
  { routes, user = ROOT }: Pick<NodeView, 'routes' | 'user'>,
): RoutedPod[] | undefined {
  const standing = attachments.filter(({ state }) => state === 'attached');
  const isLimited = user.id !== 0 || user.unknown !== undefined;
  if (isLimited && standing.some(({ device }) => device === undefined)) return undefined;
  return standing.flatMap(one => podsOf(one, routes));
}

function podsOf(
  { network, containerId, ifname, addresses, ports, hostDevice, device: inside }: NodeAttachment,
  routes: readonly HostRoute[],
): RoutedPod[] {
  const own = [hostDevice?.name, hostDevice?.master];
  return addresses.flatMap((text): RoutedPod[] => {
    const [address = ''] = text.split('/');
    const device = findDevice(address, routes);
    if (device === undefined || !own.includes(device)) return [];
    const family = address.includes(':') ? 6 : 4;
    const port = hostDevice?.name === device ? undefined : hostDevice?.name;
    return [
      {
        network,
        containerId,
        ifname,
        family,
        address,
        device,
        ports,
        ...defined({ port, mtu: inside?.mtu }),
      },
    ];
  });
}

/** Of the most specific route. */
function findDevice(address: string, routes: readonly HostRoute[]): string | undefined {
  const host = findCidr(address.includes(':') ? `${address}/128` : `${address}/32`);
  if (host === undefined) return undefined;
  const leading = routes.flatMap(({ destination, device }) => {
    const cidr = findCidr(destination);
    const leads = cidr !== undefined && cidr.ip.family === host.ip.family && cidrsOverlap(cidr, host);
    return leads ? [{ prefix: cidr.prefix, device }] : [];
  });
  return leading.sort((a, b) => b.prefix - a.prefix)[0]?.device;
}
