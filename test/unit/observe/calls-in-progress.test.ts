// Does the daemon know for which containers it serves an ADD or a DEL at present?
import { expect, test } from 'bun:test';
import { CallsInProgress } from '../../../src/observe/calls-in-progress.ts';
import type { RequestRecord } from '../../../src/observe/record.ts';
import type { RequestWatcher } from '../../../src/observe/watcher.ts';

const plain: RequestWatcher = {
  begin: (_, env) => ({ id: 'r1', env, watch: {}, end: () => ({ id: 'r1' }) as RequestRecord }),
};

function begin(watcher: RequestWatcher, verb: string, containerId = 'c1') {
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
