// How are rules handed to iptables-restore? The only external program that a link runs by itself.
import { accessSync, constants } from 'node:fs';
import { renderErrno } from '../../sys/errno.ts';
import { faultAt } from '../../sys/fault.ts';
import type { Family } from './nat-rule.ts';

/** Directories that a runtime's `PATH` may lack. */
const SYSTEM_DIRS = ['/usr/local/sbin', '/usr/sbin', '/sbin'];
/** How long the program may wait for others that change the rules; they take turns. */
const LOCK_WAIT_S = 15;
/** Shorter than a runtime's patience with a link. */
const DEADLINE_MS = 30_000;

/** Programs by preference; `legacy` only reaches the rules that the old packet filter keeps. */
const PROGRAMS: Readonly<Record<Family, Readonly<Record<'any' | 'legacy', readonly string[]>>>> = {
  4: { any: ['iptables-restore'], legacy: ['iptables-legacy-restore', 'iptables-restore'] },
  6: { any: ['ip6tables-restore'], legacy: ['ip6tables-legacy-restore', 'ip6tables-restore'] },
};

/**
 * Applies lines to the table "nat" in one transaction; what they do not mention stays.
 * @param mode `legacy` for rules that the old packet filter keeps, whatever the system uses now
 * @throws Error with the words of the program, when it is missing, or when it does not end
 * Same as: `iptables-restore --noflush --wait`
 */
export function restoreNat(family: Family, lines: readonly string[], mode: 'any' | 'legacy' = 'any'): void {
  const program = getRestore(family, mode);
  const action = `change rules of the table "nat" with "${program}"`;
  const fault = faultAt(action);
  if (fault !== undefined) throw new Error(`Cannot ${action}: ${renderErrno(fault)}`);
  const finished = Bun.spawnSync([program, '--noflush', '--wait', String(LOCK_WAIT_S)], {
    env: { PATH: searchDirs().join(':'), LC_ALL: 'C' },
    stdin: new TextEncoder().encode(['*nat', ...lines, 'COMMIT', ''].join('\n')),
    stdout: 'ignore',
    stderr: 'pipe',
    timeout: DEADLINE_MS,
    killSignal: 'SIGKILL',
  });
  if (finished.success) return;
  const words = new TextDecoder().decode(finished.stderr).trim().replaceAll('\n', '; ');
  const state = finished.exitedDueToTimeout
    ? `it has not ended after ${DEADLINE_MS / 1000} s`
    : words || `it ended with ${finished.signalCode ?? `exit code ${finished.exitCode}`}`;
  throw new Error(`Cannot ${action}: ${state}`);
}

/**
 * Path of the program.
 * @throws Error naming it when it is not installed
 */
export function getRestore(family: Family, mode: 'any' | 'legacy' = 'any'): string {
  const names = PROGRAMS[family][mode];
  for (const name of names) {
    const path = searchDirs()
      .map(dir => `${dir}/${name}`)
      .find(isExecutable);
    if (path) return path;
  }
  throw new Error(`Cannot find "${names.join('" or "')}": it is not installed in ${searchDirs().join(', ')}`);
}

function searchDirs(): string[] {
  const own = (process.env.PATH ?? '').split(':').filter(dir => dir.startsWith('/'));
  return [...new Set([...own, ...SYSTEM_DIRS])];
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
