// Is an attachment handed over as it is, although it may have changed since it was listed?

import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { writeEntry } from '../../../../src/attachments/entries.ts';
import { findGeneration, noteGeneration } from '../../../../src/attachments/generation.ts';
import { addNetwork } from '../../../../src/chain/run/run.ts';
import type { ChainRuntime, Runtime } from '../../../../src/chain/run/runtime.ts';
import { runDir } from '../../../../src/cni/directories.ts';
import { findMissing, handOverOne, isMadeIn, listAttached } from '../../../../src/node/handover/hand-over.ts';
import { mustClaim } from '../../../helpers/journal.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';

const ID = { network: 'testnet', containerId: 'c1', ifname: 'eth0' };
const RESULT = { cniVersion: '1.1.0', ips: [{ address: '10.0.0.2/24' }] };

let chain: NoopChain;
let runtime: ChainRuntime & { stateDir: string };
/** What the plugin still has that only our DEL would find. */
let parts: string[];
let handed: number;

beforeEach(async () => {
  chain = makeNoopChain();
  [parts, handed] = [['a rule'], 0];
  runtime = {
    pluginDirs: [],
    cacheDir: chain.runtime.cacheDir,
    stateDir: path.join(chain.dir, 'state'),
    env: { ...process.env, CATENA_RUN_DIR: path.join(chain.dir, 'run') },
    find: type => `/somewhere/${type}`,
    isOwn: () => true,
    exec: ({ env }) => {
      const mode = env.CATENA_HANDOVER;
      if (mode === undefined) return { stdout: JSON.stringify(RESULT) };
      if (mode === 'do') [parts, handed] = [[], handed + 1];
      return { stdout: JSON.stringify({ handedOver: mode === 'do' ? ['a rule'] : parts }) };
    },
  };
  await addNetwork(listOf('1.1.0', [{ type: 'one' }]), ATTACHMENT, runtime);
});
afterEach(() => chain.dispose());

test('what is unchanged is handed over', async () => {
  const [attached] = listAttached('testnet', runtime);
  if (attached === undefined) throw new Error('the attachment is not listed');
  expect(await handOverOne(attached, 'do', runtime)).toMatchObject({ state: 'handed over' });
  expect(handed).toBe(1);
});

test('the note of its ADD, which only our DEL would remove, goes when it is handed over', async () => {
  const [attached] = listAttached('testnet', runtime);
  if (attached === undefined) throw new Error('the attachment is not listed');
  for (const nothingToDo of [false, true]) {
    noteGeneration(runDir(runtime.env), ID, { renew: true, boot: 'this' });
    parts = nothingToDo ? [] : ['a rule'];
    await handOverOne(attached, 'look', runtime);
    expect(findGeneration(runDir(runtime.env), ID)).toBeDefined();
    await handOverOne(attached, 'do', runtime);
    expect(findGeneration(runDir(runtime.env), ID)).toBeUndefined();
  }
});

test('what was changed after it was listed is refused, and no plugin changes anything', async () => {
  const [attached] = listAttached('testnet', runtime);
  if (attached === undefined) throw new Error('the attachment is not listed');
  const claim = mustClaim(runtime.stateDir, ID, 'change');
  const to = { source: claim.record.source, capabilityArgs: { portMappings: [] } };
  claim.beginChange({ to, plugins: [] });
  claim.commit({ ...to, result: RESULT });
  claim.release();
  const why = 'it has just been changed; run the command again';
  expect(await handOverOne(attached, 'do', runtime)).toMatchObject({ state: 'refused', why });
  expect(handed).toBe(0);
});

describe('attachments', () => {
  let dir: string;
  let runtime: Runtime;
  beforeEach(() => {
    dir = fs.mkdtempSync(path.join(tmpdir(), 'cat-attached-'));
    runtime = { pluginDirs: [], cacheDir: dir, stateDir: path.join(dir, 'state') };
  });
  afterEach(() => fs.rmSync(dir, { recursive: true }));

  const LIST = {
    cniVersion: '1.0.0',
    name: 'net',
    plugins: [{ type: 'bridge', ipam: { type: 'host-local' } }, { type: 'portmap' }],
  };

  function cache(containerId: string, netns: string, sandbox: string): void {
    const interfaces = [{ name: 'cni0' }, { name: 'eth0', sandbox }];
    writeEntry(dir, {
      network: 'net',
      containerId,
      ifname: 'eth0',
      netns,
      args: [],
      capabilityArgs: {},
      source: JSON.stringify(LIST),
      result: { cniVersion: '1.0.0', interfaces },
    });
  }

  describe('listAttached()', () => {
    test('takes the namespace from the result when the cache does not have it', () => {
      cache('one', '', '/proc/self/ns/net');
      cache('two', '', '/nonexistent');
      const found = listAttached(undefined, runtime);
      expect(found.map(({ containerId, netns, isGone }) => [containerId, netns, isGone])).toEqual([
        ['one', '/proc/self/ns/net', false],
        ['two', '/nonexistent', true],
      ]);
    });

    test('names every executable that its plugins call', () => {
      cache('one', '/proc/self/ns/net', '');
      const [found] = listAttached('net', runtime);
      expect(found?.types).toEqual(['bridge', 'host-local', 'portmap']);
      expect(listAttached('other', runtime)).toEqual([]);
    });
  });

  describe('isMadeIn()', () => {
    test('trusts the record, and accepts every attachment without one', () => {
      expect(isMadeIn('/opt/cni/bin', { stateDir: undefined, pluginDirs: [] })).toBe(true);
      expect(isMadeIn('/opt/cni/bin', { stateDir: '/s', pluginDirs: ['/opt/cni/bin/'] })).toBe(true);
      expect(isMadeIn('/opt/cni/bin', { stateDir: '/s', pluginDirs: ['/srv/bin'] })).toBe(false);
    });
  });

  describe('findMissing()', () => {
    const executables = new Map([['bridge', '/usr/lib/cni/bridge']]);

    test('names the executables missing for its DEL', () => {
      expect(findMissing({ types: ['bridge'] }, executables, '"/x"')).toBeUndefined();
      expect(findMissing({ types: ['bridge', 'sbr'] }, executables, '"/x"')).toBe(
        'there is no "sbr" in "/x" to delete it',
      );
    });

    test('reports a runner whose attachments only it knows', () => {
      expect(findMissing({ types: ['catena'] }, executables, '"/x"')).toContain('only it can detach them');
    });
  });
});
