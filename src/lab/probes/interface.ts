// Do the interfaces of the result exist, are they up, and do they have their addresses?
import { findCidr, renderCidr } from '../../net/cidr.ts';
import { listAddresses } from '../../netlink/rtnl/addr.ts';
import { findLink } from '../../netlink/rtnl/link.ts';
import { IFF_ALLMULTI, IFF_PROMISC, IFF_UP } from '../../netlink/rtnl/link-header.ts';
import { type ConfiguredPlugin, type Finding, finding, type Probe, type Scene } from './probe.ts';

/** Promised by: each interface of the result that is in a sandbox, and the keys that configure the container's interface. */
export function interfaceProbes(scene: Scene): Probe[] {
  const { interfaces = [] } = scene.container.result;
  return interfaces.flatMap(({ name, sandbox }, index) => {
    if (!sandbox) return [];
    const settings = name === scene.ifname ? settingsOf(scene.plugins) : [];
    const promised = settings.map(({ words }) => words);
    const what = `${name} is up${promised.length ? `, ${promised.join(', ')}` : ' and matches the result'}`;
    return [{ what, run: () => look(scene, name, index, settings) }];
  });
}

interface Setting {
  readonly words: string;
  holds(link: NonNullable<ReturnType<typeof findLink>>): boolean;
}

/** Keys by which plugins configure the container's interface; the last plugin that sets a key wins. */
function settingsOf(plugins: readonly ConfiguredPlugin[]): Setting[] {
  const wanted = new Map<string, Setting>();
  for (const { conf } of plugins) {
    const { mtu, mac, promisc, allmulti, txQLen } = conf;
    if (isPositive(mtu)) wanted.set('mtu', { words: `mtu ${mtu}`, holds: link => link.mtu === mtu });
    if (isPositive(txQLen)) {
      wanted.set('txQLen', { words: `txqlen ${txQLen}`, holds: link => link.attrs.txqlen === txQLen });
    }
    if (typeof mac === 'string' && mac !== '') {
      wanted.set('mac', { words: `mac ${mac}`, holds: link => link.mac === mac.toLowerCase() });
    }
    if (promisc === true)
      wanted.set('promisc', { words: 'promisc', holds: ({ flags }) => !!(flags & IFF_PROMISC) });
    if (allmulti === true) {
      wanted.set('allmulti', { words: 'allmulti', holds: ({ flags }) => !!(flags & IFF_ALLMULTI) });
    }
  }
  return [...wanted.values()];
}

function look({ container }: Scene, name: string, index: number, settings: readonly Setting[]): Finding {
  const { route } = container.place;
  const link = findLink(route, name);
  if (link === undefined) return finding(false, 'no such interface');
  if (!(link.flags & IFF_UP)) return finding(false, 'it is down');
  const broken = settings.filter(({ holds }) => !holds(link));
  if (broken.length) return finding(false, `wrong: ${broken.map(({ words }) => words).join(', ')}`);
  const there = listAddresses(route, link.index).map(({ cidr }) => renderCidr(cidr));
  const promised = (container.result.ips ?? [])
    .filter(ip => ip.interface === index)
    .map(({ address }) => {
      const cidr = findCidr(address);
      return cidr ? renderCidr(cidr) : address;
    });
  const missing = promised.filter(address => !there.includes(address));
  if (missing.length) return finding(false, `missing: ${missing.join(', ')}`);
  return finding(true, promised.length ? promised.join(', ') : 'no addresses');
}

function isPositive(value: unknown): value is number {
  return typeof value === 'number' && value > 0;
}
