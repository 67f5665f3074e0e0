import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Entry, removeEntry, replaceEntry, writeEntry } from '../../../src/attachments/entries.ts';
import {
  begunAdd,
  createNote,
  dropRecord,
  entryOf,
  type Intent,
  type KnownAttachment,
  noteFileOf,
  noteIfUnnoted,
  readNote,
  readRecord,
  writeNote,
} from '../../../src/attachments/notes.ts';
import { listAttachments, listLeft } from '../../../src/attachments/store.ts';
import { cacheFileOf } from '../../../src/cni/attachment.ts';
import { filesBelow, intentOf, recordsIn, settle, withoutOurs } from '../../helpers/journal.ts';

let dir: string;
let cacheDir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-journal-'));
  cacheDir = path.join(dir, 'cache');
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const ID = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
const file = () => noteFileOf(dir, ID);
const intent = (more = {}) => intentOf({ cacheDir, ...more });
const result = { cniVersion: '1.1.0' };
const notes = () => filesBelow(path.join(dir, 'unsettled'));

test('noteIfUnnoted() leaves the note of an ADD that has begun since', () => {
  settle(dir, intent({ owner: 'first' }));
  const earlier = readRecord(dir, ID) as KnownAttachment;
  createNote(dir, intent({ owner: 'second' }));
  noteIfUnnoted(dir, earlier);
  expect(readNote(file())?.owner).toBe('second');
  fs.rmSync(file());
  noteIfUnnoted(dir, earlier);
  expect(readNote(file())?.owner).toBe('first');
});

describe('createNote()', () => {
  test('creates a file for the attachment, readable by its owner only', () => {
    createNote(dir, intent());
    expect(notes()).toEqual(['testnet/c1:eth0']);
    const modes = ['.', 'testnet', 'testnet/c1:eth0'].map(
      name => fs.statSync(path.join(dir, 'unsettled', name)).mode & 0o777,
    );
    expect(modes).toEqual([0o700, 0o700, 0o600]);
  });

  test('keeps what is there, which only a process without the lock can have written', () => {
    createNote(dir, intent({ owner: 'first' }));
    expect(() => createNote(dir, intent({ owner: 'second' }))).toThrow('without its lock');
    expect(readRecord(dir, ID)?.owner).toBe('first');
  });

  test('replaces an unreadable note', () => {
    createNote(dir, intent({ owner: 'first' }));
    fs.writeFileSync(file(), '{');
    createNote(dir, intent({ owner: 'second' }));
    expect(readRecord(dir, ID)?.owner).toBe('second');
    expect(notes()).toHaveLength(1);
  });

  test('reports why it cannot create the note', () => {
    fs.writeFileSync(path.join(dir, 'unsettled'), '');
    expect(() => createNote(dir, intent())).toThrow(`Cannot read note "${file()}": `);
    expect(filesBelow(dir)).toEqual(['unsettled']);
  });

  test.each([
    ['a long container id', { containerId: 'c'.repeat(300) }],
    ['a long network', { network: 'n'.repeat(300) }],
    ['a network that leads elsewhere', { network: '../../etc' }],
    ['a container id that leads elsewhere', { containerId: '../x' }],
    ['an interface that leads elsewhere', { ifname: '../x' }],
  ])('keeps %s inside its directory', (_, more) => {
    const id = { ...ID, ...more };
    createNote(dir, intent(id));
    expect(notes()).toEqual([expect.stringMatching(/^(testnet|~[0-9a-f]{32})\/(c1:eth0|~[0-9a-f]{32})$/)]);
  });
});

describe('readRecord()', () => {
  test('returns undefined when there is none', () => expect(readRecord(dir, ID)).toBeUndefined());

  test.each([
    ['a directory', () => fs.mkdirSync(file()), 'it is not a regular file'],
    ['a symbolic link', () => fs.symlinkSync('/etc/passwd', file()), 'it is a symbolic link'],
    ['an empty file', () => fs.writeFileSync(file(), ''), 'it is not a JSON object'],
    [
      'the note of another attachment',
      () => {
        createNote(dir, intent({ containerId: 'c2' }));
        fs.renameSync(noteFileOf(dir, { ...ID, containerId: 'c2' }), file());
      },
      'it is for interface "eth0" of container "c2" on network "testnet"',
    ],
  ])('refuses %s, and says why', (_, make, reason) => {
    fs.mkdirSync(path.dirname(file()), { recursive: true });
    make();
    expect(() => readRecord(dir, ID)).toThrow(`Cannot read note "${file()}": `);
    expect(() => readRecord(dir, ID)).toThrow(reason);
    const { attachments, damaged } = listAttachments({ journals: [dir] });
    expect(attachments).toEqual([]);
    expect(damaged.map(({ message }) => message)).toEqual([expect.stringContaining(reason)]);
  });

  test('does not wait for a pipe', () => {
    fs.mkdirSync(path.dirname(file()), { recursive: true });
    Bun.spawnSync(['mkfifo', file()]);
    expect(() => readRecord(dir, ID)).toThrow('it is not a regular file');
  });
});

