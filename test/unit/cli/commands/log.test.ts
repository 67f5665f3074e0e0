// What is one row of `catena log`?

import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { eventsAfter, isOf, parseMoment, readTimeline } from '../../../../src/cli/commands/log.ts';
import { eventsOfRepair, recoveryEvent } from '../../../../src/cli/log/events.ts';
import { CniError, ErrorCode } from '../../../../src/cni/errors.ts';
import type { NodeModel } from '../../../../src/node/model.ts';
import { appendHistory, type HistoryEvent, readHistory } from '../../../../src/observe/history.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-log-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const ID = { network: 'podnet', containerId: 'c1', ifname: 'eth0' };
const EMPTY = { attachments: [], networks: [] } as unknown as NodeModel;

function rowsOf(events: readonly HistoryEvent[]) {
  appendHistory(dir, events);
  const entries = readTimeline(EMPTY, readHistory(dir));
  return entries.map(({ what, by, code, message }) => [what, by, code, message]);
}

const called = (verb: string, plugin: string, second: number, code = 0): HistoryEvent => ({
  ...ID,
  ...{ time: `2026-01-31T08:00:${String(second).padStart(2, '0')}.000Z`, verb, by: 'runtime', plugin, code },
  ...(code === 0 ? {} : { message: `${plugin} failed` }),
});

test('the calls of a chain by a runtime are one row, with the outcome of the first that failed', () => {
  const events = [
    ...[called('ADD', 'bridge', 1), called('ADD', 'portmap', 2, 7)],
    ...[called('DEL', 'portmap', 3), called('DEL', 'bridge', 4)],
    ...[called('ADD', 'bridge', 5), called('ADD', 'portmap', 6)],
  ];
  expect(rowsOf(events)).toEqual([
    ['ADD', 'runtime, bridge, portmap', 7, 'portmap failed'],
    ['DEL', 'runtime, portmap, bridge', 0, undefined],
    ['ADD', 'runtime, bridge, portmap', 0, undefined],
  ]);
});

test('a recovery that failed is a failure, although its plugin has no code', () => {
  const error = new CniError(ErrorCode.unknown, 'it cannot');
  const why = 'its DEL failed once';
  expect(rowsOf([recoveryEvent({ ...ID, why, error }, 'command')])).toEqual([
    ['RECOVER', 'command', 999, `${why}: it cannot`],
  ]);
  // A reason that ends with the same words is told once.
  const { message } = recoveryEvent({ ...ID, why: `${why}: it cannot`, error }, 'command');
  expect(message).toBe(`${why}: it cannot`);
});

test('what knows only the id of a container gets its name from the attachment, or from another entry', () => {
  const attachments = [{ ...ID, containerId: 'c2', containerName: 'two', state: 'attached', origin: {} }];
  const node = { attachments, networks: [] } as unknown as NodeModel;
  const repair = { ...called('REPAIR', 'bridge', 2), by: 'command' };
  appendHistory(dir, [
    { ...called('ADD', 'bridge', 1), podName: 'web' },
    repair,
    { ...repair, containerId: 'c2' },
  ]);
  const entries = readTimeline(node, readHistory(dir));
  expect(entries.map(({ what, podName }) => [what, podName])).toEqual([
    ['ADD', 'web'],
    ['REPAIR', 'web'],
    ['REPAIR', 'two'],
  ]);
});

test('what a repair found is noted with the name of the container', () => {
  const plugins = [{ type: 'bridge', index: 0, state: 'mended' as const, problem: 'its address is gone' }];
  const attachments = [{ ...ID, state: 'mended' as const, plugins }];
  const names = new Map([[ID.containerId, { containerName: 'web' }]]);
  expect(eventsOfRepair({ recovered: [], attachments, damaged: [] }, names)).toMatchObject([
    { verb: 'REPAIR', containerId: 'c1', podName: 'web', code: 0, message: 'bridge: its address is gone' },
  ]);
});

const NOW = new Date(2026, 0, 31, 8, 30).getTime();
const HOUR = 3_600_000;

test.each([
  ['90s', NOW - 90_000],
  ['15min', NOW - HOUR / 4],
  ['2h', NOW - 2 * HOUR],
  ['3d ago', NOW - 72 * HOUR],
  ['today', new Date(2026, 0, 31).getTime()],
  ['yesterday', new Date(2026, 0, 30).getTime()],
  ['2026-01-30', new Date(2026, 0, 30).getTime()],
  ['2026-01-30T08:00Z', Date.UTC(2026, 0, 30, 8)],
])('parseMoment() reads "%s"', (text, moment) => {
  expect(parseMoment(text, NOW)).toBe(moment);
});

test.each(['', 'soon', '2', '-2h', '2026-13-40'])('parseMoment() refuses "%s"', text => {
  expect(() => parseMoment(text, NOW)).toThrow(`Cannot read time "${text}": expected such as 15min`);
});

test('parseMoment() of more years than there are dates is the first moment', () => {
  expect(parseMoment('99999999999w', NOW)).toBe(0);
});

test('what follows is each later event once, also when the history was rotated or is being rotated', () => {
  const all = [1, 2, 3, 4, 5].map(second => called('ADD', 'bridge', second));
  const [, second, , fourth, fifth] = all;
  expect(eventsAfter(undefined, all)).toEqual(all);
  expect(eventsAfter(second, all)).toEqual(all.slice(2));
  expect(eventsAfter(fifth, all)).toEqual([]);
  // The older file is gone, with what was shown or without.
  expect(eventsAfter(second, all.slice(1))).toEqual(all.slice(2));
  expect(eventsAfter(second, all.slice(3))).toEqual(all.slice(3));
  // The newer file has become the older one, and was not seen under either name.
  expect(eventsAfter(fourth, all.slice(0, 2))).toEqual([]);
});

test('an entry is of a container by its id, its name, and its pod as the log writes it', () => {
  const entry = { ...ID, time: '', what: 'ADD', by: 'command', code: 0, source: 'history' } as const;
  const ofPod = { ...entry, podNamespace: 'shop', podName: 'web' };
  const isFound = (one: Parameters<typeof isOf>[0], ...words: string[]) => words.map(word => isOf(one, word));
  expect(isFound(ofPod, 'c', 'c1', 'web', 'shop/web')).toEqual([true, true, true, true]);
  expect(isFound(ofPod, '1', 'shop', 'other/web', 'eth0')).toEqual([false, false, false, false]);
});
