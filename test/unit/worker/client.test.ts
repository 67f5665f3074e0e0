// What becomes of the plugins of a segment when its worker ends?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { ExecOutcome } from '../../../src/chain/run/exec-plugin.ts';
import type { Segment } from '../../../src/chain/run/segment.ts';
import { ownSegments } from '../../../src/worker/client.ts';
import { ownWorker, WorkerProcess } from '../../../src/worker/process.ts';
import { deadline } from '../../helpers/deadline.ts';
import { until } from '../../helpers/until.ts';

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-client-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

/** Answers with its process id and what it was asked; writes down what it began; ends or waits on request. */
const program = path.join(dir, 'worker');
fs.writeFileSync(
  program,
  `#!${process.execPath}
import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
for await (const line of createInterface({ input: process.stdin })) {
  console.log();
  const asked = JSON.parse(line);
  if (asked.finish) process.exit(9);
  const { calls } = asked.segment;
  for (const [position, { stdin }] of calls.entries()) {
    appendFileSync(${JSON.stringify(path.join(dir, 'begun'))}, stdin + '\\n');
    if (stdin === 'die') process.exit(9);
    if (stdin === 'slow') await new Promise(resolve => setTimeout(resolve, 400));
    if (stdin === 'hang') await new Promise(resolve => setTimeout(resolve, 60_000));
    const removals = stdin === 'defer' ? [4711] : undefined;
    const more = position + 1 < calls.length;
    console.log(JSON.stringify({ exitCode: 0, stdout: process.pid + ' ' + stdin, stderr: '', more, removals }));
  }
}
`,
  { mode: 0o755 },
);

function begun(): string[] {
  return fs.readFileSync(path.join(dir, 'begun'), 'utf8').trim().split('\n');
}

/** Outcomes of a segment. */
async function run(requests: readonly string[], more: Partial<Segment> = {}) {
  fs.writeFileSync(path.join(dir, 'begun'), '');
  const calls = requests.map(stdin => ({ path: program, env: process.env, stdin }));
  const segment = { calls, threadsResult: false, stopsAtFailure: false, deadlineMs: 20_000 };
  const outcomes: ExecOutcome[] = [];
  for await (const outcome of ownSegments(ownWorker()).run({ ...segment, ...more })) outcomes.push(outcome);
  return outcomes;
}

test('ownSegments() has one worker run a segment in order', async () => {
  const outcomes = await run(['a', 'b', 'c']);
  expect(begun()).toEqual(['a', 'b', 'c']);
  const [pid] = outcomes[0]?.stdout.split(' ') ?? [];
  expect(outcomes.map(({ stdout }) => stdout)).toEqual([`${pid} a`, `${pid} b`, `${pid} c`]);
  expect(outcomes.map(({ more }) => more ?? false)).toEqual([true, true, false]);
});

test('ownSegments() ends with the plugin during which the worker died', async () => {
  const outcomes = await run(['a', 'die', 'c']);
  expect(begun()).toEqual(['a', 'die']);
  expect(outcomes).toMatchObject([{ exitCode: 0 }, { exitCode: 9, again: true }]);
  expect(outcomes.map(({ more }) => more ?? false)).toEqual([true, false]);
});

test('ownSegments() asks another worker when one had ended before it read the segment', async () => {
  const first = new WorkerProcess(program, process.env);
  const source = ownWorker(first);
  process.kill(first.pid as number, 'SIGKILL');
  fs.writeFileSync(path.join(dir, 'begun'), '');
  const calls = [{ path: program, env: process.env, stdin: 'a' }];
  const outcomes: ExecOutcome[] = [];
  const segment = { calls, threadsResult: false, stopsAtFailure: true, deadlineMs: 20_000 };
  // Only a worker that is known to have ended is passed over; until then the death looks like one in the middle.
  while (first.usable) await Bun.sleep(1);
  for await (const outcome of ownSegments(source).run(segment)) outcomes.push(outcome);
  expect(outcomes).toMatchObject([{ exitCode: 0 }]);
});

test('close() ends the worker once it has answered; a later call starts another one', async () => {
  const source = ownWorker();
  const call = { path: program, env: process.env };
  const pids: number[] = [];
  for (let i = 0; i < 2; i++) {
    const worker = await source.use(call, async one => one);
    pids.push(worker.pid as number);
    const calls = [{ plugin: 'one', env: {}, stdin: 'a' }];
    const segment = { calls, chain: '1', threadsResult: false, stopsAtFailure: true };
    const answer = worker.run({ deadlineMs: 20_000 }, segment).next();
    source.close();
    expect((await answer).value).toMatchObject({ exitCode: 0 });
    while (fs.existsSync(`/proc/${worker.pid}`)) await Bun.sleep(5);
  }
  expect(new Set(pids).size).toBe(2);
});

