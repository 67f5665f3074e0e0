// How do segments run as processes, or by a function of the caller?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import type { ExecOutcome, StartPlugin } from '../../../../src/chain/run/exec-plugin.ts';
import { addNetwork, deleteNetwork } from '../../../../src/chain/run/run.ts';
import type { Runtime } from '../../../../src/chain/run/runtime.ts';
import {
  type ExecCall,
  type ExecReply,
  execSegments,
  processSegments,
} from '../../../../src/chain/run/segment.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';

/** Notes when processes start, are asked, end and are discarded. */
function makeJournal(outcomes: Readonly<Record<string, Partial<ExecOutcome>>> = {}) {
  const journal: string[] = [];
  const start: StartPlugin = ({ path }) => {
    journal.push(`start ${path}`);
    return {
      async send(request) {
        journal.push(`send ${path} ${request}`);
        // A process takes longer than a turn of the event loop.
        await Bun.sleep(5);
        journal.push(`done ${path}`);
        return { exitCode: 0, stdout: `{"of":"${path}"}`, stderr: '', durationMs: 5, ...outcomes[path] };
      },
      discard: () => journal.push(`discard ${path}`),
    };
  };
  return { journal, start };
}

function segmentOf(
  paths: readonly string[],
  more: { threadsResult?: boolean; stopsAtFailure?: boolean } = {},
) {
  const calls = paths.map(path => ({ path, env: {}, stdin: '{"name":"net"}' }));
  return { calls, threadsResult: false, stopsAtFailure: true, deadlineMs: 1000, ...more };
}

describe('processSegments()', () => {
  test('starts the next process while one works', async () => {
    const { journal, start } = makeJournal();
    const runner = processSegments(start, () => true);
    for await (const _ of runner.run(segmentOf(['a', 'b', 'c']))) journal.push('read');
    const request = '{"name":"net"}';
    expect(journal).toEqual([
      ...['start a', `send a ${request}`, 'start b', 'done a', 'read'],
      ...[`send b ${request}`, 'start c', 'done b', 'read'],
      ...[`send c ${request}`, 'done c', 'read'],
    ]);
  });

  test('gives each the result of the one before it', async () => {
    const { journal, start } = makeJournal();
    const segment = segmentOf(['a', 'b'], { threadsResult: true });
    for await (const _ of processSegments(start, () => true).run(segment));
    expect(journal.find(line => line.startsWith('send b'))).toBe(
      'send b {"name":"net","prevResult":{"of":"a"}}',
    );
  });

  test('discards the process that it started ahead of a failure', async () => {
    const { journal, start } = makeJournal({ a: { exitCode: 1 } });
    for await (const _ of processSegments(start, () => true).run(segmentOf(['a', 'b'])));
    expect(journal).toEqual(['start a', 'send a {"name":"net"}', 'start b', 'done a', 'discard b']);
  });

  test('continues after a failure if the verb does', async () => {
    const { journal, start } = makeJournal({ a: { exitCode: 1 } });
    const segment = segmentOf(['a', 'b'], { stopsAtFailure: false });
    for await (const _ of processSegments(start, () => true).run(segment));
    expect(journal.at(-1)).toBe('done b');
  });

  test('discards the process that it started ahead when the caller leaves', async () => {
    const { journal, start } = makeJournal();
    for await (const _ of processSegments(start, () => true).run(segmentOf(['a', 'b']))) break;
    expect(journal.at(-1)).toBe('discard b');
  });

  test('joins only plugins that are declared to do nothing before they have read their request', () => {
    const { start } = makeJournal();
    const runner = processSegments(start, path => path === 'a');
    expect([runner.joins('a'), runner.joins('b')]).toEqual([true, false]);
  });
});

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

describe('execSegments()', () => {
  const send = async (reply: () => ExecReply): Promise<ExecOutcome> => {
    const calls = [{ path: '/bin/x', env: {}, stdin: '{}' }];
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
