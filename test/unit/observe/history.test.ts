import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { appendHistory, eventOf, historyFileOf, readHistory } from '../../../src/observe/history.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-history-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const request = { verb: 'ADD', network: 'net', containerId: 'c1', ifname: 'eth0', netns: '', code: 0 };

test('appendHistory() keeps events in order, and stays bounded', () => {
  const event = eventOf(
    { ...request, code: 11, message: `token=abc ${'x'.repeat(100_000)}` },
    { by: 'command' },
  );
  if (event === undefined) throw new Error('an ADD is an event');
  for (let i = 0; i < 40; i += 1) appendHistory(dir, [{ ...event, ifname: `eth${i}` }]);
  const events = readHistory(dir);
  expect(events.at(-1)).toMatchObject({ verb: 'ADD', containerId: 'c1', ifname: 'eth39', code: 11 });
  expect(events.map(({ ifname }) => Number(ifname.slice(3)))).toEqual(
    events.map((_, i) => 40 - events.length + i),
  );
  expect(events.at(-1)?.message).toStartWith('token=***');
  const sizes = fs.readdirSync(path.dirname(historyFileOf(dir))).map(name => {
    return fs.statSync(path.join(path.dirname(historyFileOf(dir)), name)).size;
  });
  expect(sizes).toHaveLength(2);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(1024 * 1024);
});

test('an event that is no request is kept without secrets, too', () => {
  const at = { time: '2026-01-01T00:00:00.000Z', network: 'net', containerId: 'c1', ifname: 'eth0' };
  appendHistory(dir, [
    { ...at, verb: 'RECOVER', by: 'command', code: 7, message: 'Cannot use "token": "abc"' },
  ]);
  expect(readHistory(dir)).toMatchObject([{ verb: 'RECOVER', message: 'Cannot use "token": "***"' }]);
});

test('appendHistory() fails no operation', () => {
  fs.writeFileSync(path.join(dir, 'history'), 'a file where the directory belongs');
  const event = eventOf(request, { by: 'command' });
  expect(() => appendHistory(dir, event ? [event] : [])).not.toThrow();
  expect(readHistory(dir)).toEqual([]);
});

test('eventOf() leaves out what changes nothing', () => {
  expect(eventOf({ ...request, verb: 'CHECK' }, { by: 'daemon' })).toBeUndefined();
});

test('an event has the name that people call a container: its pod, or the namespace from which its id was derived', () => {
  const derived = { ...request, containerId: `cnitool-${'0'.repeat(20)}`, netns: '/run/netns/web' };
  expect(eventOf(derived, { by: 'command' })).toMatchObject({ podName: 'web' });
  expect(eventOf({ ...derived, podName: 'db' }, { by: 'command' })).toMatchObject({ podName: 'db' });
  expect(eventOf({ ...request, netns: '/run/netns/web' }, { by: 'command' })).not.toHaveProperty('podName');
});
