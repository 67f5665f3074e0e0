// How is an iptables program found and run? These are the only external programs that our plugins run.
import { renderErrno } from '../../sys/errno.ts';
import { faultAt } from '../../sys/fault.ts';
import { exchange } from '../socket.ts';

/** Directories that a runtime's `PATH` may lack. */
const SYSTEM_DIRS = ['/usr/local/sbin', '/usr/sbin', '/sbin'];
/** Shorter than the time that a runtime gives a plugin. */
const DEADLINE_MS = 30_000;

/**
 * Path of the first program that is installed.
 * @throws Error naming all of them when none is installed
 */
export function getProgram(names: readonly string[]): string {
  for (const name of names) {
    const path = findProgram(name);
    if (path) return path;
  }
  throw new Error(`Cannot find "${names.join('" or "')}": it is not installed in ${searchDirs().join(', ')}`);
}

/** True when the program is installed. */
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
