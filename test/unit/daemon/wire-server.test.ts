// Until when does a call count as begun?
import { afterAll, expect, test } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hasGone } from '../../../src/daemon/has-gone.ts';
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
