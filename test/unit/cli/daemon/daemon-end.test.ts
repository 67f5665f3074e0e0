// When does an idle daemon end, and how long does one that ends wait for its requests?
import { expect, spyOn, test } from 'bun:test';
import { type Activity, DaemonEnd, watchIdle } from '../../../../src/cli/daemon/daemon-end.ts';

const IDLE: Activity = { running: 0, queued: 0, served: 0, connections: 0, kept: 0, passedBy: 0 };
const LIMIT_MS = 20;

/** Whether a daemon with this activity ends within ten times its idle time. */
async function ends(activity: Partial<Activity>): Promise<boolean> {
  let isOver = false;
  const unwatch = watchIdle(
    () => ({ ...IDLE, ...activity }),
    () => LIMIT_MS,
    () => {
      isOver = true;
    },
  );
  await Bun.sleep(10 * LIMIT_MS);
  unwatch();
  return isOver;
}

test('it ends when nothing happens for its idle time', async () => {
  expect(await ends({})).toBe(true);
});

test.each<Partial<Activity>>([{ running: 1 }, { queued: 1 }, { connections: 1 }, { kept: 1 }])(
  'it stays with %j',
  async activity => {
    expect(await ends(activity)).toBe(false);
  },
);

test('it ends, whatever it keeps, where it served nothing and calls came that another one could serve', async () => {
  let passedBy = 1;
  expect(
    await ends({
      kept: 1,
      connections: 1,
      get passedBy() {
        return passedBy++;
      },
    }),
  ).toBe(true);
  expect(await ends({ kept: 1, connections: 1, passedBy: 5 })).toBe(false);
  let served = 1;
  expect(
    await ends({
      kept: 1,
      get passedBy() {
        return passedBy++;
      },
      get served() {
        return served++;
      },
    }),
  ).toBe(false);
});

test.each([
  ['it was asked to', (end: DaemonEnd) => end.come(3, 'another daemon is replacing this one'), 3],
  ['of a signal', (_: DaemonEnd, signal: AbortController) => signal.abort(), 0],
])(
  'a minute after the end because %s, requests in progress no longer keep it',
  async (_, bring, exitCode) => {
    const signal = new AbortController();
    const end = new DaemonEnd(signal.signal, () => {});
    const timers = spyOn(globalThis, 'setTimeout').mockImplementation((() => ({ unref() {} })) as never);
    const exit = spyOn(process, 'exit').mockImplementation((() => {}) as never);
    try {
      bring(end, signal);
      const [[expire, afterMs] = []] = timers.mock.calls;
      expire?.();
      expect([afterMs, exit.mock.calls]).toEqual([60_000, [[exitCode]]]);
    } finally {
      timers.mockRestore();
      exit.mockRestore();
    }
    expect((await end.reached).exitCode).toBe(exitCode);
  },
);
