// Until when does a call count as begun?
import { afterAll, expect, test } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hasGone } from '../../../src/daemon/calls.ts';
import { listenForCalls } from '../../../src/daemon/wire-server.ts';
import { until } from '../../helpers/until.ts';
import { bytesOf, requestHere } from '../../helpers/wire.ts';

const dir = mkdtempSync(join(tmpdir(), 'catena-wire-'));
afterAll(() => rmSync(dir, { recursive: true }));

/** More than a socket takes at once. */
const LONG = { exitCode: 0, stdout: 'x'.repeat(4 << 20), stderr: '' };

async function call(path: string): Promise<net.Socket> {
  const client = net.connect(path);
  client.pause();
  client.write(bytesOf(await requestHere()));
  return client;
}

test.each(['reads the whole answer', 'has gone'])('until its client %s', async end => {
  const path = join(dir, end.replaceAll(' ', '-'));
  const seen = { answered: false, told: false };
  const told = (): void => {
    seen.told = true;
  };
  const listener = listenForCalls(
    path,
    1 << 20,
    () => {
      seen.answered = true;
      return Promise.resolve({ reply: LONG, told });
    },
    () => ({}),
    () => {},
  );
  try {
    const client = await call(path);
    await until(() => seen.answered);
    await Bun.sleep(50);
    expect(seen.told).toBe(false);
    if (end === 'has gone') client.destroy();
    else client.resume();
    await until(() => seen.told);
  } finally {
    await listener.stop();
  }
});

/** Writes a request to a socket, and ends without reading an answer. */
const KILLED = `
const [path, file] = process.argv.slice(1);
const client = await Bun.connect({ unix: path, socket: { data() {} } });
client.write(new Uint8Array(await Bun.file(file).arrayBuffer()));
process.kill(process.pid, 'SIGKILL');
`;

test.each([true, false])(
  'a call is only made for a client that is there: killed before %p',
  async isKilled => {
    const [path, request] = [join(dir, `killed-${isKilled}`), join(dir, 'request')];
    let calls = 0;
    const answer = async (_: unknown, gone: AbortSignal) => {
      // As the daemon looks before it begins a call.
      if (!(await hasGone(gone))) calls += 1;
      return { reply: { exitCode: 0, stdout: '', stderr: '' } };
    };
    const listener = listenForCalls(
      path,
      1 << 20,
      answer,
      () => ({}),
      () => {},
    );
    try {
      writeFileSync(request, bytesOf(await requestHere()));
      // This process does not read its sockets until then, like a daemon that is stopped.
      if (isKilled) Bun.spawnSync([process.execPath, '-e', KILLED, path, request]);
      const alive = await call(path);
      await until(() => calls > 0);
      alive.destroy();
    } finally {
      await listener.stop();
    }
    expect(calls).toBe(1);
  },
);

test.each([
  [[30, 30, 30, 30, 30, 30], 'is as silent as its longest pause, not as it is old'],
  [[0, 200, 0], 'is silent in a pause'],
] as const)('a request in pieces, %p ms apart, %s', async pauses => {
  const path = join(dir, `pieces-${pauses.length}`);
  const ages: number[] = [];
  const listener = listenForCalls(
    path,
    1 << 20,
    ({ ageMs = 0, silentMs = 0 }) => {
      ages.push(ageMs, silentMs);
      return Promise.resolve({ reply: { exitCode: 0, stdout: '', stderr: '' } });
    },
    () => ({}),
    () => {},
  );
  try {
    const client = net.connect(path);
    await new Promise(resolve => client.once('connect', resolve));
    const begin = performance.now();
    const bytes = bytesOf(await requestHere());
    const step = Math.ceil(bytes.length / (pauses.length + 1));
    client.write(bytes.subarray(0, step));
    for (const [i, ms] of pauses.entries()) {
      await Bun.sleep(ms);
      client.write(bytes.subarray(step * (i + 1), step * (i + 2)));
    }
    await until(() => ages.length > 0);
    const [age = 0, silent = 0] = ages;
    const longest = Math.max(...pauses);
    const total = pauses.reduce<number>((sum, ms) => sum + ms, 0);
    // GC needs its whole age, by which it spares what was made since the client began to send.
    expect(age).toBeGreaterThanOrEqual(total - 5);
    expect(silent).toBeGreaterThanOrEqual(longest - 1);
    // The other pauses are no part of it, however long each took on a busy machine.
    expect(silent).toBeLessThanOrEqual(performance.now() - begin - (total - longest) / 2);
    client.destroy();
  } finally {
    await listener.stop();
  }
});
