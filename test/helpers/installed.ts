// How does a test get executables of its own, installed by our command?
import fs from 'node:fs';
import path from 'node:path';
import { CATENA } from './catena.ts';
import type { Finished } from './command.ts';
import { directories, type Lab } from './netns.ts';
import { BIN_DIR } from './plugin.ts';

/** The directory of executables that {@link installInto} fills. */
export const binDirOf = (lab: Lab): string => `${lab.tmp}/bin`;

/** Installs into the lab's own directories. @param catena the command whose executables are installed */
export function installInto(lab: Lab, args: readonly string[], catena: string = CATENA): Promise<Finished> {
  const places = ['--bin-dir', binDirOf(lab), '--conf-dir', `${lab.tmp}/net.d`, '--etc', `${lab.tmp}/etc`];
  return lab.run(lab.host, [catena, 'install', ...places, ...args], {
    env: directories(lab.tmp),
    timeoutMs: 60_000,
  });
}

/** ELF: a byte of e_ident that no loader reads. */
const PADDING_AT = 15;

const COPIED = ['catena', 'bridge', 'host-local'];

/** Executables of another build, which does the same. @returns their directory */
export function makeOtherBuild(dir: string): string {
  fs.mkdirSync(dir, { recursive: true });
  for (const name of COPIED) fs.copyFileSync(path.join(BIN_DIR, name), path.join(dir, name));
  for (const name of fs.readdirSync(BIN_DIR)) {
    const target = path.join(dir, name);
    if (name === 'catena-core') fs.copyFileSync(path.join(BIN_DIR, name), target);
    else if (!fs.existsSync(target)) fs.linkSync(path.join(dir, 'catena'), target);
  }
  const { size } = fs.statSync(path.join(dir, 'catena-core'));
  // Built without a C compiler, the others are the Bun program, too.
  for (const name of ['catena-core', ...COPIED].filter(
    one => fs.statSync(path.join(dir, one)).size === size,
  )) {
    const fd = fs.openSync(path.join(dir, name), 'r+');
    fs.writeSync(fd, Uint8Array.of(1), 0, 1, PADDING_AT);
    fs.closeSync(fd);
  }
  return dir;
}
