// Does a log file make way when it is full, and is no more kept than was asked for?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { boundLog, packBackups } from '../../../src/observe/log-backups.ts';

const LIMITS = { maxBytes: 10, maxBackups: 2, maxAgeDays: 0 };
const NAME = /^multus-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}\.log(\.gz)?$/;

let dir: string;
let log: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-backups-'));
  log = path.join(dir, 'multus.log');
});
afterEach(() => fs.rmSync(dir, { recursive: true, force: true }));

const files = () => fs.readdirSync(dir).sort();
const write = (name: string, text = 'text') => fs.writeFileSync(path.join(dir, name), text);

describe('boundLog()', () => {
  test('leaves a file alone that is not full or does not exist', () => {
    boundLog(log, LIMITS);
    write('multus.log', 'short');
    boundLog(log, LIMITS);
    expect(files()).toEqual(['multus.log']);
  });

  test('renames a full file by its time, never to an existing name', () => {
    for (const text of ['the first one', 'the second one', 'the third one']) {
      write('multus.log', text);
      boundLog(log, { ...LIMITS, maxBackups: 0 });
    }
    expect(files()).toEqual(Array(3).fill(expect.stringMatching(NAME)));
    const texts = files().map(name => fs.readFileSync(path.join(dir, name), 'utf8'));
    expect(texts).toEqual(['the first one', 'the second one', 'the third one']);
  });

  test('keeps a number of the newest ones, packed or not, and every other file', () => {
    const old = [1, 2, 3].map(day => `multus-2020-01-0${day}T00-00-00.000.log`);
    for (const name of [`${old[0]}`, `${old[1]}.gz`, `${old[2]}`, 'multus-notes.log', 'other.log'])
      write(name);
    boundLog(log, LIMITS);
    expect(files()).toEqual([`${old[1]}.gz`, `${old[2]}`, 'multus-notes.log', 'other.log']);
  });

  test('keeps none that is too old', () => {
    const young = `multus-${new Date(Date.now() - 3_600_000).toISOString().replaceAll(':', '-').slice(0, -1)}.log`;
    for (const name of ['multus-2020-01-01T00-00-00.000.log', young]) write(name);
    boundLog(log, { ...LIMITS, maxAgeDays: 1 });
    expect(files()).toEqual([young]);
  });
});

describe('packBackups()', () => {
  test('packs unpacked ones, for their owner only, and leaves the log alone', async () => {
    const [one, two] = ['multus-2020-01-01T00-00-00.000.log', 'multus-2020-01-02T00-00-00.000.log'];
    write('multus.log');
    write(one, 'a line\n');
    write(`${two}.gz`);
    await packBackups(log);
    expect(files()).toEqual([`${one}.gz`, `${two}.gz`, 'multus.log']);
    const packed = path.join(dir, `${one}.gz`);
    expect(gunzipSync(fs.readFileSync(packed)).toString()).toBe('a line\n');
    expect(fs.statSync(packed).mode & 0o777).toBe(0o600);
  });

  test('leaves files that another process packs, and removes those of a killed one', async () => {
    const [one, two] = ['multus-2020-01-01T00-00-00.000.log', 'multus-2020-01-02T00-00-00.000.log'];
    for (const name of [one, `${one}.gz.part`, two, `${two}.gz.part`]) write(name);
    fs.utimesSync(path.join(dir, `${two}.gz.part`), 0, 0);
    await packBackups(log);
    expect(files()).toEqual([one, `${one}.gz.part`, `${two}.gz`]);
  });
});
