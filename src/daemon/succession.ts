// How does a daemon start its successor after its executable was replaced?
import { statSync } from 'node:fs';
import type { Place } from './protocol.ts';

/** How this process was started. */
export interface OwnStart {
  /** Path of the executable, which may already be another file. */
  readonly program: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  /** A service manager starts the next daemon. */
  readonly isManaged: boolean;
}

/** `ending`: this daemon ends, and its service manager starts the next one. `same`: the executable is still the same. */
export type Succession = { readonly successor: number } | 'ending' | 'same';

const REPLACE = '--replace';

/**
 * Starts the file that now has this executable's name, with the same options, environment and outputs. It asks this daemon to hand over
 * once it can listen; until then, and if it never can, this one serves.
 * @throws Error if it cannot be started
 */
export function startSuccessor(
  { program, args, cwd, isManaged }: OwnStart,
  { executable }: Place,
): Succession {
  const { dev, ino } = statSync(program);
  if (`${dev}:${ino}` === executable) return 'same';
  if (isManaged) return 'ending';
  const options = args.includes(REPLACE) ? args : [...args, REPLACE];
  const child = Bun.spawn([program, ...options], {
    argv0: 'catena',
    env: process.env,
    cwd: cwd ?? '/',
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  child.unref();
  return { successor: child.pid };
}
