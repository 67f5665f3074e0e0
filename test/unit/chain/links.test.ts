import { describe, expect, test } from 'bun:test';
import type { ExecOutcome, StartPlugin } from '../../../src/chain/exec-plugin.ts';
import { IGNORED, openLinks } from '../../../src/chain/links.ts';
import type { Runtime } from '../../../src/chain/runtime.ts';
import { parseReply } from '../../../src/cni/reply.ts';
import { FIXTURE_PLUGINS, listOf } from '../../helpers/noop-chain.ts';

const OK: ExecOutcome = { exitCode: 0, stdout: '{}', stderr: '', durationMs: 1 };

/** Links whose starts, requests and discards are written down; the file names stand for the links. */
function makeJournal(own: readonly string[], outcomes: Readonly<Record<string, Partial<ExecOutcome>>> = {}) {
  const journal: string[] = [];
  let id = 0;
  const start: StartPlugin = ({ path }) => {
    const name = path.slice(FIXTURE_PLUGINS.length + 1);
    journal.push(`start ${name}`);
    return {
      id: ++id,
      async send(_, follows) {
        journal.push(follows === undefined ? `send ${name}` : `send ${name} after ${follows}`);
        // A process takes longer than a turn of the event loop.
        await Bun.sleep(5);
        journal.push(`done ${name}`);
        return { ...OK, ...outcomes[name] };
      },
      discard: () => journal.push(`discard ${name}`),
    };
  };
  const runtime: Runtime = {
    pluginDirs: [FIXTURE_PLUGINS],
    start,
    isOwn: path => own.some(name => path.endsWith(`/${name}`)),
  };
  return { journal, runtime };
}

const LIST = listOf('1.1.0', [{ type: 'noop' }, { type: 'fail' }, { type: 'hang' }]);

