// Which chains are run with which mix of plugins?

import type { Lab, Row } from '../helpers/netns.ts';
import { LAN } from './lan.ts';

/** What all mixes of a chain have in common. */
export interface Variant {
  readonly chain: ChainName;
  readonly cniVersion: '0.4.0' | '1.0.0';
  readonly families: 'IPv4' | 'dual';
}

export type ChainName = 'ports' | 'guarded' | 'macvlan' | 'host-device';

/** One cell of the matrix: the plugins that are the reference's; all others are ours. */
export interface Mix extends Variant {
  readonly theirs: readonly string[];
}

/** Executables of each chain, in the order in which ADD calls them. */
export const PLUGINS: Readonly<Record<ChainName, readonly string[]>> = {
  ports: ['bridge', 'host-local', 'portmap', 'bandwidth', 'tuning'],
  guarded: ['bridge', 'host-local', 'firewall', 'portmap', 'bandwidth', 'tuning'],
  macvlan: ['macvlan', 'host-local', 'tuning'],
  'host-device': ['host-device', 'host-local', 'tuning'],
};

/** The chains whose pods are connected through devices of the host instead of a bridge. */
const LAN_CHAINS: readonly ChainName[] = ['macvlan', 'host-device'];

export function isOnLan({ chain }: Pick<Variant, 'chain'>): boolean {
  return LAN_CHAINS.includes(chain);
}

/** Whether ports of the host lead to the pods of a chain. */
export function mapsPorts({ chain }: Pick<Variant, 'chain'>): boolean {
  return PLUGINS[chain].includes('portmap');
}

const VARIANTS: readonly Omit<Variant, 'chain'>[] = [
  { cniVersion: '0.4.0', families: 'IPv4' },
  { cniVersion: '0.4.0', families: 'dual' },
  { cniVersion: '1.0.0', families: 'IPv4' },
  { cniVersion: '1.0.0', families: 'dual' },
];

/** Every combination of every chain in every variant; of the long one in the newest only. */
export function wholeMatrix(): Mix[] {
  const inAll = (['ports', ...LAN_CHAINS] as const).flatMap(chain => {
    return VARIANTS.flatMap(variant => combinations(chain).map(theirs => mixOf(chain, variant, theirs)));
  });
  return [...inAll, ...combinations('guarded').map(theirs => mixOf('guarded', NEWEST, theirs))];
}

/**
 * Every combination of the first chain once, distributed over the variants so that every pair of plugins occurs equally often in
 * each variant in all its four combinations; of the second chain each plugin alone, and all but it; of the others every
 * combination in the newest variant.
 */
export function sampleOfMatrix(): Mix[] {
  const spread = combinations('ports').map(theirs => {
    const [a, b, c, d, e] = PLUGINS.ports.map(link => Number(theirs.includes(link)));
    const at = 2 * parity(a, b, c) + parity(c, d, e);
    return mixOf('ports', VARIANTS[at] ?? NEWEST, theirs);
  });
  const few = combinations('guarded').filter(({ length }) => [0, 1, 6].includes(length));
  const onLan = LAN_CHAINS.flatMap(chain => combinations(chain).map(theirs => mixOf(chain, NEWEST, theirs)));
  return [...spread, ...few.map(theirs => mixOf('guarded', NEWEST, theirs)), ...onLan];
}

/** The name of a mix in tests and in the table. */
export function nameOf({ chain, families, theirs }: Mix): string {
  const who = theirs.length === 0 ? 'all ours' : `theirs: ${theirs.join(' ')}`;
  return `swap, ${chain}, ${families}, ${who}`;
}

/** The conflist of one of the two pods, with all its files inside the lab. A device that moves is the pod's own. */
export function listOf({ chain, cniVersion, families }: Variant, lab: Lab, pod: 'one' | 'peer' = 'one'): Row {
  const v6 = families === 'dual' ? [[{ subnet: 'fd88::/64' }]] : [];
  const ipam = {
    type: 'host-local',
    ranges: [[{ subnet: '10.88.0.0/24' }], ...v6],
    dataDir: `${lab.tmp}/leases`,
  };
  const rate = { ingressRate: 200_000_000, ingressBurst: 4_000_000 };
  const backRate = { egressRate: 100_000_000, egressBurst: 2_000_000 };
  const tuning = { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' }, dataDir: `${lab.tmp}/tuning` };
  const head = { cniVersion, name: 'podnet' };
  if (chain === 'macvlan') return { ...head, plugins: [{ type: chain, master: LAN.master, ipam }, tuning] };
  if (chain === 'host-device')
    return { ...head, plugins: [{ type: chain, device: LAN.moved[pod], ipam }, tuning] };
  return {
    ...head,
    plugins: [
      { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipMasq: true, hairpinMode: true, ipam },
      ...(chain === 'guarded' ? [{ type: 'firewall', backend: 'iptables' }] : []),
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'bandwidth', ...rate, ...backRate },
      { ...tuning, mtu: 1400 },
    ],
  };
}

const NEWEST: Omit<Variant, 'chain'> = { cniVersion: '1.0.0', families: 'dual' };

function mixOf(chain: ChainName, variant: Omit<Variant, 'chain'>, theirs: readonly string[]): Mix {
  return { chain, ...variant, theirs };
}

function combinations(chain: ChainName): string[][] {
  const plugins = PLUGINS[chain];
  return Array.from({ length: 2 ** plugins.length }, (_, bits) => plugins.filter((_, i) => bits & (1 << i)));
}

function parity(...bits: readonly (number | undefined)[]): number {
  return bits.reduce<number>((sum, bit = 0) => sum ^ bit, 0);
}