describe('a settled attachment', () => {
  test('is known by its entry, with all that its ADD knew', () => {
    const made = intent({ result, hostCookie: '5', request: 'r1' });
    settle(dir, made);
    const { runner, ...rest } = made;
    expect(readRecord(dir, ID)).toMatchObject({ ...rest, phase: 'attached', added: true, isNoted: false });
    expect(readRecord(dir, ID)?.runner).toMatchObject({ op: runner.op, time: runner.time });
    expect(notes()).toEqual([]);
  });

  test('is unknown once another runtime has made it, or its entry is damaged', () => {
    settle(dir, intent({ result }));
    withoutOurs(cacheFileOf(cacheDir, ID));
    expect(readRecord(dir, ID)).toBeUndefined();
    settle(dir, intent({ result }));
    fs.writeFileSync(cacheFileOf(cacheDir, ID), 'half');
    expect(readRecord(dir, ID)).toBeUndefined();
  });

  test('of another journal is not ours', () => {
    settle(path.join(dir, 'delegates'), intent({ result }));
    fs.cpSync(path.join(dir, 'delegates/caches'), path.join(dir, 'caches'), { recursive: true });
    expect([readRecord(dir, ID), recordsIn(dir)]).toEqual([undefined, []]);
    expect(readRecord(path.join(dir, 'delegates'), ID)?.phase).toBe('attached');
  });
});

describe('a note is over', () => {
  const over = () => readRecord(dir, ID)?.isNoted !== true;
  const note = (own: Intent, more: Partial<KnownAttachment>) =>
    writeNote(dir, { ...begunAdd(own, file()), added: true, ...more });
  const entry = (more: Partial<Entry> = {}) =>
    writeEntry(cacheDir, { ...entryOf(dir, intent({ result })), made: undefined, ...more });

  test('of an ADD, when its entry is there: the rename of that committed it', () => {
    const own = intent({ result });
    createNote(dir, own);
    expect(over()).toBe(false);
    writeEntry(cacheDir, entryOf(dir, own));
    expect(readRecord(dir, ID)).toMatchObject({ phase: 'attached', isNoted: false });
  });

  test('of an ADD, when another runtime has made the attachment', () => {
    createNote(dir, intent());
    entry();
    expect(readRecord(dir, ID)).toBeUndefined();
  });

  test('of an ADD, when another runtime with libcni 0.7, which writes the bare result, has made the attachment', () => {
    createNote(dir, intent());
    const entryFile = cacheFileOf(cacheDir, ID);
    fs.mkdirSync(path.dirname(entryFile), { recursive: true });
    fs.writeFileSync(entryFile, JSON.stringify(result));
    expect(readRecord(dir, ID)).toBeUndefined();
  });

  test('of a DEL, when its entry is gone or of a later ADD, and not after a failure', () => {
    const own = intent({ result });
    settle(dir, own);
    note(own, { phase: 'deleting' });
    expect(readRecord(dir, ID)?.phase).toBe('deleting');
    removeEntry(cacheDir, ID);
    expect(readRecord(dir, ID)).toBeUndefined();
    note(own, { phase: 'failed', attempts: 1 });
    expect(readRecord(dir, ID)?.phase).toBe('failed');
    entry();
    expect(readRecord(dir, ID)).toBeUndefined();
  });

  test('of a change, when its entry has it, and not while that is taken aside', () => {
    const own = intent({ result });
    const { runner } = intent();
    settle(dir, own);
    note(own, { phase: 'attached', change: { to: own, plugins: [0], op: runner.op } });
    expect(readRecord(dir, ID)?.change?.op).toBe(runner.op);
    const aside = () => {
      expect(readRecord(dir, ID)?.change?.op).toBe(runner.op);
      return true;
    };
    replaceEntry(cacheDir, entryOf(dir, own, runner.op), aside);
    expect(readRecord(dir, ID)).toMatchObject({ change: undefined, isNoted: false });
  });

  test("of a change of another runtime's, when that has made or deleted it again", () => {
    const own = intent({ result, foreign: true });
    const { runner } = intent();
    entry();
    note(own, { phase: 'attached', change: { to: own, plugins: [0], op: runner.op } });
    expect(readRecord(dir, ID)?.foreign).toBe(true);
    entry({ made: { change: runner.op } });
    expect(readRecord(dir, ID)).toBeUndefined();
    entry({ result: { cniVersion: '1.1.0', ips: [] } });
    expect(readRecord(dir, ID)).toBeUndefined();
    removeEntry(cacheDir, ID);
    expect(readRecord(dir, ID)).toBeUndefined();
  });
});

describe('dropRecord()', () => {
  test('removes note and entry, and ignores missing ones', () => {
    settle(dir, intent({ result }));
    writeNote(dir, begunAdd(intent({ result }), file()));
    dropRecord(dir, ID);
    dropRecord(dir, ID);
    expect([notes(), filesBelow(cacheDir)]).toEqual([[], []]);
  });
});