describe('openLinks()', () => {
  test('starts the next of our own while one works', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail', 'hang']);
    const links = openLinks(LIST, 'DEL', runtime, [2, 1, 0], IGNORED);
    for (const index of [2, 1, 0]) await links.call(index, {});
    links.close();
    expect(journal).toEqual([
      ...['start hang', 'send hang', 'start fail', 'done hang'],
      ...['send fail', 'start noop', 'done fail'],
      ...['send noop', 'done noop'],
    ]);
  });

  test('starts a foreign one only when it is its turn', async () => {
    const { journal, runtime } = makeJournal(['noop', 'hang']);
    const links = openLinks(LIST, 'ADD', runtime, [0, 1, 2], IGNORED);
    for (const index of [0, 1, 2]) await links.call(index, {});
    expect(journal).toEqual([
      ...['start noop', 'send noop', 'done noop'],
      ...['start fail', 'send fail', 'start hang', 'done fail'],
      ...['send hang', 'done hang'],
    ]);
  });

  test('sends what is foretold at once where it is served in order, up to a foreign one', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail']);
    const links = openLinks(LIST, 'CHECK', { ...runtime, inOrder: true }, [0, 1, 2], IGNORED);
    links.foretell(index => ({ index }));
    for (const index of [0, 1, 2]) await links.call(index, { index });
    expect(journal).toEqual([
      ...['start noop', 'send noop', 'start fail', 'send fail', 'done noop', 'done fail'],
      ...['start hang', 'send hang', 'done hang'],
    ]);
  });

  test('sends what takes the reply before, too, when that has been written down', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail', 'hang']);
    const links = openLinks(LIST, 'ADD', { ...runtime, inOrder: true }, [0, 1, 2], IGNORED);
    links.foretell(
      index => ({ index }),
      last => journal.push(`together to ${last}`),
    );
    await links.call(0, {});
    expect(await links.begun()).toBe(2);
    expect(journal).toEqual([
      ...['start noop', 'send noop', 'start fail', 'start hang', 'together to 2'],
      ...['send fail after 1', 'send hang after 2', 'done noop', 'done fail', 'done hang'],
    ]);
  });

  test('sends them one by one when it cannot be written down', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail']);
    const links = openLinks(LIST, 'ADD', { ...runtime, inOrder: true }, [0, 1], IGNORED);
    links.foretell(
      index => ({ index }),
      () => {
        throw new Error('the disk is full');
      },
    );
    for (const index of [0, 1]) await links.call(index, {});
    expect(journal).toEqual([
      ...['start noop', 'send noop', 'start fail', 'done noop', 'send fail', 'done fail'],
    ]);
  });

  test('knows that a link was skipped after a failure', async () => {
    const { runtime } = makeJournal(['noop', 'fail', 'hang'], {
      fail: { exitCode: 1 },
      hang: { exitCode: 1, skipped: true },
    });
    const links = openLinks(LIST, 'ADD', { ...runtime, inOrder: true }, [0, 1, 2], IGNORED);
    links.foretell(
      index => ({ index }),
      () => {},
    );
    await links.call(0, {});
    await expect(links.call(1, {})).rejects.toThrow('Plugin "fail" failed');
    expect(await links.begun()).toBe(1);
  });

  test('discards what was started ahead of a failure', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail', 'hang'], { noop: { exitCode: 1 } });
    const links = openLinks(LIST, 'ADD', runtime, [0, 1, 2], IGNORED);
    await expect(links.call(0, {})).rejects.toThrow(
      'Plugin "noop" failed and its output is not a CNI error: "{}"',
    );
    links.close();
    links.close();
    expect(journal).toEqual(['start noop', 'send noop', 'start fail', 'done noop', 'discard fail']);
  });

  test('starts nothing once it is interrupted', async () => {
    const { journal, runtime } = makeJournal(['noop', 'fail']);
    const links = openLinks(LIST, 'ADD', { ...runtime, signal: AbortSignal.abort() }, [0, 1], IGNORED);
    await expect(links.call(0, {})).rejects.toThrow('Cannot finish ADD of plugin "noop": it was interrupted');
    expect(journal).toEqual([]);
  });

  test('reports a file that vanished meanwhile when its turn comes', async () => {
    const { journal, runtime } = makeJournal(['noop', 'missing']);
    const list = listOf('1.1.0', [{ type: 'noop' }, { type: 'missing' }]);
    const links = openLinks(list, 'ADD', runtime, [0, 1], IGNORED);
    await links.call(0, {});
    await expect(links.call(1, {})).rejects.toMatchObject({
      link: { link: 'missing', index: 1, verb: 'ADD' },
    });
    expect(journal).toEqual(['start noop', 'send noop', 'done noop']);
  });

  test('reads the output only as the verb does', async () => {
    const { runtime } = makeJournal([], { noop: { stdout: 'not JSON' } });
    expect(await openLinks(LIST, 'DEL', runtime, [0], IGNORED).call(0, {})).toBeUndefined();
    await expect(openLinks(LIST, 'ADD', runtime, [0], parseReply).call(0, {})).rejects.toMatchObject({
      message: expect.stringContaining('Cannot decode output of plugin "noop"'),
      link: { link: 'noop', index: 0, executable: `${FIXTURE_PLUGINS}/noop`, durationMs: 1, exitCode: 0 },
    });
  });

  test('tells why a link did not start', async () => {
    const { runtime } = makeJournal([], { noop: { spawnError: 'EACCES: permission denied' } });
    await expect(openLinks(LIST, 'ADD', runtime, [0], IGNORED).call(0, {})).rejects.toMatchObject({
      message: 'Cannot start plugin "noop": EACCES: permission denied',
      details: `${FIXTURE_PLUGINS}/noop`,
    });
  });

  test('keeps the end of a long standard error', async () => {
    const stderr = `${'x'.repeat(10_000)}the end`;
    const { runtime } = makeJournal([], { noop: { exitCode: 2, stderr } });
    await expect(openLinks(LIST, 'ADD', runtime, [0], IGNORED).call(0, {})).rejects.toMatchObject({
      link: { stderr: stderr.slice(-4096), exitCode: 2 },
    });
  });
});
