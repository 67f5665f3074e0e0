// Are the bytes of requests and replies the documented ones, what does the decoder refuse, and until when does a call count as begun?
import { afterAll, describe, expect, test } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hasGone } from '../../../src/daemon/calls.ts';
import { decline, type RunRequest, wireOf } from '../../../src/daemon/protocol.ts';
import {
  asksAfter,
  decodeFrame,
  decodeRequest,
  encodeAnswer,
  listenForCalls,
  PING,
  requestLength,
  SIGN,
  WIRE,
} from '../../../src/daemon/wire.ts';
import { until } from '../../helpers/until.ts';
import { bytesOf, requestHere, sendToWire } from '../../helpers/wire.ts';

const KEY = '00112233-4455-4677-8899-aabbccddeeff';
const REQUEST: RunRequest = {
  place: { executable: '1:2', network: '3:4', mount: '5:258' },
  plugin: 'tuning',
  args: [],
  cwd: '/tmp',
  env: { CNI_COMMAND: 'ADD', EMPTY: '' },
  stdin: '{"name":"\u00e4"}',
  key: KEY,
};

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

describe('a request', () => {
  test('has these bytes', () => {
    const bytes = bytesOf(REQUEST);
    expect(hex(bytes.subarray(0, 8))).toBe('43544e4101000000');
    expect(hex(bytes.subarray(8, 16))).toBe(`${le32(bytes.length)}01000000`);
    expect(Buffer.from(bytes.subarray(16, 52)).toString()).toBe(KEY);
    expect(hex(bytes.subarray(56, 104))).toBe([1, 2, 3, 4, 5, 258].map(n => `${le32(n)}00000000`).join(''));
    expect(hex(bytes.subarray(104, 124))).toBe([6, 4, 0, 23, 13].map(le32).join(''));
    expect(Buffer.from(bytes.subarray(128)).toString()).toBe(
      'tuning/tmpCNI_COMMAND=ADD\0EMPTY=\0{"name":"\u00e4"}',
    );
  });

  test('is decoded as it was', () => {
    const decode = (request: RunRequest) => {
      const { ageMs, ...decoded } = decodeRequest(bytesOf(request)) ?? {};
      expect(ageMs).toBeWithin(0, 1_000);
      return decoded;
    };
    expect(decode(REQUEST)).toEqual(REQUEST);
    const { plugin: _, stdin: __, ...rest } = REQUEST;
    const command = { ...rest, args: ['add', '', 'podnet'], env: {}, stdin: '' };
    expect(decode(command)).toEqual(command);
    expect(decode({ ...rest, stdin: '' })).toEqual({ ...rest, stdin: '' });
  });

  test.each([1_700, -1_700])('of %p ms ago has that age', ageMs => {
    const decoded = decodeRequest(bytesOf({ ...REQUEST, ageMs }));
    expect(Math.abs((decoded?.ageMs ?? 0) - ageMs)).toBeLessThan(1_000);
  });

  test('has the environment as Bun reads it: the last of two wins, one without "=" is empty', () => {
    const bytes = Buffer.from(bytesOf({ ...REQUEST, env: { AB: 'one', AC: 'two', N: '' } }));
    const at = bytes.indexOf('AC=two');
    bytes.write('AB', at);
    const last = bytes.indexOf('N=');
    bytes.write('NO', last);
    expect(decodeRequest(bytes)?.env).toEqual({ AB: 'two', NO: '' });
  });

  test.each([
    ['another magic number', 0, 1],
    ['another version', 4, 2],
    ['a length below the header', 8, 127],
    ['a length above the limit', 8, 0x7fffffff],
  ])('with %s has no length', (_, at, value) => {
    const bytes = bytesOf(REQUEST);
    new DataView(bytes.buffer).setUint32(at, value, true);
    expect(requestLength(bytes, 1 << 20)).toBeUndefined();
  });

  test.each([
    ['parts that do not fill it', 104, 7],
    ['parts that are longer than it', 120, 0xffffffff],
    ['an unknown kind', 12, 9],
    ['a key of other characters', 16, 0x0a0a0a0a],
  ])('with %s is refused', (_, at, value) => {
    const bytes = bytesOf(REQUEST);
    new DataView(bytes.buffer).setUint32(at, value, true);
    expect(decodeRequest(bytes)).toBeUndefined();
  });
});

