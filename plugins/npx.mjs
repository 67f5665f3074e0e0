#!/usr/bin/env node
// How does `npx catena` run? The sources need Bun, which npm does not install with this package.
import { spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { constants as os } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const bun = (process.env.PATH ?? '')
  .split(delimiter)
  .map(dir => join(dir || '.', 'bun'))
  .find(isExecutable);
if (bun === undefined) {
  process.stderr.write(
    'catena: Cannot run: the npm package needs Bun, and PATH has none; run "npm install bun", or use the executable of a release\n',
  );
  process.exit(1);
}
const main = fileURLToPath(new URL('main.ts', import.meta.url));
const child = spawn(bun, [main, ...process.argv.slice(2)], { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.on('error', ({ message }) => {
  process.stderr.write(`catena: Cannot run: "${bun}" does not start: ${message}\n`);
  process.exit(1);
});
child.on('exit', (code, signal) => process.exit(code ?? 128 + (os.signals[signal] ?? 0)));

function isExecutable(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
