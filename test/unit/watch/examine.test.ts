import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import { addNetwork } from '../../../src/chain/run/run.ts';
import { processSegments, startPlugin } from '../../../src/chain/run/segment.ts';
import { readRecords } from '../../../src/node/facts.ts';
import { type CheckScope, checkAll } from '../../../src/watch/examine.ts';
import { withoutOurs } from '../../helpers/journal.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';

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

const checkStanding = (runtime: ReturnType<typeof within>, scope: CheckScope) =>
  checkAll(readRecords(runtime).standing, runtime, scope);
const within = (stateDir: string) => ({ ...chain.runtime, stateDir: `${chain.dir}/${stateDir}` });
const attach = (containerId: string, list = listOf('1.0.0', [chain.noop('one')]), stateDir = 'state') =>
  addNetwork(list, { ...ATTACHMENT, containerId, netns: netns(containerId) }, within(stateDir));
const states = async (type = 'noop') =>
  (await checkStanding(within('state'), { type })).map(({ containerId, state, problem }) => {
    return [containerId, state, problem];
  });

test('checkAll() reports which attachments with the plugin pass CHECK, with the configuration of their ADD', async () => {
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

test('checkAll() knows nothing of an attachment whose plugin gives no answer', async () => {
  const dir = `${chain.dir}/bin`;
  fs.mkdirSync(dir);
  fs.writeFileSync(`${dir}/own`, '#!/bin/sh\necho \'{"cniVersion":"1.0.0"}\'', { mode: 0o755 });
  const list = listOf('1.0.0', [{ type: 'own' }]);
  const runtime = { ...within('state'), pluginDirs: [dir] };
  await addNetwork(list, { ...ATTACHMENT, containerId: 'mute', netns: netns('mute') }, runtime);
  fs.writeFileSync(`${dir}/own`, '#!/bin/sh\nexit 127', { mode: 0o755 });
  expect(await states('own')).toEqual([
    ['mute', 'unknown', 'Plugin "own" failed with no error message: exit status 127'],
  ]);
});

test('finds ours, those of other runtimes, and those of the delegate runner, each once', async () => {
  await attach('theirs');
  withoutOurs(`${chain.runtime.cacheDir}/results/testnet-theirs-eth0`);
  await attach('ours');
  const own = { ...within('state/delegates'), cacheDir: `${chain.dir}/own` };
  const one = { ...ATTACHMENT, containerId: 'of-the-runner', netns: netns('of-the-runner') };
  await addNetwork(listOf('1.0.0', [chain.noop('one')]), one, own);
  expect((await states()).map(([id]) => id).sort()).toEqual(['of-the-runner', 'ours', 'theirs']);
});

test.each(['again', 'restarted'])(
  'checkAll() checks what its runtime made again at %s since our record was written',
  async path => {
    await attach('restarted');
    fs.rmSync(`${chain.dir}/restarted`);
    expect(await states()).toEqual([]);
    const list = listOf('1.0.0', [chain.noop('one')]);
    // An inode that is used again would look like the first one's.
    const args = [['IgnoreUnknown', '1']] as const;
    const again = { ...ATTACHMENT, containerId: 'restarted', netns: netns(path), args };
    await addNetwork(list, again, within('of-another-runtime'));
    withoutOurs(`${chain.runtime.cacheDir}/results/testnet-restarted-eth0`);
    expect(await states()).toEqual([['restarted', 'sound', undefined]]);
  },
);

test('checkAll() includes IPAM plugins and delegates', async () => {
  const delegating = (section: object) => listOf('1.0.0', [{ ...chain.noop('one'), ...section }]);
  await attach('a', delegating({ ipam: { type: 'theirs' } }));
  await attach('b', delegating({ delegate: { type: 'theirs' } }));
  await attach('c');
  expect((await states('theirs')).map(([id]) => id).sort()).toEqual(['a', 'b']);
});

test('checkAll() checks four at once, and reports those that it did not reach as unknown', async () => {
  for (const id of ['a', 'b', 'c', 'd', 'e', 'f']) await attach(id);
  const opened: string[] = [];
  const openSegments = () => {
    opened.push('one more');
    return processSegments(startPlugin);
  };
  const checks = await checkStanding(within('state'), { openSegments });
  expect(checks.map(({ containerId, state }) => [containerId, state])).toEqual(
    ['a', 'b', 'c', 'd', 'e', 'f'].map(id => [id, 'sound']),
  );
  // One that takes longer than a second lets another begin.
  expect(opened.length).toBeGreaterThanOrEqual(4);
  const ended = { ...within('state'), signal: AbortSignal.abort() };
  const unreached = await checkStanding(ended, {});
  expect(unreached.map(({ state, unchecked }) => [state, unchecked])).toEqual(
    Array(6).fill(['unknown', undefined]),
  );
});
