// Does the client distinguish a reply of a command from everything else that a socket may answer?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { BegunCalls } from '../../../src/daemon/begun-calls.ts';
import { askDaemon, type DaemonEndpoint, findDoor, mayListen } from '../../../src/daemon/client.ts';
import { socketPathOf } from '../../../src/daemon/protocol.ts';

const runDir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-client-'));
afterAll(() => fs.rmSync(runDir, { recursive: true }));

const door = async (): Promise<DaemonEndpoint> => (await findDoor(runDir)) as DaemonEndpoint;

const reply = { exitCode: 0, stdout: '{}', stderr: '' };

function inPieces(pieces: readonly string[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async start(controller) {
      for (const piece of pieces) {
        controller.enqueue(new TextEncoder().encode(piece));
        await Bun.sleep(20);
      }
      controller.close();
    },
  });
}

test.each([
  ['a reply', () => Response.json(reply), reply],
  ['"declined"', () => Response.json({ error: 'another program' }, { status: 409 }), 'declined'],
  ['"not understood"', () => Response.json({ error: 'no request' }, { status: 400 }), 'declined'],
  [
    '"begun, but not to be finished"',
    () =>
      Response.json({ exitCode: 1, stdout: '', stderr: '', declined: 'workers', begun: true, error: 'none' }),
    'lost',
  ],
  [
    'a late reply after signs of life',
    () => new Response(inPieces(['  ', ' ', JSON.stringify(reply)])),
    reply,
  ],
  [
    '"declined" after signs of life',
    () => new Response(inPieces([' ', '{"declined":"workers","error":"none"}'])),
    'declined',
  ],
  ['a failure of its own', () => Response.json({ error: 'a mistake' }, { status: 500 }), 'lost'],
  ['what is no reply', () => Response.json({ exitCode: 'none' }), 'lost'],
  ['what is no JSON', () => new Response('hello'), 'lost'],
] as const)(
  'askDaemon() distinguishes a reply, a refusal, and a call that may have begun: %s',
  async (_, answer, expected) => {
    const server = Bun.serve({ unix: socketPathOf(runDir), fetch: answer });
    try {
      expect(await askDaemon(await door(), { args: ['list'], env: {}, key: 'k' })).toEqual(expected);
    } finally {
      await server.stop(true);
      fs.rmSync(socketPathOf(runDir), { force: true });
    }
  },
);

test('askDaemon() makes the call itself when no daemon listens', async () => {
  fs.writeFileSync(socketPathOf(runDir), '');
  const server = Bun.serve({ unix: `${runDir}/other`, fetch: () => new Response() });
  fs.renameSync(`${runDir}/other`, socketPathOf(runDir));
  const found = await door();
  await server.stop(true);
  expect(await askDaemon(found, { args: ['list'], env: {}, key: 'k' })).toBe('declined');
  fs.rmSync(socketPathOf(runDir), { force: true });
});

test('askDaemon() waits no longer than a second for a silent daemon that has not begun the call', async () => {
  const server = Bun.serve({ unix: socketPathOf(runDir), fetch: () => new Promise<Response>(() => {}) });
  const found = await door();
  const calls = new BegunCalls(found.socket, fs.statSync(found.socket));
  try {
    const begin = performance.now();
    expect(await askDaemon(found, { args: ['list'], env: {}, key: 'k' })).toBe('declined');
    expect(performance.now() - begin).toBeLessThan(10_000);
    expect(calls.begin('k')).toBe(false);
  } finally {
    calls.close();
    await server.stop(true);
    fs.rmSync(socketPathOf(runDir), { force: true });
  }
});

test('mayListen() and findDoor() distinguish a socket from nothing, and findDoor() from other files', async () => {
  expect(mayListen(runDir)).toBe(false);
  expect(await findDoor(runDir)).toBeUndefined();
  fs.writeFileSync(socketPathOf(runDir), '');
  expect(mayListen(runDir)).toBe(true);
  expect(await findDoor(runDir)).toBeUndefined();
  fs.rmSync(socketPathOf(runDir));
  const server = Bun.serve({ unix: socketPathOf(runDir), fetch: () => new Response() });
  try {
    expect(mayListen(runDir)).toBe(true);
    expect((await findDoor(runDir))?.socket).toBe(socketPathOf(runDir));
  } finally {
    await server.stop(true);
    fs.rmSync(socketPathOf(runDir), { force: true });
  }
});
