// Does a client learn that its request found no worker?
import { expect, test } from 'bun:test';
import type { Segment } from '../../../src/chain/run/segment.ts';
import { withWorkers } from '../../../src/daemon/backend.ts';
import { POOL_LIMITS, type Turn, WorkerPool } from '../../../src/daemon/pool.ts';
import { ownSegments } from '../../../src/worker/client.ts';
import type { WorkerSource } from '../../../src/worker/process.ts';
import { WorkerProcess } from '../../../src/worker/process.ts';

const SEGMENT: Segment = {
  calls: [{ path: '/bin/bridge', env: {}, stdin: '{}' }],
  threadsResult: false,
  stopsAtFailure: true,
  deadlineMs: 1_000,
};

/** Has no worker. */
const noWorkers: WorkerSource = {
  use: (_, work) => work(new WorkerProcess({ absent: 'EMFILE: too many open files' }, {})),
};

async function callThrough(
  workers: WorkerSource,
): Promise<{ exitCode: number; stdout: string; stderr: string }> {
  for await (const { spawnError } of ownSegments(workers).run(SEGMENT)) {
    return { exitCode: spawnError === undefined ? 0 : 1, stdout: '', stderr: spawnError ?? '' };
  }
  throw new Error('no outcome');
}

test('withWorkers() leaves a request to its client when it failed for lack of a worker', async () => {
  expect(await withWorkers(noWorkers, callThrough)).toMatchObject({
    exitCode: 1,
    declined: 'workers',
    begun: true,
    error: 'EMFILE: too many open files',
  });
});

test('withWorkers() answers a request that needed no worker', async () => {
  const done = { exitCode: 0, stdout: '{}', stderr: '' };
  const reply = await withWorkers(noWorkers, async workers => {
    await callThrough(workers);
    return done;
  });
  expect(reply).toEqual(done);
});

test('withWorkers() answers with the failure of a request that had its workers', async () => {
  const failed = { exitCode: 1, stdout: '{"code":100}', stderr: '' };
  expect(await withWorkers(noWorkers, async () => failed)).toEqual(failed);
});

test('requests wait until a thousand do; those beyond are declined', async () => {
  // The program of this process is Bun's own here, which ends at once as a worker.
  const env = { BUN_OPTIONS: '-e 0' };
  const events = { failing() {}, recovered() {}, hopeless() {} };
  const pool = new WorkerPool(env, { ...POOL_LIMITS, workers: 1 }, events);
  try {
    const first = pool.enter({ network: 'net' }) as Turn;
    void first.use({ path: '', env: {} }, () => new Promise(() => {}));
    await Bun.sleep(0);
    const entered = Array.from({ length: 1_029 }, () => pool.enter({ network: 'net' }));
    expect(entered.filter(turn => turn === undefined)).toHaveLength(5);
    expect(pool.state).toMatchObject({ running: 1, queued: 1_024 });
  } finally {
    pool.close();
  }
});

test('the next call of a container that has begun is served before the first of others', async () => {
  const events = { failing() {}, recovered() {}, hopeless() {} };
  const pool = new WorkerPool({ BUN_OPTIONS: '-e 0' }, { ...POOL_LIMITS, workers: 1 }, events);
  try {
    const begun: string[] = [];
    const call = async (series: string): Promise<void> => {
      const turn = await pool.enter({ network: 'net', series });
      begun.push(series);
      // The runtime makes the container's next call once this one is answered.
      await Promise.resolve();
      turn?.leave();
    };
    const first = pool.enter({ network: 'net', series: 'DEL a' }) as Turn;
    const others = [call('DEL b'), call('DEL c'), call('DEL a')];
    first.leave();
    await Promise.all(others);
    expect(begun).toEqual(['DEL a', 'DEL b', 'DEL c']);
  } finally {
    pool.close();
  }
});

test('a request that has no worker, as while it waits for the API server, lets others begin', async () => {
  const events = { failing() {}, recovered() {}, hopeless() {} };
  const pool = new WorkerPool({ BUN_OPTIONS: '-e 0' }, { ...POOL_LIMITS, workers: 1 }, events);
  try {
    const first = pool.enter({ network: 'net' }) as Turn;
    const second = Promise.resolve(pool.enter({ network: 'net' }));
    // Timers end in their order, however busy the machine is.
    const late = Bun.sleep(200).then(() => undefined);
    const turn = await Promise.race([second, late]);
    expect(turn).toBeDefined();
    turn?.leave();
    first.leave();
  } finally {
    pool.close();
  }
});

test('while the devices of a request are deleted, others are served, and those without devices do not wait', async () => {
  const events = { failing() {}, recovered() {}, hopeless() {} };
  const pool = new WorkerPool({ BUN_OPTIONS: '-e 0' }, { ...POOL_LIMITS, workers: 1 }, events);
  try {
    const first = pool.enter({ network: 'net' }) as Turn;
    const order: string[] = [];
    const second = Promise.resolve(pool.enter({ network: 'net' })).then(() => order.push('served'));
    const removed = first.remove?.([7], { deadlineMs: 20_000 }).then(() => order.push('removed'));
    await first.remove?.([], { deadlineMs: 20_000 }).then(() => order.push('nothing to remove'));
    await Promise.all([second, removed]);
    expect(order.at(-1)).toBe('removed');
    expect(order).toHaveLength(3);
  } finally {
    pool.close();
  }
});
