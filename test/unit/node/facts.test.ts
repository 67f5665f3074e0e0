// Which names of interfaces does a delegate runner have in hand?
import { expect, test } from 'bun:test';
import { addPod } from '../../../src/delegate/add.ts';
import { deletePod } from '../../../src/delegate/delete.ts';
import { parsePod, renderPod } from '../../../src/delegate/record.ts';
import { readRecords } from '../../../src/node/facts.ts';
import { KEY, makePod, makeRunner } from '../../helpers/delegates.ts';
import { mustClaim } from '../../helpers/journal.ts';
import { makeNoopChain } from '../../helpers/noop-chain.ts';

test('those of a pod that it is making, or of a network that it is changing, and no others', async () => {
  const chain = makeNoopChain();
  try {
    const network = (name: string) => ({ cniVersion: '1.1.0', name, plugins: [chain.noop(name)] });
    const runner = makeRunner(chain, { delegates: [network('one'), network('two')] });
    const { runtime } = runner;
    const inHand = () =>
      readRecords({ ...runtime, stateDir: `${chain.dir}/state` }).inPods.map(({ ifname }) => ifname);
    const seen: string[][] = [];
    const exec = () => {
      seen.push(inHand());
      return { stdout: '{"cniVersion":"1.1.0"}' };
    };
    await addPod({ ...runner, runtime: { ...runtime, exec } }, makePod());
    expect(seen).toEqual([
      ['eth0', 'net1'],
      ['eth0', 'net1'],
    ]);
    // What an operator has detached by force can be attached again under its name.
    expect(inHand()).toEqual([]);
    const held = mustClaim(runner.podsDir, KEY, 'change');
    const pod = parsePod(held.record);
    const networks = pod.networks.map((one, i) => (i === 0 ? one : { ...one, state: 'coming' as const }));
    held.restate(renderPod({ ...pod, networks }));
    held.release();
    expect(inHand()).toEqual(['net1']);
    await deletePod(runner, KEY, '/proc/self/ns/net');
    expect(inHand()).toEqual([]);
  } finally {
    chain.dispose();
  }
});
