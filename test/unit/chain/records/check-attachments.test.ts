import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import { checkAttachments } from '../../../../src/chain/records/check-attachments.ts';
import { startPlugin } from '../../../../src/chain/run/lazy-exec-plugin.ts';
import { processSegments } from '../../../../src/chain/run/process-segments.ts';
import { addNetwork } from '../../../../src/chain/run/run.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

/** Any file has an identity, as a namespace has. */
function netns(name: string): string {
  const file = `${chain.dir}/${name}`;
  fs.writeFileSync(file, '');
  return file;
}

const within = (stateDir: string) => ({ ...chain.runtime, stateDir: `${chain.dir}/${stateDir}` });
const attach = (containerId: string, list = listOf('1.0.0', [chain.noop('one')]), stateDir = 'state') =>
  addNetwork(list, { ...ATTACHMENT, containerId, netns: netns(containerId) }, within(stateDir));
const states = async (type = 'noop', journals: string[] = []) =>
  (await checkAttachments(type, journals, within('state'))).map(({ containerId, state, problem }) => {
    return [containerId, state, problem];
  });

test('checkAttachments() reports which attachments with the plugin pass CHECK, with the configuration of their ADD', async () => {
  await attach('sound');
  await attach('broken', listOf('1.0.0', [chain.noop('bad', { ReportError: 'it is gone', On: ['CHECK'] })]));
  await attach('elsewhere', listOf('1.0.0', [chain.noop('far')], { name: 'othernet' }));
  await attach('old', listOf('0.3.1', [chain.noop('old')]));
  await attach('unasked', listOf('1.0.0', [chain.noop('quiet')], { disableCheck: true }));
  await attach('gone');
  fs.rmSync(`${chain.dir}/gone`);
  expect((await states()).sort()).toEqual([
    ['broken', 'broken', 'it is gone'],
    ['elsewhere', 'sound', undefined],
    ['old', 'unknown', 'its list has version 0.3.1, which has no CHECK'],
    ['sound', 'sound', undefined],
    ['unasked', 'unknown', 'its list sets "disableCheck"'],
  ]);
  expect(await states('other')).toEqual([]);
});

test('checkAttachments() finds those known to a journal or a cache only, each once', async () => {
  await attach('cached');
  fs.rmSync(`${chain.dir}/state`, { recursive: true });
  await attach('both');
  await attach('recorded');
  await attach('of-the-runner', undefined, 'delegates');
  for (const id of ['recorded', 'of-the-runner'])
    fs.rmSync(`${chain.runtime.cacheDir}/results/testnet-${id}-eth0`);
  expect((await states()).map(([id]) => id).sort()).toEqual(['both', 'cached', 'recorded']);
  const all = await states('noop', [`${chain.dir}/delegates`]);
  expect(all.map(([id]) => id).sort()).toEqual(['both', 'cached', 'of-the-runner', 'recorded']);
});

test('checkAttachments() includes IPAM plugins and delegates', async () => {
  const delegating = (section: object) => listOf('1.0.0', [{ ...chain.noop('one'), ...section }]);
  await attach('a', delegating({ ipam: { type: 'theirs' } }));
  await attach('b', delegating({ delegate: { type: 'theirs' } }));
  await attach('c');
  expect((await states('theirs')).map(([id]) => id).sort()).toEqual(['a', 'b']);
});

test('checkAttachments() checks several at once, and reports those that it did not reach as unknown', async () => {
  for (const id of ['a', 'b', 'c', 'd']) await attach(id);
  const opened: string[] = [];
  const openSegments = () => {
    opened.push('one more');
    return processSegments(startPlugin);
  };
  // Three at a time, however long they take: the daemon's limiter lets others begin beside one that takes a second.
  const lanes: Promise<unknown>[] = Array.from({ length: 3 }, () => Promise.resolve());
  const admit = <T>(_group: string, work: () => Promise<T>): Promise<T> => {
    const own = (lanes.shift() ?? Promise.resolve()).then(work);
    lanes.push(own);
    return own;
  };
  const checks = await checkAttachments('noop', [], within('state'), { turns: { admit }, openSegments });
  expect(checks.map(({ containerId, state }) => [containerId, state])).toEqual(
    ['a', 'b', 'c', 'd'].map(id => [id, 'sound']),
  );
  expect(opened.length).toBe(3);
  const ended = { ...within('state'), signal: AbortSignal.abort() };
  const unreached = await checkAttachments(undefined, [], ended);
  expect(unreached.map(({ state, unchecked }) => [state, unchecked])).toEqual(
    Array(4).fill(['unknown', undefined]),
  );
});
