// What did the reference plugin leave in iptables for pods that no longer exist?
// Its rules do not name their owner, so what counts is whether a pod can still be there. A pod's address is on-link on some
// interface of the host: a bridge with ports, the pod's own veth, or another device. When only a route through a gateway leads
// there, or only one to a bridge without ports, the pod no longer exists.
import { cidrContains } from '../../../src/net/cidr.ts';
import { findElement } from '../../../src/netlink/nft/element.ts';
import { listLinks } from '../../../src/netlink/rtnl/link.ts';
import { listRoutes } from '../../../src/netlink/rtnl/route.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { TALLY } from '../skeleton.ts';
import { sweepIptables } from './iptables.ts';
import { isKnown } from './release.ts';

/** Removes ownerless rules from iptables, whichever network they were for. */
export function sweepLeftovers({ host, hostNft }: Call): void {
  sweepIptables(hostNft, () => {
    const devices = listLinks(host);
    const masters = new Set(devices.map(({ master }) => master));
    const deserted = devices.filter(({ kind, index }) => kind === 'bridge' && !masters.has(index));
    const inhabited = new Set(devices.filter(link => !deserted.includes(link)).map(({ name }) => name));
    const isDeserted = (index: number) => deserted.some(link => link.index === index);
    const onPlugin = listRoutes(host).filter(({ dst, gateway, ways, oif }) => {
      return dst.prefix > 0 && gateway === undefined && ways === undefined && !isDeserted(oif);
    });
    return {
      hasPod: ip => isKnown(hostNft, [ip]) || onPlugin.some(({ dst }) => cidrContains(dst, ip)),
      hasPods: name => inhabited.has(name) || findElement(hostNft, TALLY, [name]) !== undefined,
    };
  });
}
