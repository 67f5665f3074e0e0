// How are rules read by iptables-save, and passed to iptables-restore?
import type { Family } from '../../net/ip.ts';
import { LOCK_DEADLINE_MS, withFlock } from '../../sys/flock.ts';
import { ownNetns } from '../../sys/netns.ts';
import { getProgram, runProgram } from './program.ts';

/** The iptables tables that our plugins change. */
export type IptablesTable = 'nat' | 'filter';

/** Maximum time that the program waits for the lock held by others that change the rules. */
const LOCK_WAIT_S = 15;

/** The packet filter to use: the system's default, or the legacy one. */
type IptablesMode = 'any' | 'legacy';

/** Programs by preference; `legacy` reaches only the rules of the legacy packet filter. */
function programsFor(purpose: 'restore' | 'save', family: Family, mode: IptablesMode): string[] {
  const name = family === 4 ? 'iptables' : 'ip6tables';
  return [...(mode === 'legacy' ? [`${name}-legacy-${purpose}`] : []), `${name}-${purpose}`];
}

/**
 * Applies lines to a table in one transaction; everything they do not mention is kept.
 * @param mode `legacy` for rules in the legacy packet filter, whatever the system's default is
 * @throws Error with the program's message, or when the program is missing or does not terminate
 * Same as: `iptables-restore --noflush --wait`
 */
export function restoreTable(
  family: Family,
  table: IptablesTable,
  lines: readonly string[],
  mode: IptablesMode = 'any',
): void {
  const program = getRestore(family, mode);
  runProgram(
    `change rules of the table "${table}" with "${program}"`,
    [program, '--noflush', '--wait', String(LOCK_WAIT_S)],
    [`*${table}`, ...lines, 'COMMIT', ''].join('\n'),
  );
}

/** Like {@link restoreTable}, for the table "nat". */
export function restoreNat(family: Family, lines: readonly string[], mode: IptablesMode = 'any'): void {
  restoreTable(family, 'nat', lines, mode);
}

/**
 * Tests lines for the table "nat" without applying them.
 * @throws Error with the program's message, or when the program is missing or does not terminate
 * Same as: `iptables-restore --test --noflush --wait`
 */
export function tryNat(family: Family, lines: readonly string[]): void {
  const program = getRestore(family);
  runProgram(
    `try rules of the table "nat" with "${program}"`,
    [program, '--test', '--noflush', '--wait', String(LOCK_WAIT_S)],
    ['*nat', ...lines, 'COMMIT', ''].join('\n'),
  );
}

/**
 * Path of the program.
 * @throws Error naming it when it is not installed
 */
export function getRestore(family: Family, mode: IptablesMode = 'any'): string {
  return getProgram(programsFor('restore', family, mode));
}

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
  const program = getProgram(programsFor('save', family, mode));
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

/**
 * Runs a function while no other call of this plugin runs one in this namespace. Our own processes therefore change nothing
 * between its reads and its changes.
 * @param dir directory of the lock, created if missing
 * @throws Error naming the lock's holder when the wait times out
 */
export function inTurn<T>(dir: string, link: string, work: () => T): T {
  const file = { mode: 0o600, directoryMode: 0o700 };
  return withFlock(`${dir}/${link}-${ownNetns().ino}.lock`, LOCK_DEADLINE_MS, work, file);
}
