// What does a door that cannot be opened leave behind, and does one that is open know its own sockets?
import { expect, test } from 'bun:test';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { listen, openDoor } from '../../../src/daemon/door.ts';
import { decline, wireOf } from '../../../src/daemon/protocol.ts';
import { until } from '../../helpers/until.ts';

const HANDLERS = {
  serve: async () => new Response(),
  answer: () => async () => ({ reply: { declined: 'ending' } }),
  ping: () => decline('build', ''),
  refuse() {},
} as never;

test('a door that cannot be opened leaves the umask as it was', () => {
  const before = process.umask(0o022);
  try {
    const open = () => listen('/proc/none/catena.sock', 1_000, HANDLERS);
    expect(open).toThrow();
    expect(process.umask()).toBe(0o022);
  } finally {
    process.umask(before);
  }
});

test('a later socket is not its own, even with the same number of inode, which file systems use again', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'cat-door-'));
  const socket = join(dir, 'catena.sock');
  const sockets = listen(socket, 1_000, HANDLERS);
  try {
    expect([sockets.isThere(), sockets.isWhole()]).toEqual([true, true]);
    utimesSync(wireOf(socket), 1, 1);
    expect([sockets.isThere(), sockets.isWhole()]).toEqual([true, false]);
    utimesSync(socket, 1, 1);
    expect(sockets.isThere()).toBe(false);
  } finally {
    await sockets.close();
    rmSync(dir, { recursive: true });
  }
});

test('a door whose name is a directory leaves no descriptor and no calls file, however often it is tried', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'cat-door-'));
  const socket = join(dir, 'catena.sock');
  mkdirSync(wireOf(socket));
  const own = () => readdirSync('/proc/self/fd').length;
  const before = own();
  for (let i = 0; i < 10; i++) expect(() => listen(socket, 1_000, HANDLERS)).toThrow('EISDIR');
  await until(() => own() < before + 10 && !readdirSync(dir).some(name => name.includes('.calls.')));
  rmSync(dir, { recursive: true });
});

test('a door that no client could reach is not opened', async () => {
  const dir = mkdtempSync(join(tmpdir(), `cat-door-${'x'.repeat(90)}`));
  const opened = openDoor(join(dir, 'catena.sock'), 1_000, HANDLERS, false);
  await expect(opened).rejects.toThrow('the path is too long for calls to reach it');
  expect(readdirSync(dir)).toEqual([]);
  rmSync(dir, { recursive: true });
});
