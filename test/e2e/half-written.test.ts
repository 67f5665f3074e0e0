// What becomes of files that a process was writing when it was killed?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { collectGarbage } from '../../src/chain/records/collect-garbage.ts';
import { recover } from '../../src/chain/records/recover.ts';
import { addNetwork } from '../../src/chain/run/run.ts';
import { unfinishedName } from '../../src/files/put-file.ts';
import { filesBelow } from '../helpers/journal.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../helpers/noop-chain.ts';
import { ROOT } from '../helpers/source-tree.ts';

const RESULT = { cniVersion: '1.1.0', ips: [{ address: '10.1.0.2/24' }] };

let chain: NoopChain;
let runtime: NoopChain['runtime'] & { stateDir: string };
beforeEach(() => {
  chain = makeNoopChain();
  runtime = { ...chain.runtime, stateDir: path.join(chain.dir, 'state') };
});
afterEach(() => chain.dispose());

const list = () => listOf('1.1.0', [chain.noop('one', { ReportResult: RESULT })]);
const other = { ...ATTACHMENT, containerId: 'c2' };
/** Files that only a writer knows. */
const halfWritten = () =>
  [...filesBelow(runtime.stateDir), ...filesBelow(runtime.cacheDir)].filter(name =>
    path.basename(name).startsWith('.'),
  );

/** Runs ADD in a process that is killed before it gives a file this name. */
async function killAt(name: string): Promise<void> {
  const argument = JSON.stringify({ verb: 'ADD', source: list().source, attachment: ATTACHMENT, runtime });
  const preload = path.join(ROOT, 'test/fixtures/kill-at-rename.ts');
  const argv = [process.execPath, '--preload', preload, path.join(ROOT, 'test/fixtures/run-chain.ts')];
  const env = { ...process.env, KILL_AT: name };
  const child = Bun.spawn([...argv, argument], { stdout: 'pipe', stderr: 'inherit', env });
  await child.exited;
  expect(child.signalCode).toBe('SIGKILL');
  expect(halfWritten()).toHaveLength(1);
}

const FILES = [
  ['the note of the attachment', '/unsettled/testnet/c1:eth0'],
  ['the cached result', '/testnet-c1-eth0'],
  ['the boot note', '/boot'],
] as const;

describe('a process killed before it finishes', () => {
  test.each(FILES)('%s leaves nothing after the next command on the network', async (_, name) => {
    await killAt(name);
    await addNetwork(list(), other, runtime);
    expect(halfWritten()).toEqual([]);
  });

  test.each(FILES)('%s leaves nothing after a daemon starts or "catena repair" runs', async (_, name) => {
    await killAt(name);
    await recover({ all: true }, runtime);
    expect(halfWritten()).toEqual([]);
  });

  test.each(FILES.slice(0, 2))('%s leaves nothing after "catena gc"', async (_, name) => {
    await killAt(name);
    await collectGarbage(list(), { all: true }, runtime);
    expect(halfWritten()).toEqual([]);
  });
});

test('unfinished files of a live process are kept', async () => {
  await addNetwork(list(), other, runtime);
  for (const dir of ['state/unsettled/testnet', 'cache/results'])
    fs.writeFileSync(path.join(chain.dir, dir, unfinishedName()), 'half');
  await recover({ all: true }, runtime);
  await collectGarbage(list(), { all: true }, runtime);
  expect(halfWritten()).toHaveLength(2);
});
