import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { listMarked } from '../../../src/journal/marks.ts';
import { recordFileOf } from '../../../src/journal/place.ts';
import type { Line } from '../../../src/journal/record.ts';
import {
  createRecord,
  dropRecord,
  listRecords,
  readRecord,
  reopenRecord,
  replaceRecord,
} from '../../../src/journal/store.ts';
import { filesBelow, intentOf } from '../../helpers/journal.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-journal-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const ID = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
const link = (index: number): Line => ({ event: 'link', verb: 'ADD', index, result: { index } });
const file = () => recordFileOf(dir, ID);

describe('createRecord()', () => {
  test('creates a file for the attachment, readable by its owner only, and a mark', () => {
    createRecord(dir, intentOf()).close();
    expect(filesBelow(dir)).toEqual(['attachments/testnet/c1:eth0', 'unsettled/testnet/c1:eth0']);
    const modes = ['.', 'testnet', 'testnet/c1:eth0'].map(
      name => fs.statSync(path.join(dir, 'attachments', name)).mode & 0o777,
    );
    expect(modes).toEqual([0o700, 0o700, 0o600]);
    expect(fs.realpathSync(path.join(dir, 'unsettled/testnet/c1:eth0'))).toBe(fs.realpathSync(file()));
  });

  test('adds each line separately', () => {
    const open = createRecord(dir, intentOf());
    open?.append(link(0));
    expect(readRecord(dir, ID)?.outcomes).toHaveLength(1);
    open?.append(link(1));
    expect(readRecord(dir, ID)?.outcomes).toHaveLength(2);
    open?.close();
  });

  test('keeps an existing record, which only a process without the lock can have written', () => {
    createRecord(dir, intentOf({ owner: 'first' })).close();
    expect(() => createRecord(dir, intentOf({ owner: 'second' }))).toThrow('without its lock');
    expect(readRecord(dir, ID)?.owner).toBe('first');
  });

  test('replaces an unreadable record', () => {
    createRecord(dir, intentOf({ owner: 'first' })).close();
    fs.writeFileSync(file(), '{');
    createRecord(dir, intentOf({ owner: 'second' })).close();
    expect(readRecord(dir, ID)?.owner).toBe('second');
    expect(filesBelow(dir)).toHaveLength(2);
  });

  test('reports why it cannot create the record', () => {
    fs.writeFileSync(path.join(dir, 'attachments'), '');
    expect(() => createRecord(dir, intentOf())).toThrow(`Cannot read record "${file()}": `);
    expect(filesBelow(dir)).toEqual(['attachments']);
  });

  test.each([
    ['a long container id', { containerId: 'c'.repeat(300) }],
    ['a long network', { network: 'n'.repeat(300) }],
    ['a network that leads elsewhere', { network: '../../etc' }],
    ['a container id that leads elsewhere', { containerId: '../x' }],
    ['an interface that leads elsewhere', { ifname: '../x' }],
  ])('keeps %s inside its directory', (_, more) => {
    const id = { ...ID, ...more };
    createRecord(dir, intentOf(id)).close();
    expect(readRecord(dir, id)).toMatchObject(id);
    expect(listRecords(dir).records).toHaveLength(1);
    expect(filesBelow(path.join(dir, 'attachments'))[0]).toMatch(
      /^(testnet|~[0-9a-f]{32})\/(c1:eth0|~[0-9a-f]{32})$/,
    );
  });
});

describe('reopenRecord()', () => {
  test('starts a new line after one that was cut off', () => {
    createRecord(dir, intentOf()).close();
    fs.appendFileSync(file(), '{"event":"li');
    const open = reopenRecord(dir, ID);
    open?.append(link(0));
    open?.append(link(1));
    open?.close();
    expect(readRecord(dir, ID)).toMatchObject({ unreadable: 1, outcomes: [{ index: 0 }, { index: 1 }] });
  });

  test('creates no record', () => {
    expect(reopenRecord(dir, ID)).toBeUndefined();
    expect(filesBelow(dir)).toEqual([]);
  });
});

describe('replaceRecord()', () => {
  test('writes everything at once, without a mark', () => {
    const intent = intentOf();
    replaceRecord(dir, intent, [link(0), { event: 'done', op: intent.runner.op }]);
    expect(readRecord(dir, ID)).toMatchObject({ phase: 'attached', result: { index: 0 } });
    expect(listMarked(dir)).toEqual([]);
  });
});

describe('readRecord()', () => {
  test('returns undefined when there is none', () => expect(readRecord(dir, ID)).toBeUndefined());

  test.each([
    ['a directory', () => fs.mkdirSync(file()), 'it is not a regular file'],
    ['a symbolic link', () => fs.symlinkSync('/etc/passwd', file()), 'ELOOP'],
    ['an empty file', () => fs.writeFileSync(file(), ''), 'its first line is not a JSON object'],
    [
      'the record of another attachment',
      () => {
        createRecord(dir, intentOf({ containerId: 'c2' })).close();
        fs.renameSync(recordFileOf(dir, { ...ID, containerId: 'c2' }), file());
      },
      'it is for interface "eth0" of container "c2" on network "testnet"',
    ],
  ])('refuses %s, and says why', (_, make, reason) => {
    fs.mkdirSync(path.dirname(file()), { recursive: true });
    make();
    expect(() => readRecord(dir, ID)).toThrow(`Cannot read record "${file()}": `);
    expect(() => readRecord(dir, ID)).toThrow(reason);
    const { records, damaged } = listRecords(dir);
    expect(records).toEqual([]);
    expect(damaged.map(({ message }) => message)).toEqual([expect.stringContaining(reason)]);
  });

  test('does not wait for a pipe', () => {
    fs.mkdirSync(path.dirname(file()), { recursive: true });
    Bun.spawnSync(['mkfifo', file()]);
    expect(() => readRecord(dir, ID)).toThrow('it is not a regular file');
  });
});

describe('listRecords()', () => {
  test('lists all, or those of one network, but none that is being written', () => {
    for (const network of ['a', 'b']) createRecord(dir, intentOf({ network })).close();
    fs.writeFileSync(path.join(dir, 'attachments/a/.1.tmp'), 'half');
    expect(listRecords(dir).records.map(({ network }) => network)).toEqual(['a', 'b']);
    expect(listRecords(dir, 'b').records.map(({ network }) => network)).toEqual(['b']);
    expect(listRecords(dir, 'c')).toEqual({ records: [], damaged: [] });
    expect(listRecords(path.join(dir, 'missing'))).toEqual({ records: [], damaged: [] });
  });
});

describe('dropRecord()', () => {
  test('removes record and mark, and ignores missing ones', () => {
    createRecord(dir, intentOf()).close();
    dropRecord(dir, ID);
    dropRecord(dir, ID);
    expect(filesBelow(dir)).toEqual([]);
  });
});
