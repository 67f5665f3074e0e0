// Where do tests find podman and containerd, without installing them on the machine?
//
// Their packages start services and lay down configuration in /etc/cni/net.d, and where another build of containerd is
// installed they would replace it. So they are downloaded with apt-get and only unpacked.

import fs from 'node:fs';
import path from 'node:path';
import { runOk, TEST_PATH } from './command.ts';
import { aptGet } from './debian.ts';
import type { Need } from './skip.ts';

const PACKAGES = ['podman', 'containerd', 'runc', 'busybox-static'];

// As if this were the root directory.
const UNPACKED = path.resolve(import.meta.dir, '../../node_modules/.cache/catena-runtimes');

/** How programs of the packages are started: they come first in the `PATH`, and find their libraries. */
export const RUNTIME_ENV: Readonly<Record<'PATH' | 'LD_LIBRARY_PATH', string>> = {
  PATH: [...['usr/bin', 'usr/sbin', 'bin'].map(dir => path.join(UNPACKED, dir)), TEST_PATH].join(':'),
  LD_LIBRARY_PATH: libraryDirs().join(':'),
};

/** Whether a test file starts runtimes. */
export function needsRuntimes(file: string): boolean {
  return /^test\/e2e\/(podman|image|containerd|containerd-networks)\.test\.ts$/.test(file);
}

/** The full path of a runtime's program; throws when it is not there, which {@link requiresRuntime} tells before. */
export function runtimeProgram(name: string): string {
  const found = Bun.which(name, { PATH: RUNTIME_ENV.PATH });
  if (found === null) throw new Error(`Cannot find "${name}": the packages of runtimes are not unpacked`);
  return found;
}

/** Needs programs of runtimes, and root of the machine itself, since containers want cgroups and mounts. */
export function requiresRuntime(...programs: string[]): Need {
  const isRoot = /^\s*0\s+0\s+4294967295\s*$/.test(fs.readFileSync('/proc/self/uid_map', 'utf8'));
  if (process.getuid?.() !== 0 || !isRoot) return 'needs root of the machine to run containers';
  const missing = programs.filter(name => Bun.which(name, { PATH: RUNTIME_ENV.PATH }) === null);
  return missing.length === 0 ? undefined : `needs ${missing.map(name => `"${name}"`).join(', ')} of Debian`;
}

/**
 * Downloads and unpacks the packages unless an earlier run did. Where that is impossible, tests use what the machine has
 * in its `PATH`, or are skipped.
 *
 * @returns a line for the reader when it failed
 */
export async function unpackRuntimes(): Promise<string | undefined> {
  if (fs.existsSync(UNPACKED) || process.getuid?.() !== 0) return undefined;
  if (Bun.which('apt-get', { PATH: TEST_PATH }) === null) return undefined;
  process.stdout.write(`unpacking ${PACKAGES.join(' ')}\n`);
  fs.mkdirSync(path.dirname(UNPACKED), { recursive: true });
  const work = fs.mkdtempSync(`${UNPACKED}-`);
  try {
    const failure = await download(`${work}/archives`);
    if (failure !== undefined) return `Cannot download "${PACKAGES.join(' ')}": ${failure}`;
    fs.mkdirSync(`${work}/root`);
    for (const file of fs.readdirSync(`${work}/archives`).filter(name => name.endsWith('.deb'))) {
      await runOk(['dpkg-deb', '--extract', `${work}/archives/${file}`, `${work}/root`]);
    }
    fs.renameSync(`${work}/root`, UNPACKED);
    return undefined;
  } catch (error) {
    // Another run that did the same may have been faster.
    return fs.existsSync(UNPACKED) ? undefined : `Cannot unpack "${PACKAGES.join(' ')}": ${error}`;
  } finally {
    fs.rmSync(work, { recursive: true, force: true });
  }
}

async function download(archives: string): Promise<string | undefined> {
  fs.mkdirSync(`${archives}/partial`, { recursive: true });
  // One of several sources may be out of reach; what counts is whether the download works.
  await aptGet('update');
  // As root: the user that apt-get would change to for the download may not write here.
  const options = ['-o', `Dir::Cache::archives=${archives}`, '-o', 'APT::Sandbox::User=root'];
  return aptGet(...options, 'install', '-y', '--download-only', '--no-install-recommends', ...PACKAGES);
}

function libraryDirs(): string[] {
  const lib = path.join(UNPACKED, 'usr/lib');
  if (!fs.existsSync(lib)) return [];
  return fs
    .readdirSync(lib)
    .filter(name => name.endsWith('-linux-gnu'))
    .map(name => path.join(lib, name));
}
