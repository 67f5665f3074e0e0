import { describe, expect, test } from 'bun:test';
import type { ExecOutcome, StartPlugin } from '../../../../src/chain/run/exec-plugin.ts';
import { processSegments } from '../../../../src/chain/run/process-segments.ts';

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
  const calls = paths.map(path => ({ path, env: {}, request: '{"name":"net"}' }));
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
