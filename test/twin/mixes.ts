// Which chains are run with which mix of plugins?

import type { Lab, Row } from '../helpers/netns.ts';

/** What all mixes of a chain have in common. */
export interface Variant {
  readonly chain: ChainName;
  readonly cniVersion: '0.4.0' | '1.0.0';
  readonly families: 'IPv4' | 'dual';
}

export type ChainName = 'ports' | 'guarded';

/** One cell of the matrix: the plugins that are the reference's; all others are ours. */
export interface Mix extends Variant {
  readonly theirs: readonly string[];
}

/** Executables of each chain, in the order in which ADD calls them. */
export const PLUGINS: Readonly<Record<ChainName, readonly string[]>> = {
  ports: ['bridge', 'host-local', 'portmap', 'bandwidth', 'tuning'],
  guarded: ['bridge', 'host-local', 'firewall', 'portmap', 'bandwidth', 'tuning'],
};

const VARIANTS: readonly Omit<Variant, 'chain'>[] = [
  { cniVersion: '0.4.0', families: 'IPv4' },
  { cniVersion: '0.4.0', families: 'dual' },
  { cniVersion: '1.0.0', families: 'IPv4' },
  { cniVersion: '1.0.0', families: 'dual' },
];

/** Every combination of the first chain in every variant, and of the second one in the newest. */
export function wholeMatrix(): Mix[] {
  return [
    ...VARIANTS.flatMap(variant => combinations('ports').map(theirs => mixOf('ports', variant, theirs))),
    ...combinations('guarded').map(theirs => mixOf('guarded', NEWEST, theirs)),
  ];
}

/**
 * Every combination of the first chain once, distributed over the variants so that every pair of plugins occurs equally often in
 * each variant in all its four combinations; of the second chain each plugin alone, and all but it.
 */
export function sampleOfMatrix(): Mix[] {
  const spread = combinations('ports').map(theirs => {
    const [a, b, c, d, e] = PLUGINS.ports.map(link => Number(theirs.includes(link)));
    const at = 2 * parity(a, b, c) + parity(c, d, e);
    return mixOf('ports', VARIANTS[at] ?? NEWEST, theirs);
  });
  const few = combinations('guarded').filter(({ length }) => [0, 1, 6].includes(length));
  return [...spread, ...few.map(theirs => mixOf('guarded', NEWEST, theirs))];
}

/** The name of a mix in tests and in the table. */
export function nameOf({ chain, families, theirs }: Mix): string {
  const who = theirs.length === 0 ? 'all ours' : `theirs: ${theirs.join(' ')}`;
  return `swap, ${chain}, ${families}, ${who}`;
}

/** The conflist, with all its files inside the lab. */
export function listOf({ chain, cniVersion, families }: Variant, lab: Lab): Row {
  const v6 = families === 'dual' ? [[{ subnet: 'fd88::/64' }]] : [];
  const ipam = {
    type: 'host-local',
    ranges: [[{ subnet: '10.88.0.0/24' }], ...v6],
    dataDir: `${lab.tmp}/leases`,
  };
  const rate = { ingressRate: 200_000_000, ingressBurst: 4_000_000 };
  const backRate = { egressRate: 100_000_000, egressBurst: 2_000_000 };
  return {
    cniVersion,
    name: 'podnet',
    plugins: [
      { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipMasq: true, hairpinMode: true, ipam },
      ...(chain === 'guarded' ? [{ type: 'firewall', backend: 'iptables' }] : []),
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'bandwidth', ...rate, ...backRate },
      { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' }, mtu: 1400, dataDir: `${lab.tmp}/tuning` },
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
