// Which properties of a packet can a match test?

import {
  ADDRESS_TYPES,
  type Expression,
  isEqual,
  loadAddressType,
  loadCt,
  loadMeta,
  loadTransportHeader,
  type META,
} from '../expr.ts';
import { loadAddress } from '../statements.ts';
import { findAddress, findIfname, findNamed, findPort, findU32, type Operand } from './operands.ts';

/** A property that a match compares. */
export interface Subject {
  /** Loads it into a register. */
  readonly load: (dreg: number) => readonly Expression[];
  /** Number of 32-bit registers that it occupies in a concatenation. */
  readonly quarters: number;
  readonly parse: (word: string) => Operand | undefined;
  /** Describes its values in messages: `an IPv4 address`. */
  readonly values: string;
  /** IP version that it applies to; absent for both. */
  readonly family?: 4 | 6;
  /** True if its values are ordered, in network byte order. */
  readonly ordered?: boolean;
  /** True if its bits may be masked before the comparison, as for marks. */
  readonly masked?: boolean;
  /** Bits by their names, any of which may be set. */
  readonly flags?: Readonly<Record<string, number>>;
}

/** netinet/in.h, IPPROTO_* */
const PROTOCOLS = {
  icmp: 1,
  tcp: 6,
  udp: 17,
  dccp: 33,
  'ipv6-icmp': 58,
  icmpv6: 58,
  sctp: 132,
  udplite: 136,
};
/** linux/netfilter/nf_conntrack_common.h, enum ip_conntrack_info as bits: NF_CT_STATE_BIT */
const STATES = { invalid: 1, established: 2, related: 4, new: 8, untracked: 64 };

/** Subjects by nft's names. */
export const SUBJECTS: Readonly<Record<string, Subject>> = {
  ...addresses(4),
  ...addresses(6),
  ...Object.fromEntries(['th', 'tcp', 'udp', 'sctp'].flatMap(ports)),
  ...metas('iifname', { parse: findIfname, values: 'the name of an interface' }),
  ...metas('oifname', { parse: findIfname, values: 'the name of an interface' }),
  ...metas('mark', { parse: findU32, values: 'a number', masked: true }),
  ...metas('skuid', { parse: findU32, values: 'a number' }),
  ...metas('skgid', { parse: findU32, values: 'a number' }),
  ...metas('l4proto', { parse: findNamed(PROTOCOLS, 1), values: 'a protocol' }),
  'ip protocol': {
    load: dreg => [loadMeta(dreg, 'l4proto')],
    quarters: 1,
    parse: findNamed(PROTOCOLS, 1),
    values: 'a protocol',
    family: 4,
  },
  'ct mark': {
    load: dreg => [loadCt(dreg, 'mark')],
    quarters: 1,
    parse: findU32,
    values: 'a number',
    masked: true,
  },
  'ct state': {
    load: dreg => [loadCt(dreg, 'state')],
    quarters: 1,
    parse: findNamed(STATES, 4),
    values: `one of ${Object.keys(STATES).join(', ')}`,
    flags: STATES,
  },
  'fib saddr type': addressType('saddr'),
  'fib daddr type': addressType('daddr'),
};

function addresses(family: 4 | 6): Record<string, Subject> {
  const keyword = family === 4 ? 'ip' : 'ip6';
  return Object.fromEntries(
    (['saddr', 'daddr'] as const).map(which => [
      `${keyword} ${which}`,
      {
        load: (dreg: number) => [loadAddress(family, which, dreg)],
        quarters: family === 4 ? 1 : 4,
        parse: (word: string) => findAddress(family, word),
        values: `an IPv${family} address`,
        family,
        ordered: true,
      },
    ]),
  );
}

function ports(keyword: string): [string, Subject][] {
  const protocol = PROTOCOLS[keyword as keyof typeof PROTOCOLS];
  const own = (dreg: number) =>
    protocol ? [loadMeta(dreg, 'l4proto'), isEqual(dreg, Uint8Array.of(protocol))] : [];
  return (['sport', 'dport'] as const).map((which, i) => [
    `${keyword} ${which}`,
    {
      load: dreg => [...own(dreg), loadTransportHeader(dreg, i * 2, 2)],
      quarters: 1,
      parse: findPort,
      values: 'a port as a number',
      ordered: true,
    },
  ]);
}

/** nft accepts these with and without the prefix `meta`. */
function metas(
  key: keyof typeof META,
  own: Pick<Subject, 'parse' | 'values' | 'masked'>,
): Record<string, Subject> {
  const quarters = key === 'iifname' || key === 'oifname' ? 4 : 1;
  const subject: Subject = { ...own, load: dreg => [loadMeta(dreg, key)], quarters };
  return { [key]: subject, [`meta ${key}`]: subject };
}

function addressType(which: 'saddr' | 'daddr'): Subject {
  return {
    load: dreg => [loadAddressType(dreg, which)],
    quarters: 1,
    parse: findNamed(ADDRESS_TYPES, 4),
    values: `one of ${Object.keys(ADDRESS_TYPES).join(', ')}`,
  };
}
