import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import type { HeldKnown } from '../../../src/attachments/hold.ts';
import { defined, type JsonObject } from '../../../src/cni/json.ts';
import { addPod } from '../../../src/delegate/add.ts';
import { checkPod, runnerStatus } from '../../../src/delegate/check.ts';
import { parsePod, renderPod } from '../../../src/delegate/record.ts';
import { KEY, makePod, makeRunner } from '../../helpers/delegates.ts';
import { mustClaim } from '../../helpers/journal.ts';
import { makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

const network = (name: string, more: JsonObject = {}): JsonObject => ({
  cniVersion: '1.1.0',
  name,
  plugins: [chain.noop(name)],
  ...more,
});

describe('checkPod()', () => {
  const NETNS = '/proc/self/ns/net';

  test('calls every network on record, whatever the current configuration says', async () => {
    const delegates = [network('one'), network('two', { cniVersion: '0.4.0' })];
    await addPod(makeRunner(chain, { delegates }), makePod());
    await checkPod(makeRunner(chain, { network: 'gone' }), KEY, NETNS);
    expect(chain.order().slice(2)).toEqual(['CHECK one', 'CHECK two']);
  });

  test('skips a network that has no CHECK', async () => {
    const delegates = [network('one', { cniVersion: '0.3.1' }), network('two', { disableCheck: true })];
    const runner = makeRunner(chain, { delegates });
    await addPod(runner, makePod());
    await checkPod(runner, KEY, NETNS);
    expect(chain.order().slice(2)).toEqual([]);
  });

  test('continues after an objection, and passes a single one on unchanged', async () => {
    const runner = makeRunner(chain, { delegates: [network('one'), network('two')] });
    await addPod(runner, makePod());
    chain.rescript('one', { ReportError: 'gone', ReportErrorCode: 105 });
    await expect(checkPod(runner, KEY, NETNS)).rejects.toMatchObject({ code: 105, message: 'gone' });
    expect(chain.order().slice(2)).toEqual(['CHECK one', 'CHECK two']);
  });

  test('asks the networks of the result cache of a pod that multus attached', async () => {
    const runner = makeRunner(chain, { delegates: [network('one'), network('two')] });
    await addPod(runner, makePod());
    fs.rmSync(`${runner.podsDir}/results`, { recursive: true });
    chain.rescript('two', { ReportError: 'gone', ReportErrorCode: 105 });
    await expect(checkPod(runner, KEY, NETNS)).rejects.toMatchObject({ code: 105, message: 'gone' });
    expect(chain.order().slice(2)).toEqual(['CHECK one', 'CHECK two']);
    const unknown = checkPod(runner, { ...KEY, containerId: 'c9' }, NETNS);
    await expect(unknown).rejects.toMatchObject({ code: 3 });
  });

  describe('beside another process', () => {
    const claim = () => mustClaim(`${chain.dir}/state/pods`, KEY);

    test('has code 11 while it detaches the pod, and calls no plugin', async () => {
      const runner = makeRunner(chain, { delegates: [network('one')] });
      await addPod(runner, makePod());
      const claimed = claim();
      await expect(checkPod(runner, KEY, NETNS)).rejects.toMatchObject({ code: 11 });
      expect(chain.order().slice(1)).toEqual([]);
      // Its next attempt may come at any time, but what is missing until then is missing.
      claimed.fail([]);
      claimed.release();
      await checkPod(runner, KEY, NETNS);
      expect(chain.order().slice(1)).toEqual(['CHECK one']);
    });

    test('leaves out a network that it is attaching or detaching', async () => {
      const runner = makeRunner(chain, { delegates: ['one', 'two', 'three'].map(name => network(name)) });
      await addPod(runner, makePod());
      const claimed = mustClaim(`${chain.dir}/state/pods`, KEY, 'change');
      const pod = parsePod(claimed.record);
      const states = [undefined, 'going', 'coming'] as const;
      const networks = pod.networks.map((one, i) => ({ ...one, ...defined({ state: states[i] }) }));
      claimed.restate(renderPod({ ...pod, networks }));
      claimed.release();
      await checkPod(runner, KEY, NETNS);
      expect(chain.order().slice(3)).toEqual(['CHECK one']);
    });

    test('has code 11 if that begins during the check, and 3 if it has ended', async () => {
      const runner = makeRunner(chain, { delegates: [network('one')] });
      await addPod(runner, makePod());
      let during = () => {};
      const exec = () => {
        during();
        return { exitCode: 1, stdout: '{"code":100,"msg":"gone"}' };
      };
      const looking = { ...runner, runtime: { ...runner.runtime, exec } };
      const check = () => checkPod(looking, KEY, NETNS);
      await expect(check()).rejects.toMatchObject({ code: 100 });
      let claimed: HeldKnown | undefined;
      during = () => {
        claimed = claim();
      };
      await expect(check()).rejects.toMatchObject({ code: 11 });
      claimed?.fail([]);
      claimed?.release();
      during = () => {
        const gone = claim();
        gone.drop();
        gone.release();
      };
      await expect(check()).rejects.toMatchObject({ code: 3 });
    });
  });

  test('fails with code 3 without an ADD on record', async () => {
    const runner = makeRunner(chain, { delegates: [network('one')] });
    await expect(checkPod(runner, KEY, NETNS)).rejects.toMatchObject({ code: 3 });
  });
});

describe('runnerStatus()', () => {
  test('calls every network of the configuration, and passes codes on', async () => {
    const runner = makeRunner(chain, { delegates: [network('one'), network('two')] });
    await runnerStatus(runner);
    expect(chain.order()).toEqual(['STATUS one', 'STATUS two']);
    chain.rescript('one', { ReportError: 'no addresses', ReportErrorCode: 51 });
    await expect(runnerStatus(runner)).rejects.toMatchObject({ code: 51, message: 'no addresses' });
    expect(chain.order().slice(2)).toEqual(['STATUS one', 'STATUS two']);
  });

  test('has code 50 while the default network has no configuration, or is not ready', async () => {
    await expect(runnerStatus(makeRunner(chain, { network: 'gone' }))).rejects.toMatchObject({ code: 50 });
    const readinessFile = path.join(chain.dir, 'ready');
    const runner = makeRunner(chain, { delegates: [network('one')], readinessFile });
    await expect(runnerStatus(runner)).rejects.toMatchObject({
      code: 50,
      message: `Cannot attach to the default network: it is not ready, "${readinessFile}" does not exist`,
    });
    fs.writeFileSync(readinessFile, '');
    await runnerStatus(runner);
  });
});
