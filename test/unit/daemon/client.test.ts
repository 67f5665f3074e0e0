// Does the client distinguish a reply of a command from everything else that a socket may answer?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { BegunCalls } from '../../../src/daemon/begun-calls.ts';
import { askDaemon, type DaemonEndpoint, findDoor, mayListen } from '../../../src/daemon/client.ts';
import { SILENCE_MS, socketPathOf, wireOf } from '../../../src/daemon/protocol.ts';
import { encodeAnswer, SIGN, WIRE } from '../../../src/daemon/wire.ts';
import { actAsDaemon } from '../../helpers/wire.ts';

const runDir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-client-'));
const socket = wireOf(socketPathOf(runDir));
afterAll(() => fs.rmSync(runDir, { recursive: true }));

const door = async (): Promise<DaemonEndpoint> => (await findDoor(runDir)) as DaemonEndpoint;

const CALL = { args: ['list'], env: {}, key: 'k' };
const reply = { exitCode: 0, stdout: '{}', stderr: '' };
const answer = encodeAnswer(reply);
const declined = encodeAnswer({ declined: 'workers', error: 'none' });

/** A daemon that sends these pieces, one by one, and then closes the connection. */
const says = (...pieces: readonly Uint8Array[]) =>
  actAsDaemon(socketPathOf(runDir), async client => {
    for (const piece of pieces) {
      client.write(piece);
      await Bun.sleep(20);
    }
    client.end();
  });

test.each([
  ['a reply', [answer], reply],
  ['"declined"', [declined], 'declined'],
  [
    '"begun, but not to be finished"',
    [encodeAnswer({ declined: 'workers', begun: true, error: 'none' })],
    'lost',
  ],
  ['a late reply after signs of life', [SIGN, SIGN, answer], reply],
  ['a reply in pieces', [SIGN, answer.subarray(0, 10), answer.subarray(10)], reply],
  ['"declined" after signs of life', [SIGN, declined], 'declined'],
  ['half a reply', [answer.subarray(0, -1)], 'lost'],
  ['what is no reply', [new TextEncoder().encode('HTTP/1.1 200 OK\r\n\r\n')], 'lost'],
  ['nothing', [], 'lost'],
] as const)(
  'askDaemon() distinguishes a reply, a refusal, and a call that may have begun: %s',
  async (_, pieces, expected) => {
    const daemon = await says(...pieces);
    try {
      expect(await askDaemon(await door(), CALL)).toEqual(expected);
    } finally {
      await daemon.stop();
    }
  },
);

test('askDaemon() waits for a daemon that takes a long request slowly', async () => {
  const begin = performance.now();
  const daemon = await actAsDaemon(socketPathOf(runDir), (client, first) => {
    let left = first.readUInt32LE(WIRE.WIRE_AT_TOTAL);
    const take = ({ length }: Buffer): void => {
      left -= length;
      if (left === 0) client.end(answer);
      client.pause();
      setTimeout(() => client.resume(), 100);
    };
    take(first);
    client.on('data', take);
  });
  try {
    const stdin = 'x'.repeat(4 << 20);
    expect(await askDaemon(await door(), { ...CALL, args: [], stdin })).toEqual(reply);
    expect(performance.now() - begin).toBeGreaterThan(SILENCE_MS);
  } finally {
    await daemon.stop();
  }
});

test('askDaemon() makes the call itself when no daemon listens', async () => {
  const daemon = await says();
  const found = await door();
  await daemon.stop();
  expect(await askDaemon(found, CALL)).toBe('declined');
  // As the socket of a daemon that was killed: a call may start another one.
  fs.writeFileSync(socket, '');
  expect(await askDaemon(found, CALL)).toBe('absent');
  fs.rmSync(socket);
});

test('askDaemon() sends nothing to another socket than the one that it found', async () => {
  const first = await says(answer);
  const found = await door();
  await first.stop();
  const second = await says(answer);
  expect(await askDaemon({ ...found, callsFile: `${found.callsFile}0` }, CALL)).toBe('declined');
  await second.stop();
});

test('askDaemon() waits no longer than a second for a silent daemon that has not begun the call', async () => {
  const daemon = await actAsDaemon(socketPathOf(runDir), () => {});
  const found = await door();
  const calls = new BegunCalls(found.socket, fs.statSync(socket));
  try {
    const begin = performance.now();
    expect(await askDaemon(found, CALL)).toBe('declined');
    expect(performance.now() - begin).toBeLessThan(10_000);
    expect(calls.begin('k')).toBe(false);
  } finally {
    calls.close();
    await daemon.stop();
  }
});

test('mayListen() and findDoor() distinguish a socket from nothing, and findDoor() from other files', async () => {
  expect(mayListen(runDir)).toBe(false);
  expect(await findDoor(runDir)).toBeUndefined();
  fs.writeFileSync(socket, '');
  expect(mayListen(runDir)).toBe(true);
  expect(await findDoor(runDir)).toBeUndefined();
  fs.rmSync(socket);
  const daemon = await says();
  try {
    expect(mayListen(runDir)).toBe(true);
    expect((await findDoor(runDir))?.socket).toBe(socketPathOf(runDir));
  } finally {
    await daemon.stop();
  }
});
