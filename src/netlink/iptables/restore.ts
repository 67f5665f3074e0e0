// How are rules handed to iptables-restore?
import type { Family } from './nat-rule.ts';
import { getProgram, runProgram } from './program.ts';

/** Tables of iptables that links change. */
export type IptablesTable = 'nat' | 'filter';

/** How long the program may wait for others that change the rules; they take turns. */
const LOCK_WAIT_S = 15;

/** Which packet filter is meant: the one that the system uses, or the old one. */
export type IptablesMode = 'any' | 'legacy';

/** Programs by preference; `legacy` only reaches the rules that the old packet filter keeps. */
const PROGRAMS: Readonly<Record<Family, Readonly<Record<IptablesMode, readonly string[]>>>> = {
  4: { any: ['iptables-restore'], legacy: ['iptables-legacy-restore', 'iptables-restore'] },
  6: { any: ['ip6tables-restore'], legacy: ['ip6tables-legacy-restore', 'ip6tables-restore'] },
};

/**
 * Applies lines to a table in one transaction; what they do not mention stays.
 * @param mode `legacy` for rules that the old packet filter keeps, whatever the system uses now
 * @throws Error with the words of the program, when it is missing, or when it does not end
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
 * Has the program try lines for the table "nat", without a change.
 * @throws Error with the words of the program, when it is missing, or when it does not end
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
  return getProgram(PROGRAMS[family][mode]);
}
