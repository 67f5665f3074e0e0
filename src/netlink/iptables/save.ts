// Which chains and rules does a table have, in iptables-save syntax?
import type { Family } from '../../net/ip.ts';
import { getProgram, runProgram } from './program.ts';
import type { IptablesMode, IptablesTable } from './restore.ts';

const PROGRAMS: Readonly<Record<Family, Readonly<Record<IptablesMode, readonly string[]>>>> = {
  4: { any: ['iptables-save'], legacy: ['iptables-legacy-save', 'iptables-save'] },
  6: { any: ['ip6tables-save'], legacy: ['ip6tables-legacy-save', 'ip6tables-save'] },
};

/** A table as iptables prints it. */
export interface SavedTable {
  readonly chains: readonly string[];
  /** Rules in order, without the command in front: `FORWARD -s 10.9.0.2/32 -j ACCEPT`. */
  readonly rules: readonly string[];
}

/**
 * Reads a table. Costs running a program, and grows with the table.
 * @param mode `legacy` for rules in the legacy packet filter, whatever the system's default is
 * @throws Error with the program's message, or when the program is missing
 * Same as: `iptables-save -t <table>`
 */
export function saveTable(family: Family, table: IptablesTable, mode: IptablesMode = 'any'): SavedTable {
  const program = getProgram(PROGRAMS[family][mode]);
  return parseSaved(runProgram(`read the table "${table}" with "${program}"`, [program, '-t', table]));
}

/** Parses the chains and rules that `iptables-save` printed. */
export function parseSaved(text: string): SavedTable {
  const lines = text.split('\n');
  return {
    chains: lines.flatMap(line => (line.startsWith(':') ? (line.slice(1).split(' ')[0] ?? []) : [])),
    rules: lines.flatMap(line => (line.startsWith('-A ') ? line.slice('-A '.length).trim() : [])),
  };
}
