// Do the sockets of a running daemon withstand arbitrary input: HTTP of its clients and of others, gRPC?
import { statSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { encode } from '../../../src/daemon/grpc/schema.ts';
import { type ProcessPlace, wireOf } from '../../../src/daemon/protocol.ts';
import { ROOT } from '../../helpers/source-tree.ts';
import { bytesOf } from '../../helpers/wire.ts';
import { door } from '../door.ts';
import { ground } from '../ground.ts';
import { damagedBytes, damagedJson, damagedJsonText, joinBytes, strangeText } from '../mutate.ts';
import { LISTS, REQUESTS } from '../samples.ts';
import { talk } from './daemon.ts';
import { atHome, environmentOf } from './home.ts';

const CATENA = path.join(ROOT, 'dist/bin/catena');
const CORE = path.join(ROOT, 'dist/bin/catena-core');
const START_DEADLINE_MS = 30_000;

let daemon: Bun.Subprocess<'ignore', 'ignore', 'ignore'> | undefined;

/** Requests of this executable and these namespaces, as a client encodes them. */
const request = fc
  .record({
    args: fc.oneof(
      fc.constantFrom<string[]>(
        ['status', 'x'],
        ['add', 'x', '/run/netns/c1'],
        ['list'],
        [],
        ['del', '--', 'x'],
        ['daemon'],
        ['add', '--help'],
      ),
      fc.array(strangeText, { maxLength: 4 }),
    ),
    cwd: fc.oneof(fc.constant('/'), strangeText),
    env: fc.oneof(
      fc.constant<Record<string, string>>({ CNI_COMMAND: 'ADD', CNI_PATH: ':' }),
      fc.dictionary(strangeText, strangeText, { maxKeys: 3 }),
    ),
    call: fc.option(
      fc.record({
        stdin: fc.oneof(
          damagedJson(REQUESTS).map(value => JSON.stringify(atHome(value))),
          strangeText,
        ),
        plugin: fc.oneof(fc.constantFrom('', 'bridge', 'host-local', 'tuning'), strangeText),
      }),
    ),
    key: fc.oneof(fc.constant('k'), strangeText),
  })
  .map(one => ({ kind: 'run' as const, one }));

const verb = fc
  .tuple(
    fc.constant('call'),
    damagedJsonText([
      { args: ['check', 'podnet', '/run/netns/c1'], cwd: '/', env: { A: 'B' } },
      { plugin: 'bridge', env: { CNI_COMMAND: 'STATUS' }, stdin: '{"name":"podnet"}' },
    ]),
  )
  .map(([name, text]) => ({ kind: 'verb' as const, name, text }));

/** What a client sends, and what any other program posts. */
export const calls = door({
  name: 'running daemon, calls and HTTP',
  weight: 1.6,
  seeds: [
    // The daemon started a second daemon in its own process.
    { kind: 'run' as const, one: { args: ['daemon'], cwd: '/', env: {}, call: null, key: 'k' } },
  ],
  arbitrary: fc.oneof(request, request, verb),
  async run(input) {
    const socket = await started();
    if (input.kind === 'run') {
      const { call, ...rest } = input.one;
      await talk(wireOf(socket), bytesOf({ ...rest, stdin: '', ...(call ?? {}), place: placeHere() }), 200);
    } else {
      const bytes = new TextEncoder().encode(input.text);
      const head = `POST /v1/${input.name} HTTP/1.1\r\nHost: c\r\nContent-Length: ${bytes.length}\r\nConnection: close\r\n\r\n`;
      await talk(socket, joinBytes([new TextEncoder().encode(head), bytes]), 200);
    }
    await checkAlive(socket);
  },
  close,
});

const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
const SETTINGS = Uint8Array.of(0, 0, 0, 4, 0, 0, 0, 0, 0);
const CALL = encode('pkg.cnirpc.CNIArgs', {
  container_id: 'c1',
  netns: '/run/netns/c1',
  ifname: 'eth0',
  args: { A: 'B' },
  path: '/opt/cni/bin',
  stdin_data: Buffer.from(JSON.stringify(LISTS[0])),
});

/** Frames of HTTP/2 with a call of coil's service in them. */
export const grpc = door({
  name: 'running daemon, gRPC',
  weight: 0.6,
  arbitrary: damagedBytes([conversation(), joinBytes([Buffer.from(PREFACE), SETTINGS])]),
  async run(bytes) {
    const socket = await started();
    await talk(path.join(ground().root, 'run/grpc.sock'), bytes);
    await checkAlive(socket);
  },
  close,
});

async function started(): Promise<string> {
  const socket = path.join(ground().dir('run'), 'catena.sock');
  if (daemon !== undefined) return socket;
  daemon = Bun.spawn([CATENA, 'daemon', `--grpc-socket=${ground().root}/run/grpc.sock`], {
    env: { PATH: process.env.PATH, ...environmentOf() },
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'ignore',
  });
  const until = Date.now() + START_DEADLINE_MS;
  while (!(await answers(socket))) {
    if (daemon.exitCode !== null || Date.now() > until)
      throw new Error(`the daemon did not start: ${daemon.exitCode}`);
    await Bun.sleep(50);
  }
  return socket;
}

async function checkAlive(socket: string): Promise<void> {
  if (daemon?.exitCode !== null || daemon.signalCode !== null) {
    const how = `${daemon?.exitCode} ${daemon?.signalCode}`;
    daemon = undefined;
    throw new Error(`the daemon ended: ${how}`);
  }
  if (!(await answers(socket))) throw new Error(`the daemon no longer answers: ${lastProblem}`);
}

async function answers(socket: string): Promise<boolean> {
  try {
    const reply = await fetch('http://c/healthz', { unix: socket, signal: AbortSignal.timeout(15_000) });
    return (await reply.text()) === 'ok\n';
  } catch (error) {
    lastProblem = String(error);
    return false;
  }
}

let lastProblem = '';

async function close(): Promise<void> {
  daemon?.kill('SIGTERM');
  const timer = setTimeout(() => daemon?.kill('SIGKILL'), 5_000);
  await daemon?.exited;
  clearTimeout(timer);
  daemon = undefined;
}

/** The place of a client that the daemon serves. */
function placeHere(): ProcessPlace {
  const identity = (file: string): string => {
    const { dev, ino } = statSync(file);
    return `${dev}:${ino}`;
  };
  return {
    executable: identity(CORE),
    network: identity('/proc/self/ns/net'),
    mount: identity('/proc/self/ns/mnt'),
  };
}

/** Preface, settings, headers of a POST to the service without compression, and the message. */
function conversation(): Uint8Array {
  const header = (name: string, value: string): Uint8Array =>
    joinBytes([
      Uint8Array.of(0, name.length),
      Buffer.from(name),
      Uint8Array.of(value.length),
      Buffer.from(value),
    ]);
  const headers = joinBytes([
    header(':method', 'POST'),
    header(':scheme', 'http'),
    header(':path', '/pkg.cnirpc.CNI/Del'),
    header(':authority', 'c'),
    header('content-type', 'application/grpc'),
    header('te', 'trailers'),
  ]);
  const length = Buffer.alloc(5);
  length.writeUInt32BE(CALL.length, 1);
  return joinBytes([
    Buffer.from(PREFACE),
    SETTINGS,
    frame(1, 4, headers),
    frame(0, 1, joinBytes([length, CALL])),
  ]);
}

function frame(type: number, flags: number, payload: Uint8Array): Uint8Array {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(1, 5);
  return joinBytes([head, payload]);
}
