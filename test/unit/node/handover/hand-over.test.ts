// Is an attachment handed over as it is, although it may have changed since it was listed?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import path from 'node:path';
import { findGeneration, noteGeneration } from '../../../../src/attachments/generation.ts';
import { addNetwork } from '../../../../src/chain/run/run.ts';
import type { ChainRuntime } from '../../../../src/chain/run/runtime.ts';
import { runDir } from '../../../../src/cni/directories.ts';
import { listAttached } from '../../../../src/node/handover/attachments.ts';
import { handOverOne } from '../../../../src/node/handover/hand-over.ts';
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
