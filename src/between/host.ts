// Which devices of this node may lead to other nodes?
import { RT_SCOPE_UNIVERSE } from '../netlink/rtnl/addr.ts';
import { IFF_LOOPBACK, IFF_UP } from '../netlink/rtnl/link.ts';
import type { Tables } from '../netlink/tables.ts';
import type { HostLink } from './plan.ts';

/** Aliases of the devices that we made: bridges, ends of pairs, tunnels. */
const OUR_ALIAS = /^catena\b/;

/** Devices with addresses, without loopback and those of pods. */
export function hostLinksOf(kernel: Tables): HostLink[] {
  const addresses = new Map<number, HostLink['addresses'][number][]>();
  for (const { index, cidr, scope } of kernel.addresses) {
    if (scope !== RT_SCOPE_UNIVERSE) continue;
    const own = addresses.get(index);
    if (own) own.push(cidr);
    else addresses.set(index, [cidr]);
  }
  return kernel.links.flatMap(({ index, name, mtu, flags, attrs }) => {
    const own = addresses.get(index);
    if (own === undefined || flags & IFF_LOOPBACK || OUR_ALIAS.test(attrs.alias ?? '')) return [];
    return { index, name, mtu, isUp: (flags & IFF_UP) !== 0, addresses: own };
  });
}
