// Does each trial of a handover try the list of its own network, although several take place at the same time, and what if it is interrupted?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseNetwork } from '../../../../src/chain/config/conflist.ts';
import type { CommandCall } from '../../../../src/cli/command.ts';
import { handOverAll } from '../../../../src/cli/handover/hand-over-all.ts';

/** In place of `catena compare`: takes longer than other networks wait for, and answers which list it was given. */
const TRIAL = `
import { readFileSync } from 'node:fs';
await Bun.sleep(2_500);
const { name } = JSON.parse(readFileSync(process.argv.at(-1), 'utf8'));
console.log(JSON.stringify({ crossings: [{ fails: [name], left: [] }] }));
`;

function attachedTo(name: string) {
  const list = parseNetwork(JSON.stringify({ cniVersion: '1.0.0', name, plugins: [{ type: 'ptp' }] }));
  const id = { network: name, containerId: 'web', ifname: 'eth0', netns: '/run/netns/web' };
  const made = { list, types: ['ptp'], isGone: false, pluginDirs: undefined };
  return { ...id, args: [], capabilityArgs: {}, file: '', source: list.source, result: undefined, ...made };
}

test('handOverAll() refuses what it has not handed over when it is interrupted: an uninstallation would go on', async () => {
  const executables = new Map([['ptp', '/usr/lib/cni/ptp']]);
  const plan = { executables, place: 'there', visible: [], mode: 'do', force: false } as const;
  const call = { env: process.env, signal: AbortSignal.abort() } as unknown as CommandCall;
  const handovers = await handOverAll([attachedTo('one')] as never, plan, call, { pluginDirs: [] });
  const why = 'the command was interrupted before its turn came';
  expect(handovers).toMatchObject([{ network: 'one', state: 'refused', why }]);
});

test('handOverAll() tries each list, also while the trial of another network takes long', async () => {
  const dir = fs.mkdtempSync(join(tmpdir(), 'cat-handover-'));
  const [, script = ''] = process.argv;
  try {
    process.argv[1] = join(dir, 'trial.ts');
    fs.writeFileSync(process.argv[1], TRIAL);
    const attached = ['one', 'two'].map(attachedTo);
    const executables = new Map([['ptp', '/usr/lib/cni/ptp']]);
    const plan = { executables, place: 'there', visible: [], mode: 'look', force: false } as const;
    const { signal } = new AbortController();
    const call = { env: process.env, cwd: dir, signal } as unknown as CommandCall;
    const handovers = await handOverAll(attached as never, plan, call, { pluginDirs: [] });
    expect(handovers.map(({ network, why }) => [network, why])).toEqual([
      ['one', 'DEL still fails: one'],
      ['two', 'DEL still fails: two'],
    ]);
  } finally {
    process.argv[1] = script;
    fs.rmSync(dir, { recursive: true, force: true });
  }
});
