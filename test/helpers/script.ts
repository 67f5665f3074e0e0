// How does a test get a plugin from a few words of shell?

import fs from 'node:fs';
import type { Lab } from './netns.ts';
import { BIN_DIR } from './plugin.ts';

/** Creates an executable that reads its request and runs the shell code. */
export function writeScript(file: string, body: string): void {
  fs.writeFileSync(file, `#!/bin/sh\ncat >/dev/null\n${body}\n`, { mode: 0o755 });
}

/** Creates a directory with our plugins and one more of the given name, which runs the shell code. */
export function binWith(lab: Lab, name: string, body: string): string {
  const dir = `${lab.tmp}/bin-${name}`;
  fs.mkdirSync(dir, { recursive: true });
  for (const link of fs.readdirSync(BIN_DIR)) {
    if (!fs.existsSync(`${dir}/${link}`)) fs.symlinkSync(`${BIN_DIR}/${link}`, `${dir}/${link}`);
  }
  writeScript(`${dir}/${name}`, body);
  return dir;
}

/** Creates a directory with one of our plugins, started by another program: `setpriv --inh-caps=-net_raw`. */
export function startedBy(lab: Lab, name: string, program: string): string {
  const dir = `${lab.tmp}/by-${name}`;
  fs.mkdirSync(dir);
  fs.writeFileSync(`${dir}/${name}`, `#!/bin/sh\nexec ${program} ${BIN_DIR}/${name}\n`, { mode: 0o755 });
  return dir;
}
