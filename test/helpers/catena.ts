// How does a test run the compiled tool in a fake host, as root or as an ordinary user?

import fs from 'node:fs';
import path from 'node:path';
import type { Finished, RunOptions } from './command.ts';
import type { Lab } from './netns.ts';
import { BIN_DIR } from './plugin.ts';
import type { Need } from './skip.ts';

/** The compiled tool. */
export const CATENA = path.join(BIN_DIR, 'catena');

/** How the kernel names a process of the command: by the program that the front has executed, if there is a front. */
export const PROGRAM = inodeOf('catena') === inodeOf('catena-core') ? 'catena' : 'catena-core';

function inodeOf(name: string): number | undefined {
  return fs.statSync(path.join(BIN_DIR, name), { throwIfNoEntry: false })?.ino;
}

/** Starts a program as an ordinary user, uid 65534. */
export const AS_ORDINARY_USER = [
  'setpriv',
  '--reuid',
  '65534',
  '--regid',
  '65534',
  '--clear-groups',
  '--',
] as const;

/** Runs the tool inside the fake host. */
export function catena(lab: Lab, args: readonly string[], options: RunOptions = {}): Promise<Finished> {
  return lab.run(lab.host, [CATENA, ...args], { timeoutMs: 50_000, ...options });
}

/** Needs an ordinary user who may create user namespaces and start the executables. */
export function requiresOrdinaryUser(): Need {
  const works = (argv: readonly string[]) => {
    return Bun.spawnSync([...AS_ORDINARY_USER, ...argv], { stdout: 'ignore', stderr: 'ignore' }).success;
  };
  if (!works([CATENA, '--version'])) return 'needs executables that every user may start';
  return works(['unshare', '--user', '--map-root-user', '--net', '--mount', 'true'])
    ? undefined
    : 'needs user namespaces for ordinary users';
}
