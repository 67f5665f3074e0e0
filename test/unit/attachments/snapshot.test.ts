import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { findGeneration, noteGeneration } from '../../../src/attachments/generation.ts';
import { joinRun, readSnapshot, takeSnapshot } from '../../../src/attachments/snapshot.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-snapshot-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const note = (containerId: string): string => {
  const id = { network: 'podnet', containerId, ifname: 'eth0' };
  noteGeneration(dir, id, { renew: true, boot: 'b' });
  return findGeneration(dir, id)?.token as string;
};
const call = { network: 'podnet', list: 'a', plugin: 'bridge' };

describe('takeSnapshot()', () => {
  test('contains attachments begun before it, for other processes to read, until it is removed', () => {
    const before = note('c1');
    const taken = takeSnapshot(dir, 'podnet');
    const after = note('c2');
    const read = readSnapshot(taken?.path as string);
    expect(read).toEqual(taken?.snapshot as NonNullable<typeof read>);
    expect([read?.tokens.has(before), read?.tokens.has(after)]).toEqual([true, false]);
    taken?.remove();
    expect(readSnapshot(taken?.path as string)).toBeUndefined();
    expect(fs.readdirSync(path.join(dir, 'gc'))).toEqual([]);
  });

  test('leaves out attachments begun since GC was requested', () => {
    const old = note('c1');
    const since = Date.now() + 60_000;
    const file = path.join(dir, 'generations/podnet/c2:eth0');
    const young = note('c2');
    fs.lutimesSync(file, since / 1000, since / 1000);
    const taken = takeSnapshot(dir, 'podnet', since)?.snapshot.tokens;
    expect([taken?.has(old), taken?.has(young)]).toEqual([true, false]);
  });

  test('is undefined when nothing can be written', () => {
    fs.writeFileSync(path.join(dir, 'gc'), '');
    expect(takeSnapshot(dir, 'podnet')).toBeUndefined();
  });
});

describe('joinRun()', () => {
  test('gives the plugins of one run one snapshot', () => {
    const before = note('c1');
    const first = joinRun(dir, call);
    note('c2');
    const second = joinRun(dir, { ...call, plugin: 'portmap' });
    expect(second).toEqual(first);
    expect([...second.tokens]).toEqual([before]);
  });

  test.each([
    ['a plugin is called once more', call],
    ['the list is another one', { ...call, plugin: 'portmap', list: 'b' }],
  ])('makes another when %s', (_, next) => {
    joinRun(dir, call);
    const later = note('c1');
    expect([...joinRun(dir, next).tokens]).toEqual([later]);
  });

  test('makes another when the previous call is too long ago, or its note cannot be read', () => {
    const file = path.join(dir, 'gc/podnet');
    const portmap = { ...call, plugin: 'portmap' };
    joinRun(dir, call);
    const run = JSON.parse(fs.readFileSync(file, 'utf8'));
    const later = note('c1');
    for (const text of [JSON.stringify({ ...run, time: run.time - 120_000 }), '{"list":"a"}', 'null', '']) {
      fs.writeFileSync(file, text);
      expect([...joinRun(dir, portmap).tokens]).toEqual([later]);
    }
  });

  test('works without a snapshot when nothing can be written', () => {
    const before = note('c1');
    fs.writeFileSync(path.join(dir, 'gc'), '');
    expect([...joinRun(dir, call).tokens]).toEqual([before]);
  });
});
