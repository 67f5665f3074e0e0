// Which rules does a namespace have in the words of iptables, whichever packet filter is behind it?
import { readFileSync } from 'node:fs';
import { getProgram, runProgram } from '../netlink/iptables/program.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { inNetns, type Netns } from '../sys/netns.ts';
import type { Observed } from './observation.ts';
import { listTableNames } from './observe-nft.ts';

/** Programs that print rules, with the family of their tables, and where the kernel lists those of the older kind. */
const SAVERS = [
  { family: 'ip', program: 'iptables-nft-save', older: undefined },
  { family: 'ip6', program: 'ip6tables-nft-save', older: undefined },
  { family: 'ip', program: 'iptables-legacy-save', older: '/proc/thread-self/net/ip_tables_names' },
  { family: 'ip6', program: 'ip6tables-legacy-save', older: '/proc/thread-self/net/ip6_tables_names' },
] as const;

/** Rules, and the tables of nf_tables that they are in. */
export interface Iptables {
  readonly rules: readonly (readonly [string, Observed])[];
  /** As `ip nat`: what nf_tables has there are the same rules in words that nobody knows. */
  readonly tables: ReadonlySet<string>;
}

/** Tables that iptables makes in nf_tables. */
const OWN_TABLES = /^ip6? (filter|nat|mangle|raw|security)$/;

/** Asks the programs that are installed; a namespace without such rules has none. */
export function observeIptables(netns: Netns, socket: NetlinkSocket): Iptables {
  const present = listTableNames(socket);
  const rules: (readonly [string, Observed])[] = [];
  const tables = new Set<string>();
  for (const { family, program, older } of SAVERS) {
    // A program costs more than all the rest of a look.
    if (older === undefined && !present.some(name => OWN_TABLES.test(name) && name.startsWith(`${family} `)))
      continue;
    const text = inNetns(netns, () => save(program, older));
    let table = '';
    for (const line of text.split('\n')) {
      if (line.startsWith('*')) {
        table = line.slice(1);
        if (older === undefined) tables.add(`${family} ${table}`);
      } else if (line.startsWith(':')) {
        // Packet and byte counts follow in brackets.
        const [chain = '', policy = ''] = line.slice(1).split(' ');
        // A built-in chain that lets everything pass is as none.
        if (policy !== 'ACCEPT') rules.push([`${family} ${table}: chain ${chain}`, { policy }]);
      } else if (line.startsWith('-')) rules.push([`${family} ${table}: ${line}`, {}]);
    }
  }
  return { rules, tables };
}

/** Asking the older kind would make its tables, so the kernel is asked first whether there are any. */
function save(name: string, older: string | undefined): string {
  try {
    if (older !== undefined && readFileSync(older, 'utf8').trim() === '') return '';
    return runProgram(`list rules with "${name}"`, [getProgram([name])]);
  } catch {
    // What is not there, or not for us to see, has made no rules here.
    return '';
  }
}