describe('listAttachments()', () => {
  const at = (name: string) => path.join(dir, name);
  const filterOf = (network: string | undefined) => (network === undefined ? {} : { network });
  const theirs = (containerId: string, network = 'testnet'): Entry => ({
    ...{ network, containerId, ifname: 'eth0', netns: '/n', args: [], capabilityArgs: {} },
    ...{ source: '{}', result },
  });
  const attach = (containerId: string, journal: string, own: string) =>
    settle(at(journal), intentOf({ cacheDir: at(own), containerId, result }));
  const list = (network?: string) =>
    listAttachments({ cacheDir: at('cache'), journals: [at('state'), at('delegates')] }, filterOf(network));
  const shown = (network?: string) =>
    list(network).attachments.map(({ containerId, stateDir }) => {
      return `${containerId} ${stateDir === undefined ? 'theirs' : path.basename(stateDir)}`;
    });

  test('lists all, or those of one network, but none that is being written', () => {
    const names = (network?: string) =>
      listAttachments({ journals: [dir] }, filterOf(network)).attachments.map(one => one.containerId);
    for (const network of ['a', 'b']) createNote(dir, intent({ network }));
    settle(dir, intent({ network: 'b', containerId: 'c2', result }));
    fs.writeFileSync(path.join(dir, 'unsettled/a/.1.tmp'), 'half');
    expect([names(), names('b'), names('c')]).toEqual([['c1', 'c1', 'c2'], ['c1', 'c2'], []]);
    expect(listAttachments({ journals: [at('missing')] })).toEqual({ attachments: [], damaged: [] });
  });

  test('tells ours from those of other runtimes', () => {
    attach('ours', 'state', 'cache');
    writeEntry(at('cache'), theirs('theirs'));
    expect(shown()).toEqual(['theirs theirs', 'ours state']);
    createNote(at('state'), intentOf({ cacheDir: at('cache'), containerId: 'begun' }));
    expect(shown()).toEqual(['theirs theirs', 'begun state', 'ours state']);
  });

  test('finds an entry in another directory, which is not that of the same name here', () => {
    attach('c1', 'delegates', 'own');
    writeEntry(at('cache'), theirs('c1'));
    expect(shown()).toEqual(['c1 theirs', 'c1 delegates']);
  });

  test('lists one network, and leaves out what cannot be used', () => {
    attach('c1', 'state', 'cache');
    writeEntry(at('cache'), theirs('c1', 'other'));
    expect([shown('testnet'), shown('other')]).toEqual([['c1 state'], ['c1 theirs']]);
    attach('c2', 'delegates', 'own');
    createNote(at('state'), intentOf({ cacheDir: at('cache'), containerId: 'c3' }));
    const broken = [noteFileOf(at('state'), theirs('c3')), cacheFileOf(at('own'), theirs('c2'))];
    for (const one of broken) fs.writeFileSync(one, 'half');
    expect(shown('testnet')).toEqual(['c1 state']);
    expect(list().damaged).toHaveLength(2);
  });
});

test('listAttachments() has an attachment at any moment of its changes', async () => {
  settle(dir, intent({ result }));
  const fixture = path.join(import.meta.dir, '../../fixtures/changing.ts');
  const argv = [process.execPath, fixture, dir, ID.network, ID.containerId, ID.ifname];
  const child = Bun.spawn(argv, { env: { ...process.env, CATENA_RUN_DIR: path.join(dir, 'run') } });
  try {
    const changes = new Set<string | undefined>();
    for (let looks = 0; looks < 8_000 || changes.size < 100; looks++) {
      const { attachments } = listAttachments({ cacheDir, journals: [dir] });
      expect([looks, attachments.map(({ containerId }) => containerId)]).toEqual([looks, ['c1']]);
      changes.add(attachments[0]?.entry?.made?.change);
      if (looks % 50 === 0) await Bun.sleep(1);
    }
    expect(child.exitCode).toBe(null);
  } finally {
    child.kill('SIGKILL');
    await child.exited;
  }
});

test.each([
  ["another runtime's", '{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"testnet"}'],
  ['damaged', '{'],
])('a journal that was never used is left as it is beside an entry that is %s', (_, text) => {
  const before = [process.env.CATENA_STATE_DIR, process.env.CATENA_CNI_CACHE_DIR];
  Object.assign(process.env, { CATENA_STATE_DIR: dir, CATENA_CNI_CACHE_DIR: cacheDir });
  try {
    const entry = cacheFileOf(cacheDir, ID);
    fs.mkdirSync(path.dirname(entry), { recursive: true });
    fs.writeFileSync(entry, text);
    const stateDir = path.join(dir, 'delegates');
    expect(listLeft({ stateDir, cacheDir, env: process.env }, 'whole', undefined, undefined)).toEqual([]);
    expect(fs.existsSync(stateDir)).toBe(false);
  } finally {
    for (const [i, name] of ['CATENA_STATE_DIR', 'CATENA_CNI_CACHE_DIR'].entries()) {
      if (before[i] === undefined) delete process.env[name];
      else process.env[name] = before[i];
    }
  }
});
