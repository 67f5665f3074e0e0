// Which iptables rules does a namespace have, in either packet filter?
import { readFileSync } from 'node:fs';
import { getProgram, runProgram } from '../netlink/iptables/program.ts';
import { keyOf, type Tables } from '../netlink/tables.ts';
import { inNetns, type Netns } from '../sys/netns.ts';
import type { Observed } from './observation.ts';

/** Programs that print rules, their table family, and for the legacy packet filter the kernel's list of tables. */
const SAVERS = [
  { family: 'ip', program: 'iptables-nft-save', older: undefined },
  { family: 'ip6', program: 'ip6tables-nft-save', older: undefined },
  { family: 'ip', program: 'iptables-legacy-save', older: '/proc/thread-self/net/ip_tables_names' },
  { family: 'ip6', program: 'ip6tables-legacy-save', older: '/proc/thread-self/net/ip6_tables_names' },
] as const;

/** Rules, and the nf_tables tables that contain them. */
export interface Iptables {
  readonly rules: readonly (readonly [string, Observed])[];
  /** For example `ip nat`: nf_tables would show the same rules there in an unreadable form. */
  readonly tables: ReadonlySet<string>;
}

/** Tables that iptables creates in nf_tables. */
const OWN_TABLES = /^ip6? (filter|nat|mangle|raw|security)$/;

/** Runs the installed programs, but only where such rules exist. */
export function observeIptables(netns: Netns, tables: Tables): Iptables {
  const present = tables.nftTables.map(keyOf);
  const rules: (readonly [string, Observed])[] = [];
  const shown = new Set<string>();
  for (const { family, program, older } of SAVERS) {
    // Running a program costs more than the rest of an observation.
    if (older === undefined && !present.some(name => OWN_TABLES.test(name) && name.startsWith(`${family} `)))
      continue;
    const text = inNetns(netns, () => save(program, older));
    let table = '';
    for (const line of text.split('\n')) {
      if (line.startsWith('*')) {
        table = line.slice(1);
        if (older === undefined) shown.add(`${family} ${table}`);
      } else if (line.startsWith(':')) {
        // Packet and byte counts follow in brackets.
        const [chain = '', policy = ''] = line.slice(1).split(' ');
        // A built-in chain that accepts everything is equivalent to none.
        if (policy !== 'ACCEPT') rules.push([`${family} ${table}: chain ${chain}`, { policy }]);
      } else if (line.startsWith('-')) rules.push([`${family} ${table}: ${line}`, {}]);
    }
  }
  return { rules, tables: shown };
}

/** Running a legacy program would create its tables, so first read from the kernel whether there are any. */
function save(name: string, older: string | undefined): string {
  try {
    if (older !== undefined && readFileSync(older, 'utf8').trim() === '') return '';
    return runProgram(`list rules with "${name}"`, [getProgram([name])]);
  } catch {
    // A program that is not installed or not permitted has made no rules here.
    return '';
  }
}
