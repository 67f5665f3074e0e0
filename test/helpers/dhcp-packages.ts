// Where do tests find Kea and radvd, whose packages would start services?
import path from 'node:path';
import { TEST_PATH } from './command.ts';
import type { Need } from './skip.ts';
import { libraryDirs, unpackedAt, unpackPackages } from './unpack.ts';

const PACKAGES = ['kea-dhcp4-server', 'kea-dhcp6-server', 'radvd'];

const UNPACKED = unpackedAt('catena-dhcp');

/** Whether a test file starts these servers. */
export function needsDhcpServers(file: string): boolean {
  return /^test\/netns\/dhcp6?-(kea|lease|release|routers|upkeep|slaac)\.test\.ts$/.test(file);
}

/**
 * Downloads and unpacks the packages unless an earlier run did.
 * @returns a line for the reader if it failed
 */
export function unpackDhcpServers(): Promise<string | undefined> {
  return unpackPackages(UNPACKED, PACKAGES);
}

/** Needs programs of the packages. */
export function requiresServer(...programs: string[]): Need {
  const missing = programs.filter(name => find(name) === null);
  return missing.length === 0 ? undefined : `needs ${missing.map(name => `"${name}"`).join(', ')} of Debian`;
}

/** How a program of the packages is started. */
export function serverCommand(name: string, ...args: string[]): string[] {
  const program = find(name);
  if (program === null) throw new Error(`Cannot find "${name}": the packages of servers are not unpacked`);
  return ['env', `LD_LIBRARY_PATH=${libraryDirs(UNPACKED).join(':')}`, program, ...args];
}

function find(name: string): string | null {
  return Bun.which(name, { PATH: [path.join(UNPACKED, 'usr/sbin'), TEST_PATH].join(':') });
}
