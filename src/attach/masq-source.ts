// Which address do masqueraded packets leave with, if it is not that of the outgoing interface?
import type { Cidr } from '../net/cidr.ts';
import { findIp, type Ip } from '../net/ip.ts';

/** An address of a container with its subnet, and the source that its packets get outside that subnet. */
export interface Masqueraded extends Cidr {
  /** Undefined for an address of the outgoing interface. */
  readonly source?: Ip;
}

/** The options that decide. */
export interface MasqConf {
  readonly ipMasqSource?: readonly string[] | undefined;
  readonly ipMasqBackend?: string | undefined;
}

/** The addresses with the configured sources of their families. */
export function withSources({ ipMasqSource = [] }: MasqConf, cidrs: readonly Cidr[]): Masqueraded[] {
  const sources = ipMasqSource.flatMap(text => findIp(text) ?? []);
  return cidrs.map(cidr => {
    const source = sources.find(({ family }) => family === cidr.ip.family);
    return source ? { ...cidr, source } : cidr;
  });
}

/** What is wrong with the option's value, or undefined. */
export function findSourceProblem(conf: MasqConf): string | undefined {
  const { ipMasqSource = [] } = conf;
  const bad = ipMasqSource.find(text => findIp(text) === undefined);
  if (bad !== undefined) return `"ipMasqSource" holds ${JSON.stringify(bad)}, expected an address`;
  const families = ipMasqSource.flatMap(text => findIp(text)?.family ?? []);
  if (new Set(families).size < families.length) return '"ipMasqSource" holds two addresses of one IP version';
  if (families.length === 0 || backendOf(conf) === 'nftables') return undefined;
  return '"ipMasqSource" needs "ipMasqBackend": "nftables"';
}

/** Their names, the default first. */
const MASQ_BACKENDS = ['nftables', 'iptables'] as const;

/** One of {@link MASQ_BACKENDS}. */
export type MasqBackend = (typeof MASQ_BACKENDS)[number];

/** The packet filter of that name; the default without a name or for a name that {@link findBackendProblem} refuses. */
export function backendOf({ ipMasqBackend }: { readonly ipMasqBackend?: string | undefined }): MasqBackend {
  return MASQ_BACKENDS.find(name => name === ipMasqBackend) ?? MASQ_BACKENDS[0];
}

/** What is wrong with the option's value, or undefined. */
export function findBackendProblem(ipMasqBackend: string | undefined): string | undefined {
  if (ipMasqBackend === undefined || MASQ_BACKENDS.some(name => name === ipMasqBackend)) return undefined;
  return `"ipMasqBackend" is "${ipMasqBackend}", expected "${MASQ_BACKENDS.join('" or "')}"`;
}
