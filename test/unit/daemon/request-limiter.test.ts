import { describe, expect, test } from 'bun:test';
import { RequestLimiter } from '../../../src/daemon/request-limiter.ts';

const limits = (requests: number) => ({ requests, queue: 10, bytes: 1 });

/** Asks for turns; `leave` ends one that has begun, in the order in which they began. */
function turnsOf(limiter: RequestLimiter, count: number): { leave: () => Promise<void> } {
  const begun: (() => void)[] = [];
  for (let i = 0; i < count; i++) void limiter.enter('net').then(leave => leave && begun.push(leave));
  return {
    async leave() {
      await Bun.sleep(0);
      begun.shift()?.();
      await Bun.sleep(0);
    },
  };
}

describe('RequestLimiter', () => {
  test('runs as many as the limit allows and queues the others', async () => {
    const limiter = new RequestLimiter(limits(2));
    const turns = turnsOf(limiter, 4);
    expect(limiter.state).toEqual({ running: 2, queued: 2, served: 0 });
    await turns.leave();
    expect(limiter.state).toEqual({ running: 2, queued: 1, served: 1 });
  });

  test('a lowered limit holds for what is queued already', async () => {
    const limiter = new RequestLimiter(limits(3));
    const turns = turnsOf(limiter, 6);
    limiter.limits = limits(1);
    await turns.leave();
    expect(limiter.state).toEqual({ running: 2, queued: 3, served: 1 });
    await turns.leave();
    expect(limiter.state).toEqual({ running: 1, queued: 3, served: 2 });
    await turns.leave();
    expect(limiter.state).toEqual({ running: 1, queued: 2, served: 3 });
  });

  test('a raised limit lets queued requests begin at once', () => {
    const limiter = new RequestLimiter(limits(1));
    turnsOf(limiter, 4);
    limiter.limits = limits(3);
    expect(limiter.state).toEqual({ running: 3, queued: 1, served: 0 });
  });

  test('refuses a request when the queue is full', async () => {
    const limiter = new RequestLimiter({ ...limits(1), queue: 1 });
    turnsOf(limiter, 2);
    const refused = limiter.enter('net');
    expect(limiter.state.queued).toBe(1);
    expect(await refused).toBeUndefined();
  });

  test('requests that hang give their turns to those that wait, and count as in progress', async () => {
    const limiter = new RequestLimiter(limits(2));
    turnsOf(limiter, 2);
    const other = await limiter.enter('other');
    expect(other).toBeFunction();
    expect(limiter.state).toEqual({ running: 3, queued: 0, served: 0 });
    other?.();
    await Bun.sleep(50);
    // Another one of the network that hangs is declined at once; elsewhere there are turns.
    expect(await limiter.enter('net')).toBeUndefined();
    expect(await limiter.enter('other')).toBeFunction();
  });

  test('what waits is declined where nothing ends, and keeps its place where something does', async () => {
    const limiter = new RequestLimiter(limits(1));
    turnsOf(limiter, 1);
    await Bun.sleep(600);
    // It waits for a turn whose holder gives it away later than the first look at the queue.
    const quick = limiter.enter('quick');
    const turn = await quick;
    expect(turn).toBeFunction();
    const stuck = limiter.enter('quick');
    turn?.();
    expect(await stuck).toBeFunction();
  });
});
