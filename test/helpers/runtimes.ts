// Where do tests find podman and containerd, without installing them on the machine?
// Their packages start services and put configuration into /etc/cni/net.d, and they would replace another build of containerd
// that is already installed. So they are downloaded with apt-get and only unpacked.

import fs from 'node:fs';
import path from 'node:path';
import { TEST_PATH } from './command.ts';
import type { Need } from './skip.ts';
import { libraryDirs, unpackedAt, unpackPackages } from './unpack.ts';

const PACKAGES = ['podman', 'containerd', 'runc', 'busybox-static'];

const UNPACKED = unpackedAt('catena-runtimes');

/** How programs of the packages are started: they come first in the `PATH`, and find their libraries. */
export const RUNTIME_ENV: Readonly<Record<'PATH' | 'LD_LIBRARY_PATH', string>> = {
  PATH: [...['usr/bin', 'usr/sbin', 'bin'].map(dir => path.join(UNPACKED, dir)), TEST_PATH].join(':'),
  /** Looked up at each use: a process that unpacked the packages itself needs them too. */
  get LD_LIBRARY_PATH() {
    return libraryDirs(UNPACKED).join(':');
  },
};

/** Whether a test file starts runtimes. */
export function needsRuntimes(file: string): boolean {
  return /^test\/e2e\/(podman|podman-networks|image|containerd|containerd-networks|handover|podman-rollback|damages|podman-damages|containerd-damages)\.test\.ts$/.test(
    file,
  );
}

/** The full path of a runtime's program; throws if it is missing, which {@link requiresRuntime} detects first. */
export function runtimeProgram(name: string): string {
  const found = Bun.which(name, { PATH: RUNTIME_ENV.PATH });
  if (found === null) throw new Error(`Cannot find "${name}": the packages of runtimes are not unpacked`);
  return found;
}

/** Needs programs of runtimes, and root of the machine itself, since containers need cgroups and mounts. */
export function requiresRuntime(...programs: string[]): Need {
  const isRoot = /^\s*0\s+0\s+4294967295\s*$/.test(fs.readFileSync('/proc/self/uid_map', 'utf8'));
  if (process.getuid?.() !== 0 || !isRoot) return 'needs root of the machine to run containers';
  const missing = programs.filter(name => Bun.which(name, { PATH: RUNTIME_ENV.PATH }) === null);
  return missing.length === 0 ? undefined : `needs ${missing.map(name => `"${name}"`).join(', ')} of Debian`;
}

/**
 * Downloads and unpacks the packages unless an earlier run did. If that is impossible, tests use what the machine has in its
 * `PATH`, or are skipped.
 * @returns a line for the reader if it failed
 */
export function unpackRuntimes(): Promise<string | undefined> {
  return unpackPackages(UNPACKED, PACKAGES);
}
