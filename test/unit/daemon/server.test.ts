// Which calls does a daemon leave to its clients, and does it tell?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { giveUp } from '../../../src/daemon/calls.ts';
import { type RunAnswer, type RunRequest, STOP_PATH, wireOf } from '../../../src/daemon/protocol.ts';
import { type Server, startServer } from '../../../src/daemon/server.ts';
import { bytesOf, requestHere, sendToWire } from '../../helpers/wire.ts';

const dir = mkdtempSync(join(tmpdir(), 'catena-server-'));
const socket = join(dir, 'catena.sock');
const DONE = { exitCode: 0, stdout: '', stderr: '' };
const told: string[] = [];
let answer: RunAnswer = DONE;
let server: Server;

beforeAll(async () => {
  const pool = {
    enter: () => ({ use: () => Promise.reject(new Error('no worker is asked for')), leave() {} }),
    state: { workers: 0, busy: 0, running: 0, queued: 0, served: 0 },
    problem: undefined,
  };
  const backend = { run: async () => answer, answer: async () => undefined, pool };
  const declined = (reason: string) => {
    told.push(reason);
  };
  server = await startServer(socket, backend, { declined, restored() {}, stopped() {}, replaced() {} });
});
afterAll(async () => {
  await server.stop();
  rmSync(dir, { recursive: true });
});

/** Kinds of the frames of an answer, and what the daemon's owner was told. */
async function ask(change: Partial<RunRequest>) {
  told.length = 0;
  const frames = await sendToWire(socket, bytesOf(await requestHere(change)));
  const kinds = frames
    .map(frame => (frame === 'broken' ? frame : frame.kind))
    .filter(kind => kind !== 'sign');
  return [...kinds, ...told];
}

test.each([
  ['of its own place', {}],
  // As on a node without a free processor: its client waits, so that is no reason.
  ['that was long on its way', { ageMs: 20_000 }],
  ['from before the clock was set back', { ageMs: -20_000 }],
] as const)('a call %s is answered', async (_, change) => {
  expect(await ask(change)).toEqual(['answer']);
});

test.each([
  ['executable', 'build'],
  ['network', 'namespace'],
  ['mount', 'namespace'],
] as const)('a call of another %s is declined', async (what, reason) => {
  const { place } = await requestHere();
  expect(await ask({ place: { ...place, [what]: '0:0' } })).toEqual(['declined', reason]);
});

test('a call that its client has given up is not made', async () => {
  const [calls = ''] = readdirSync(dir).filter(name => name.includes('.calls.'));
  const key = crypto.randomUUID();
  expect(giveUp(join(dir, calls), key)).toBe(false);
  expect(await ask({ key })).toEqual(['declined', 'stale']);
});

test('its owner is told of a call that its workers decline', async () => {
  answer = { ...DONE, declined: 'workers', error: 'no worker' };
  expect(await ask({})).toEqual(['declined', 'workers']);
  answer = DONE;
});

test('a call that comes while it ends is declined', async () => {
  const request = bytesOf(await requestHere());
  const client = net.connect(wireOf(socket));
  await new Promise(resolve => client.once('connect', resolve));
  await fetch(`http://c${STOP_PATH}`, { method: 'POST', unix: socket });
  told.length = 0;
  const closed = new Promise(resolve => client.once('close', resolve));
  client.resume();
  client.write(request);
  await closed;
  expect(told).toEqual(['ending']);
});
