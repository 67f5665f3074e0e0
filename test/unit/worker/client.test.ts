// What becomes of calls that a worker was given ahead of their turn?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Invocation } from '../../../src/chain/exec-plugin.ts';
import { ownWorker, serveThrough } from '../../../src/worker/client.ts';
import { WorkerProcess } from '../../../src/worker/process.ts';

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-client-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

/** Answers with its process id and what it was asked; writes down what it began; ends or waits when it is told to. */
const program = path.join(dir, 'worker');
fs.writeFileSync(
  program,
  `#!${process.execPath}
import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
for await (const line of createInterface({ input: process.stdin })) {
  const { request } = JSON.parse(line).call;
  appendFileSync(${JSON.stringify(path.join(dir, 'begun'))}, request + '\\n');
  if (request === 'die') process.exit(9);
  if (request === 'hang') await new Promise(resolve => setTimeout(resolve, 60_000));
  console.log(JSON.stringify({ exitCode: 0, stdout: process.pid + ' ' + request, stderr: '' }));
}
`,
  { mode: 0o755 },
);

function begun(): string[] {
  return fs.readFileSync(path.join(dir, 'begun'), 'utf8').trim().split('\n');
}

async function sendAll(requests: readonly string[], more: Partial<Invocation> = {}) {
  fs.writeFileSync(path.join(dir, 'begun'), '');
  const links = serveThrough(ownWorker());
  const invocation = { path: program, env: process.env, deadlineMs: 20_000, signal: undefined, ...more };
  return Promise.all(requests.map(request => links.start(invocation).send(request)));
}

test('serveThrough() has one worker serve them in the order in which they were sent', async () => {
  const outcomes = await sendAll(['a', 'b', 'c']);
  expect(begun()).toEqual(['a', 'b', 'c']);
  const [pid] = outcomes[0]?.stdout.split(' ') ?? [];
  expect(outcomes.map(({ stdout }) => stdout)).toEqual([`${pid} a`, `${pid} b`, `${pid} c`]);
});

test('serveThrough() has another worker serve those that a worker which died had not begun', async () => {
  const [a, died, c, d] = await sendAll(['a', 'die', 'c', 'd']);
  expect(begun()).toEqual(['a', 'die', 'c', 'd']);
  expect(a).toMatchObject({ exitCode: 0 });
  expect(died).toMatchObject({ exitCode: 9, again: true });
  const [first, second] = [a, c].map(outcome => outcome?.stdout.split(' ')[0]);
  expect(first).not.toBe(second);
  expect(d?.stdout).toBe(`${second} d`);
});

test('serveThrough() begins nothing more once it is interrupted', async () => {
  const abort = new AbortController();
  setTimeout(() => abort.abort(), 500);
  const outcomes = await sendAll(['hang', 'b'], { signal: abort.signal });
  expect(begun()).toEqual(['hang']);
  expect(outcomes.map(({ ended }) => ended)).toEqual(['interrupt', 'interrupt']);
});

test('serveThrough() gives every call its own time', async () => {
  const [hung, b] = await sendAll(['hang', 'b'], { deadlineMs: 2_000 });
  expect(hung).toMatchObject({ ended: 'deadline' });
  expect(b).toMatchObject({ exitCode: 0 });
});

test.each([10, 5_000, 2_000_000])(
  'ask() of a worker that has just been killed is answered, and heard of nowhere else: %d bytes',
  async size => {
    const worker = new WorkerProcess(program, process.env);
    const limits = { deadlineMs: 20_000 };
    const call = { link: 'noop', env: {}, request: 'a'.repeat(size), chain: '1', id: 1 };
    await worker.ask(limits, { call });
    process.kill(worker.pid as number, 'SIGKILL');
    const outcomes = await Promise.all([worker.ask(limits, { call }), worker.ask(limits, { call })]);
    worker.close();
    expect(outcomes.map(({ signal }) => signal)).toEqual(['SIGKILL', 'SIGKILL']);
    expect(outcomes[1]).toMatchObject({ unread: true });
  },
);
