// What is one row of `catena log`?

import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseMoment, readTimeline } from '../../../../src/cli/commands/log.ts';
import { eventsOfRepair, recoveryEvent } from '../../../../src/cli/log/events.ts';
import { CniError, ErrorCode } from '../../../../src/cni/errors.ts';
import type { NodeModel } from '../../../../src/node/model.ts';
import { appendHistory, type HistoryEvent } from '../../../../src/observe/history.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-log-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const ID = { network: 'podnet', containerId: 'c1', ifname: 'eth0' };
const EMPTY = { attachments: [], networks: [] } as unknown as NodeModel;

function rowsOf(events: readonly HistoryEvent[]) {
  appendHistory(dir, events);
  const entries = readTimeline({ node: EMPTY, stateDir: dir });
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
  const entries = readTimeline({ node, stateDir: dir });
  expect(entries.map(({ what, podName }) => [what, podName])).toEqual([
    ['ADD', 'web'],
    ['REPAIR', 'web'],
    ['REPAIR', 'two'],
  ]);
});

test('what a repair found is noted with the name of the container', () => {
  const links = [{ link: 'bridge', index: 0, state: 'mended' as const, problem: 'its address is gone' }];
  const attachments = [{ ...ID, state: 'mended' as const, links }];
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
