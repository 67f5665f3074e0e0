import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { type ExecCall, type ExecReply, execSegments } from '../../../../src/chain/run/exec.ts';
import type { ExecOutcome } from '../../../../src/chain/run/exec-plugin.ts';
import { addNetwork, deleteNetwork } from '../../../../src/chain/run/run.ts';
import type { Runtime } from '../../../../src/chain/run/runtime.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

describe('execSegments()', () => {
  const send = async (reply: () => ExecReply): Promise<ExecOutcome> => {
    const calls = [{ path: '/bin/x', env: {}, request: '{}' }];
    const segment = { calls, threadsResult: false, stopsAtFailure: true, deadlineMs: 5 };
    for await (const outcome of execSegments(reply).run(segment)) return outcome;
    throw new Error('no outcome');
  };

  test('treats missing fields as success without output', async () => {
    expect(await send(() => ({}))).toEqual({
      exitCode: 0,
      stdout: '',
      stderr: '',
      durationMs: expect.any(Number),
    });
    expect(await send(() => ({ signal: 'SIGKILL', stderr: 'x' }))).toMatchObject({ signal: 'SIGKILL' });
    expect('exitCode' in (await send(() => ({ signal: 'SIGKILL' })))).toBe(false);
  });

  test('treats a rejection as a plugin that did not start', async () => {
    const outcome = await send(() => {
      throw new Error('no worker is left');
    });
    expect(outcome.spawnError).toBe('no worker is left');
  });
});

describe('Runtime.exec', () => {
  test('runs a chain without any file', async () => {
    const calls: ExecCall[] = [];
    const runtime: Runtime = {
      pluginDirs: [],
      cacheDir: chain.runtime.cacheDir,
      deadlineMs: { DEL: 7000 },
      find: type => `/somewhere/${type}`,
      exec(call) {
        calls.push(call);
        return { stdout: JSON.stringify({ cniVersion: '1.1.0', ips: [{ address: '10.0.0.2/24' }] }) };
      },
    };
    const list = listOf('1.1.0', [{ type: 'one' }, { type: 'two' }]);
    const result = await addNetwork(list, ATTACHMENT, runtime);
    await deleteNetwork(list, ATTACHMENT, runtime);
    expect(result.ips).toHaveLength(1);
    expect(calls.map(({ path, env, deadlineMs }) => [path, env.CNI_COMMAND, deadlineMs])).toEqual([
      ['/somewhere/one', 'ADD', 60_000],
      ['/somewhere/two', 'ADD', 60_000],
      ['/somewhere/two', 'DEL', 7000],
      ['/somewhere/one', 'DEL', 7000],
    ]);
    expect(JSON.parse(calls[1]?.request ?? '')).toMatchObject({ type: 'two', prevResult: result });
  });

  test('reports failures like those of a process', async () => {
    const exec = () => ({ exitCode: 3, stderr: 'out of cheese' });
    await expect(
      addNetwork(listOf('1.1.0', [{ type: 'noop' }]), ATTACHMENT, { ...chain.runtime, exec }),
    ).rejects.toMatchObject({
      message: 'Plugin "noop" failed with "out of cheese": exit status 3',
      plugin: {
        network: 'testnet',
        type: 'noop',
        index: 0,
        verb: 'ADD',
        exitCode: 3,
        stderr: 'out of cheese',
      },
    });
  });
});
