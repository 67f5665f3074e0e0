// Which chains and rules does a table have, in the words of iptables-save?
import type { Family } from './nat-rule.ts';
import { getProgram, runProgram } from './program.ts';
import type { IptablesTable } from './restore.ts';

const PROGRAMS: Readonly<Record<Family, readonly string[]>> = {
  4: ['iptables-save'],
  6: ['ip6tables-save'],
};

/** A table as iptables prints it. */
export interface SavedTable {
  readonly chains: readonly string[];
  /** Rules in order, without the command in front: `FORWARD -s 10.9.0.2/32 -j ACCEPT`. */
  readonly rules: readonly string[];
}

/**
 * Reads a table; costs a program, and grows with the table.
 * @throws Error with the words of the program, or when it is missing
 * Same as: `iptables-save -t <table>`
 */
export function saveTable(family: Family, table: IptablesTable): SavedTable {
  const program = getProgram(PROGRAMS[family]);
  return parseSaved(runProgram(`read the table "${table}" with "${program}"`, [program, '-t', table]));
}

/** Chains and rules in what `iptables-save` printed. */
export function parseSaved(text: string): SavedTable {
  const lines = text.split('\n');
  return {
    chains: lines.flatMap(line => (line.startsWith(':') ? (line.slice(1).split(' ')[0] ?? []) : [])),
    rules: lines.flatMap(line => (line.startsWith('-A ') ? line.slice('-A '.length).trim() : [])),
  };
}
