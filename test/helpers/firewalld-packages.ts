// Where do tests find firewalld, whose package would put the machine itself behind a firewall?
import fs from 'node:fs';
import path from 'node:path';
import { TEST_PATH } from './command.ts';
import type { Need } from './skip.ts';
import { libraryDirs, unpackedAt, unpackPackages } from './unpack.ts';

const PACKAGES = ['firewalld', 'dbus-daemon'];

const UNPACKED = unpackedAt('catena-firewalld');

/** Whether a test file starts firewalld. */
export function needsFirewalld(file: string): boolean {
  return /^test\/(netns\/firewall-firewalld|e2e\/firewall-reloads)\.test\.ts$/.test(file);
}

/**
 * Downloads and unpacks the packages unless an earlier run did.
 * @returns a line for the reader if it failed
 */
export function unpackFirewalld(): Promise<string | undefined> {
  return unpackPackages(UNPACKED, PACKAGES);
}

/** Needs firewalld, its client and a bus. */
export function requiresFirewalld(): Need {
  const missing = ['firewalld', 'firewall-cmd', 'dbus-daemon', 'python3'].filter(name => find(name) === null);
  return missing.length === 0 ? undefined : `needs ${missing.map(name => `"${name}"`).join(', ')} of Debian`;
}

/** Variables for programs of the packages. */
export function firewalldEnv(): Record<string, string> {
  const libraries = libraryDirs(UNPACKED);
  return {
    LD_LIBRARY_PATH: libraries.join(':'),
    GI_TYPELIB_PATH: libraries.map(dir => path.join(dir, 'girepository-1.0')).join(':'),
    PYTHONPATH: path.join(UNPACKED, 'usr/lib/python3/dist-packages'),
  };
}

/** How the bus is started. */
export function busCommand(...args: string[]): string[] {
  return [found('dbus-daemon'), ...args];
}

/** How firewalld is started, with the zones and services of its package. */
export function firewalldCommand(...args: string[]): string[] {
  const defaults = path.join(UNPACKED, 'usr/lib/firewalld');
  const unpacked = fs.existsSync(defaults) ? ['--default-config', defaults] : [];
  return [found('python3'), found('firewalld'), ...unpacked, ...args];
}

/** How its client is started. */
export function clientCommand(...args: string[]): string[] {
  return [found('python3'), found('firewall-cmd'), ...args];
}

function found(name: string): string {
  const program = find(name);
  if (program === null) throw new Error(`Cannot find "${name}": the packages of firewalld are not unpacked`);
  return program;
}

/** The scripts are made for Debian's Python, so another one in the `PATH` will not do. */
function find(name: string): string | null {
  const own = ['usr/bin', 'usr/sbin'].map(dir => path.join(UNPACKED, dir));
  const system = name === 'python3' ? '/usr/bin' : TEST_PATH;
  return Bun.which(name, { PATH: [...own, system].join(':') });
}
