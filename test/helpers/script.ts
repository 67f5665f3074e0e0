// How does a test get a link that does what a few words of shell say?

import fs from 'node:fs';
import type { Lab } from './netns.ts';
import { BIN_DIR } from './plugin.ts';

/** Makes an executable that reads its request and does this. */
export function writeScript(file: string, body: string): void {
  fs.writeFileSync(file, `#!/bin/sh\ncat >/dev/null\n${body}\n`, { mode: 0o755 });
}

/** Makes a directory with our links and one more, of that name, that does this. */
export function binWith(lab: Lab, name: string, body: string): string {
  const dir = `${lab.tmp}/bin-${name}`;
  fs.mkdirSync(dir, { recursive: true });
  for (const link of fs.readdirSync(BIN_DIR)) {
    if (!fs.existsSync(`${dir}/${link}`)) fs.symlinkSync(`${BIN_DIR}/${link}`, `${dir}/${link}`);
  }
  writeScript(`${dir}/${name}`, body);
  return dir;
}