test('a ping has these bytes, and is known by its kind', () => {
  expect(hex(PING.subarray(0, 16))).toBe('43544e41010000008000000002000000');
  expect(hex(PING.subarray(16))).toBe('00'.repeat(112));
  expect(requestLength(PING, 1 << 20)).toBe(128);
  expect([asksAfter(PING), asksAfter(bytesOf(REQUEST))]).toEqual([{}, undefined]);
  expect(decodeRequest(PING)).toBeUndefined();
});

describe('a reply', () => {
  test('has these bytes', () => {
    expect(hex(SIGN)).toBe(`43544e41${[1, 24, 0, 0, 0].map(le32).join('')}`);
    expect(hex(encodeAnswer(decline('build', 'x')))).toBe(`43544e41${[2, 24, 0, 0, 0].map(le32).join('')}`);
    expect(hex(encodeAnswer({ exitCode: 1, stdout: 'ab', stderr: 'c' }))).toBe(
      `43544e41${[3, 27, 1, 2, 1].map(le32).join('')}616263`,
    );
  });

  test('is decoded as it was, in pieces', () => {
    const reply = { exitCode: 1, stdout: '{"a":"\u00e4"}', stderr: 'no\n' };
    const bytes = encodeAnswer(reply);
    for (let at = 0; at < bytes.length; at++) expect(decodeFrame(bytes.subarray(0, at))).toBeUndefined();
    expect(decodeFrame(bytes)).toEqual({ frame: { kind: 'answer', reply }, length: bytes.length });
    expect(decodeFrame(SIGN)).toEqual({ frame: { kind: 'sign' }, length: 24 });
    const lost = encodeAnswer({ ...reply, declined: 'workers', begun: true });
    expect(decodeFrame(lost)).toMatchObject({ frame: { kind: 'declined', begun: true } });
  });

  test('that no client would take says "lost"', () => {
    const answer = { exitCode: 0, stdout: 'x'.repeat(WIRE.WIRE_REPLY_LIMIT), stderr: '' };
    expect(decodeFrame(encodeAnswer(answer))).toMatchObject({ frame: { kind: 'declined', begun: true } });
  });

  test.each([
    ['another magic number', 0, 1],
    ['an unknown kind', 4, 4],
    ['another length than its parts', 8, 25],
    ['more than the limit', 16, 0xffffffff],
  ])('with %s is broken', (_, at, value) => {
    const bytes = Uint8Array.from(SIGN);
    new DataView(bytes.buffer).setUint32(at, value, true);
    expect(decodeFrame(bytes)).toBe('broken');
  });
});

function le32(value: number): string {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes.toString('hex');
}

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
  const listener = listenForCalls(path, {
    maxBytes: 1 << 20,
    answer() {
      seen.answered = true;
      return Promise.resolve({ reply: LONG, told });
    },
    ping: () => decline('build', ''),
    refuse() {},
  });
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

test('a request whose answer fails ends the connection, and the listener can be stopped', async () => {
  const path = join(dir, 'fails');
  const listener = listenForCalls(path, {
    maxBytes: 1 << 20,
    answer: () => Promise.reject(new Error('no memory')),
    ping: () => decline('build', ''),
    refuse() {},
  });
  try {
    const client = await call(path);
    client.on('error', () => {}).resume();
    await until(() => client.destroyed || client.readableEnded);
  } finally {
    await listener.stop();
  }
});

test('a client that still writes what is no request reads the refusal; one that writes more than any request is left', async () => {
  const socket = join(dir, 'writes-on');
  const answer = () => Promise.reject(new Error('nothing is to be answered'));
  const how = { maxBytes: 4 << 20, answer, ping: () => decline('build', ''), refuse() {} };
  const listener = listenForCalls(wireOf(socket), how);
  try {
    const refused = [{ kind: 'declined' as const, begun: false }];
    // More than a socket holds, so that it is still written when the first bytes have been refused.
    for (let i = 0; i < 20; i++) expect(await sendToWire(socket, new Uint8Array(2 << 20))).toEqual(refused);
    expect(await isLeft(wireOf(socket))).toBe(true);
  } finally {
    await listener.stop();
  }
});

/** Whether a client that never stops writing is told that its connection is closed. */
function isLeft(path: string): Promise<boolean> {
  return new Promise(resolve => {
    const client = net.connect({ path, allowHalfOpen: true }, write);
    function write(): void {
      client.write(new Uint8Array(1 << 20), error => (error ? undefined : write()));
    }
    client.on('error', error => resolve((error as { code?: string }).code === 'EPIPE'));
  });
}

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
    const listener = listenForCalls(path, {
      maxBytes: 1 << 20,
      answer,
      ping: () => decline('build', ''),
      refuse() {},
    });
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
