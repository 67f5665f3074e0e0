// How is an iptables program found and run, and which packet filter does it change? No other program is run by our plugins.

import { realpathSync } from 'node:fs';
import { basename } from 'node:path';
import type { Family } from '../../net/ip.ts';
import { renderErrno } from '../../sys/errno.ts';
import { faultAt } from '../../sys/fault.ts';
import { withFlock } from '../../sys/flock.ts';
import { ownNetns } from '../../sys/netns.ts';
import { exchange } from '../socket.ts';

/**
 * The packet filter behind `iptables-restore`, according to the name of its file; a wrapper script is asked for its version.
 * @throws Error when it is not installed
 * Same as: `iptables-restore --version`
 */
export function restoreMode(family: Family): 'nft' | 'legacy' {
  const program = getRestore(family);
  const file = basename(realpathSync(program));
  if (/nft|legacy/.test(file)) return file.includes('nft') ? 'nft' : 'legacy';
  const version = runProgram(`ask "${program}" for its version`, [program, '--version']);
  return version.includes('nf_tables') ? 'nft' : 'legacy';
}

/** True when the iptables programs change that packet filter; false when there are none. */
export function doProgramsChange(family: Family, mode: 'nft' | 'legacy'): boolean {
  try {
    return restoreMode(family) === mode;
  } catch {
    return false;
  }
}

/**
 * True when the legacy packet filter has tools of its own here, and `iptables` uses nf_tables.
 * Same as: `command -v iptables-legacy-restore`, where `iptables` uses nf_tables
 */
export function hasLegacyTools(family: Family): boolean {
  const tools = `ip${family === 4 ? '' : '6'}tables-legacy`;
  return ['restore', 'save'].every(tool => isInstalled(`${tools}-${tool}`)) && restoreMode(family) === 'nft';
}

/** Directories that a runtime's `PATH` may lack. */
const SYSTEM_DIRS = ['/usr/local/sbin', '/usr/sbin', '/sbin'];
/** Shorter than the time that a runtime gives a plugin. */
const DEADLINE_MS = 30_000;

/**
 * Path of the first program that is installed.
 * @throws Error naming all of them when none is installed
 */
export function getProgram(names: readonly string[]): string {
  const [path] = names.flatMap(name => findProgram(name) ?? []);
  if (path) return path;
  throw new Error(`Cannot find "${names.join('" or "')}": it is not installed in ${searchDirs().join(', ')}`);
}

export function isInstalled(name: string): boolean {
  return findProgram(name) !== undefined;
}

/**
 * Runs a program to completion.
 * @param action human-readable purpose, for the error
 * @returns what it wrote
 * @throws Error with the program's message, or when it does not terminate
 */
export function runProgram(action: string, argv: readonly string[], input = ''): string {
  const fault = faultAt(() => action);
  if (fault !== undefined) throw new Error(`Cannot ${action}: ${renderErrno(fault)}`);
  return exchange('iptables', [{ op: action }], () => runToEnd(action, argv, input));
}

function runToEnd(action: string, argv: readonly string[], input: string): string {
  const finished = Bun.spawnSync([...argv], {
    env: { PATH: searchDirs().join(':'), LC_ALL: 'C' },
    stdin: new TextEncoder().encode(input),
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: DEADLINE_MS,
    killSignal: 'SIGKILL',
  });
  if (finished.success) return new TextDecoder().decode(finished.stdout);
  const words = new TextDecoder().decode(finished.stderr).trim().replaceAll('\n', '; ');
  const state = finished.exitedDueToTimeout
    ? `it did not finish within ${DEADLINE_MS / 1000} s`
    : words || `it ended with ${finished.signalCode ?? `exit code ${finished.exitCode}`}`;
  throw new Error(`Cannot ${action}: ${state}`);
}

function findProgram(name: string): string | undefined {
  return Bun.which(name, { PATH: searchDirs().join(':') }) ?? undefined;
}

function searchDirs(): string[] {
  const own = (process.env.PATH ?? '').split(':').filter(dir => dir.startsWith('/'));
  return [...new Set([...own, ...SYSTEM_DIRS])];
}

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
  runRestore(`change rules of the table "${table}" with "${program}"`, [program], table, lines);
}

function runRestore(
  action: string,
  argv: readonly string[],
  table: IptablesTable,
  lines: readonly string[],
): void {
  const input = [`*${table}`, ...lines, 'COMMIT', ''].join('\n');
  runProgram(action, [...argv, '--noflush', '--wait', String(LOCK_WAIT_S)], input);
}

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
  runRestore(`try rules of the table "nat" with "${program}"`, [program, '--test'], 'nat', lines);
}

/**
 * Path of the program.
 * @throws Error naming it when it is not installed
 */
export function getRestore(family: Family, mode: IptablesMode = 'any'): string {
  return getProgram(programsFor('restore', family, mode));
}

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
  return withFlock(`${dir}/${link}-${ownNetns().ino}.lock`, work, file);
}