test('ownSegments() starts no further plugin after an interruption', async () => {
  const abort = new AbortController();
  const running = run(['hang', 'b'], { signal: abort.signal });
  await until(() => begun().includes('hang'));
  abort.abort();
  const outcomes = await running;
  expect(begun()).toEqual(['hang']);
  expect(outcomes.map(({ ended }) => ended)).toEqual(['interrupt']);
});

test('ownSegments() gives every plugin its own deadline', async () => {
  // The first one has the start of the worker in its time.
  const outcomes = await run(['a', 'hang', 'b'], { deadlineMs: deadline(3_000) });
  expect(outcomes).toMatchObject([{ exitCode: 0 }, { ended: 'deadline' }]);
});

test('ownSegments() waits for the worker when the caller leaves early', async () => {
  fs.writeFileSync(path.join(dir, 'begun'), '');
  const calls = ['a', 'b', 'c'].map(stdin => ({ path: program, env: process.env, stdin }));
  const segment = { calls, threadsResult: true, stopsAtFailure: true, deadlineMs: 20_000 };
  for await (const _ of ownSegments(ownWorker()).run(segment)) break;
  expect(begun()).toEqual(['a', 'b', 'c']);
});

test('finish() fails with how the worker ended, when its answer says nothing', async () => {
  const segments = ownSegments(ownWorker());
  const calls = [{ path: program, env: process.env, stdin: 'defer' }];
  const segment = { calls, threadsResult: false, stopsAtFailure: true, deadlineMs: 20_000 };
  for await (const _ of segments.run(segment));
  const outcome = await segments.finish();
  expect(outcome?.exitCode).toBe(1);
  expect(JSON.parse(outcome?.stdout ?? '')).toEqual({
    code: 11,
    msg: 'Cannot remove devices of the attachment: the worker ended before it had finished (exit status 9); run it again',
  });
});

test('ownSegments() asks other workers when one ends before it reads, and says when there is none', async () => {
  const deaf = path.join(dir, 'deaf');
  fs.writeFileSync(deaf, '#!/bin/sh\nexit 7\n', { mode: 0o755 });
  const told: string[] = [];
  const source = { ...ownWorker(), unserved: (why: string) => void told.push(why) };
  const calls = [{ path: deaf, env: process.env, stdin: '{}' }];
  const segment = { calls, threadsResult: false, stopsAtFailure: true, deadlineMs: 20_000 };
  const outcomes: ExecOutcome[] = [];
  for await (const outcome of ownSegments(source).run(segment)) outcomes.push(outcome);
  expect(outcomes).toMatchObject([{ exitCode: 7, again: true }]);
  expect(told).toEqual(['exit status 7']);
});

test.each([10, 5_000, 2_000_000])(
  'ask() of a worker that has just been killed is answered, and is reported nowhere else: %d bytes',
  async size => {
    const worker = new WorkerProcess(program, process.env);
    const limits = { deadlineMs: 20_000 };
    const calls = [{ plugin: 'noop', env: {}, stdin: 'a'.repeat(size) }];
    const segment = { calls, threadsResult: false, stopsAtFailure: true, chain: '1' };
    await worker.ask(limits, { segment });
    process.kill(worker.pid as number, 'SIGKILL');
    const outcomes = await Promise.all([worker.ask(limits, { segment }), worker.ask(limits, { segment })]);
    worker.close();
    expect(outcomes.map(({ signal }) => signal)).toEqual(['SIGKILL', 'SIGKILL']);
    expect(outcomes[1]).toMatchObject({ unread: true });
  },
);

test('ownSegments() lets a call end whose caller has gone, in a worker that another chain needs', async () => {
  const worker = new WorkerProcess(program, process.env);
  const call = async (stdin: string, signal?: AbortSignal): Promise<ExecOutcome | undefined> => {
    const calls = [{ path: program, env: process.env, stdin }];
    const segment = { calls, threadsResult: false, stopsAtFailure: true, deadlineMs: 20_000 };
    const segments = ownSegments({ use: (_, work) => work(worker) });
    for await (const outcome of segments.run({ ...segment, ...(signal ? { signal } : {}) })) return outcome;
    return undefined;
  };
  expect(await call('defer')).toMatchObject({ exitCode: 0 });
  expect(await call('slow', AbortSignal.timeout(100))).toMatchObject({ exitCode: 0 });
  expect(worker.usable).toBe(true);
  // What hangs is ended, if a little later.
  expect(await call('hang', AbortSignal.timeout(100))).toMatchObject({ ended: 'interrupt' });
  expect(worker.usable).toBe(false);
});
