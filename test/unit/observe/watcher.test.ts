// Are recent requests kept whole, few, and for their owner only?

import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { unfinishedName } from '../../../src/files/put-file.ts';
import type { RecordingWatcher, RequestRecord } from '../../../src/observe/record.ts';
import { CallsInProgress, findTrace, listTraces, TraceRing } from '../../../src/observe/watcher.ts';

let root: string;
let dir: string;
beforeEach(() => {
  root = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-ring-'));
  dir = path.join(root, 'run', 'traces');
});
afterEach(() => fs.rmSync(root, { recursive: true, force: true }));

function record(number: number, more: Partial<RequestRecord> = {}): RequestRecord {
  const id = `mi7${String(number).padStart(9, '0')}`;
  const place = { verb: 'ADD', network: 'podnet', containerId: 'c1', ifname: 'eth0', netns: '/run/netns/a' };
  return {
    id,
    ...place,
    startedAt: 1_700_000_000_000 + number,
    durationMs: 5,
    code: 0,
    warm: false,
    plugins: [],
    ...more,
  };
}

const ids = () => listTraces(dir).records.map(({ id }) => Number(id.slice(3)));

describe('TraceRing', () => {
  test('keeps a number of records, in files of their owner', () => {
    const ring = new TraceRing(dir, { maxRecords: 3, maxBytes: 1_000_000 });
    for (let i = 1; i <= 5; i += 1) ring.write(record(i));
    expect(ids()).toEqual([3, 4, 5]);
    expect(fs.statSync(dir).mode & 0o777).toBe(0o700);
    const files = fs.readdirSync(dir);
    expect(files).toHaveLength(3);
    for (const name of files) expect(fs.statSync(path.join(dir, name)).mode & 0o777).toBe(0o600);
  });

  test('keeps a number of bytes, and the newest record whatever its size', () => {
    const ring = new TraceRing(dir, { maxRecords: 100, maxBytes: 3_000 });
    for (let i = 1; i <= 5; i += 1) ring.write(record(i, { message: 'x'.repeat(1_000) }));
    expect(ids()).toEqual([4, 5]);
    ring.write(record(6, { message: 'x'.repeat(10_000) }));
    expect(ids()).toEqual([6]);
  });

  test('gives up what a clock that was ahead has left before anything else', () => {
    for (let i = 900; i < 903; i += 1) {
      new TraceRing(dir).write(record(i));
      const ahead = new Date(Date.now() + 1e10);
      fs.utimesSync(path.join(dir, `${record(i).id}.json`), ahead, ahead);
    }
    const ring = new TraceRing(dir, { maxRecords: 3, maxBytes: 1e6 });
    for (let i = 1; i <= 2; i += 1) ring.write(record(i));
    expect(ids()).toEqual([902, 1, 2]);
    ring.write(record(3));
    expect(ids()).toEqual([1, 2, 3]);
  });

  test('counts records of other processes', () => {
    for (let i = 1; i <= 5; i += 1) new TraceRing(dir, { maxRecords: 3, maxBytes: 1e6 }).write(record(i));
    expect(ids()).toEqual([3, 4, 5]);
  });

  test('leaves out the output of plugins when a record would be huge', () => {
    new TraceRing(dir).write(record(1, { result: { filler: 'x'.repeat(300_000) }, message: 'kept' }));
    const [kept] = listTraces(dir).records;
    expect(kept).toMatchObject({ message: 'kept' });
    expect(kept).not.toHaveProperty('result');
  });

  test('removes files of a killed process, and not those of a live one', () => {
    fs.mkdirSync(dir, { recursive: true });
    const [own, ofDead] = [unfinishedName(), unfinishedName().replace(/-(\d+)-\d+-/, '-$1-1-')];
    for (const name of [own, ofDead]) fs.writeFileSync(path.join(dir, name), '{"id":');
    new TraceRing(dir).write(record(1));
    expect(fs.readdirSync(dir).sort()).toEqual([own, `${record(1).id}.json`]);
  });

  test('leaves no half-written file', () => {
    fs.mkdirSync(path.join(dir, `${record(1).id}.json`), { recursive: true });
    expect(() => new TraceRing(dir).write(record(1))).toThrow();
    expect(fs.readdirSync(dir)).toEqual([`${record(1).id}.json`]);
  });
});

describe('listTraces()', () => {
  test('names damaged files, and skips foreign ones', () => {
    new TraceRing(dir).write(record(1));
    fs.writeFileSync(path.join(dir, `${record(2).id}.json`), '{"id":');
    fs.writeFileSync(path.join(dir, 'README'), 'not a record');
    const { records, damaged } = listTraces(dir);
    expect(records).toEqual([record(1)]);
    expect(damaged).toEqual([path.join(dir, `${record(2).id}.json`)]);
  });

  test('returns nothing for a missing directory', () => {
    expect(listTraces(dir)).toEqual({ records: [], damaged: [] });
  });
});

describe('findTrace()', () => {
  test('accepts the start of an id, if it is unique', () => {
    const ring = new TraceRing(dir);
    for (const number of [1, 2]) ring.write(record(number));
    expect(findTrace(dir, record(2).id)).toEqual(record(2));
    expect(() => findTrace(dir, 'mi7')).toThrow('2 ids in');
    expect(() => findTrace(dir, 'x')).toThrow(/Cannot find trace "x": ".*traces" has no trace of that id/);
  });
});

const plain: RecordingWatcher = {
  begin: (_, env) => ({ id: 'r1', env, watch: {}, end: () => ({ id: 'r1' }) as RequestRecord }),
};

function begin(watcher: RecordingWatcher, verb: string, containerId = 'c1') {
  const request = watcher.begin({ verb, network: 'net', containerId, ifname: 'eth0', netns: '' }, {});
  return () => request.end({});
}

test('a container is in a call from the begin of its first request to the end of the last', () => {
  const calls = new CallsInProgress();
  const watcher = calls.noting(plain);
  const [first, second] = [begin(watcher, 'ADD'), begin(watcher, 'DEL')];
  expect([calls.has('c1'), calls.has('c2')]).toEqual([true, false]);
  expect(first()).toMatchObject({ id: 'r1' });
  expect(calls.has('c1')).toBe(true);
  second();
  expect(calls.has('c1')).toBe(false);
});

test('requests that only read, or are for no container, do not count', () => {
  const calls = new CallsInProgress();
  const watcher = calls.noting(plain);
  for (const verb of ['CHECK', 'STATUS', 'GC']) begin(watcher, verb);
  begin(watcher, 'ADD', '');
  expect([calls.has('c1'), calls.has('')]).toEqual([false, false]);
});
