import { afterEach, beforeEach, expect, test } from 'bun:test';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { inspectRelease } from '../../../../plugins/build/package.ts';
import type { Target } from '../../../../plugins/build/targets.ts';
import { PLUGIN_NAMES } from '../../../../plugins/registry.ts';

/** A system that this machine cannot be, so nothing is executed. */
const TARGET: Target = {
  name: 'linux-test',
  runtime: '',
  arch: process.arch === 'x64' ? 'arm64' : 'x64',
  machine: 250,
  loader: '/lib/ld-test.so.1',
};
const FRONT = elf(TARGET.machine, '');
const DIGEST = createHash('sha256').update(FRONT).digest('hex');

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-inspect-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const inspect = (hasFront: boolean) => inspectRelease(dir, TARGET, '1.2.3', hasFront);

test('a release with a front is one Bun program that knows it, and the front under all names', () => {
  lay(elf(TARGET.machine, TARGET.loader, DIGEST), FRONT);
  expect(inspect(true).run).toHaveProperty('skipped');
  expect(() => inspect(false)).toThrow('Cannot release for linux-test: its names are not the Bun program');
});

test('a release without a front is the Bun program under all names', () => {
  lay(elf(TARGET.machine, TARGET.loader));
  expect(inspect(false).run).toHaveProperty('skipped');
  expect(() => inspect(true)).toThrow('its names are not the front');
});

test.each([
  ['a front that the Bun program does not know', elf(TARGET.machine, TARGET.loader), FRONT, 'the digest'],
  [
    'a front for another machine',
    elf(TARGET.machine, TARGET.loader, DIGEST),
    elf(62, ''),
    '"catena" is for machine 62',
  ],
  ['a front with a C library', elf(TARGET.machine, TARGET.loader), elf(TARGET.machine, '/lib/ld'), '/lib/ld'],
  [
    'a Bun program for another machine',
    elf(62, TARGET.loader, DIGEST),
    FRONT,
    '"catena-core" is for machine',
  ],
  ['a Bun program for another C library', elf(TARGET.machine, '/lib/ld'), FRONT, 'with loader "/lib/ld"'],
])('%s is refused', (_, core, front, problem) => {
  lay(core, front);
  expect(() => inspect(true)).toThrow(problem);
});

test('a release whose names are several files, or not all there, is refused', () => {
  lay(elf(TARGET.machine, TARGET.loader, DIGEST), FRONT);
  fs.rmSync(path.join(dir, 'bin/bridge'));
  expect(() => inspect(true)).toThrow('it has ');
  fs.writeFileSync(path.join(dir, 'bin/bridge'), FRONT);
  expect(() => inspect(true)).toThrow('its names are not one file');
});

/** @param front default: all names are the Bun program */
function lay(core: Uint8Array, front?: Uint8Array): void {
  const bin = path.join(dir, 'bin');
  fs.mkdirSync(bin);
  fs.writeFileSync(path.join(bin, 'catena-core'), core);
  if (front) fs.writeFileSync(path.join(bin, 'catena'), front);
  else fs.linkSync(path.join(bin, 'catena-core'), path.join(bin, 'catena'));
  for (const name of PLUGIN_NAMES) fs.linkSync(path.join(bin, 'catena'), path.join(bin, name));
}

/** The headers of an executable for a machine, with its dynamic loader if it has one, and a text behind them. */
function elf(machine: number, loader: string, text = ''): Buffer {
  const head = Buffer.alloc(120);
  head.write('\x7fELF', 0, 'latin1');
  head.writeUInt16LE(machine, 18);
  head.writeBigUInt64LE(64n, 32);
  head.writeUInt16LE(56, 54);
  head.writeUInt16LE(loader ? 1 : 0, 56);
  head.writeUInt32LE(3, 64);
  head.writeBigUInt64LE(120n, 72);
  head.writeBigUInt64LE(BigInt(loader.length + 1), 96);
  return Buffer.concat([head, Buffer.from(`${loader}\0${text}`)]);
}
