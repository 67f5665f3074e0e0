// Does a reply say what was done in the kernel when that is asked, and stay small?
import { describe, expect, test } from 'bun:test';
import { type Exchange, exchange } from '../../../src/netlink/socket.ts';
import { noting, toTransactions } from '../../../src/worker/worker.ts';

const DONE = { exitCode: 0, stdout: '', stderr: '' };

describe('noting()', () => {
  test('adds transactions to the reply, on request', async () => {
    const work = async () => {
      exchange(0, [{ op: 'find link "br0"' }], () => {});
      return DONE;
    };
    expect(await noting(undefined, work)).toEqual(DONE);
    expect(await noting(true, work)).toMatchObject({
      ...DONE,
      transactions: [{ family: 'rtnetlink', what: 'find link "br0"' }],
    });
  });

  test('listens only during the work, also when that fails', async () => {
    const fail = () => Promise.reject(new Error('no'));
    expect(noting(true, fail)).rejects.toThrow('no');
    expect(await noting(true, async () => DONE)).toEqual({ ...DONE, transactions: [] });
  });
});

describe('toTransactions()', () => {
  test('counts times from the start of the call, and sums up what exceeds the limit', () => {
    const exchanges = Array.from(
      { length: 205 },
      (_, i): Exchange => ({ family: 'rtnetlink', what: `${i}`, startedAt: 1000 + i, endedAt: 1000.5 + i }),
    );
    const told = toTransactions(exchanges, 1000);
    expect(told).toHaveLength(201);
    expect(told[1]).toEqual({ family: 'rtnetlink', what: '1', startMs: 1, durationMs: 0.5 });
    expect(told[200]).toEqual({
      family: 'all',
      what: '5 further transactions',
      startMs: 200,
      durationMs: 4.5,
    });
  });
});
