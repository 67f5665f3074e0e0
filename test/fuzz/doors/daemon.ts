// Are requests to the daemon handled: their contents, and arbitrary bytes on its socket?
import net from 'node:net';
import path from 'node:path';
import fc from 'fast-check';
import { LineSplitter } from '../../../src/cni/json.ts';
import { decode, encode } from '../../../src/daemon/grpc/schema.ts';
import { wireOf } from '../../../src/daemon/protocol.ts';
import { type Server, startServer } from '../../../src/daemon/server.ts';
import { bytesOf, requestHere } from '../../helpers/wire.ts';
import { door } from '../door.ts';
import { ground } from '../ground.ts';
import { damagedBytes, damagedText } from '../mutate.ts';
import { LISTS } from '../samples.ts';

/** A message of coil's service. */
export const grpcMessages = door({
  name: 'gRPC messages',
  weight: 6,
  arbitrary: damagedBytes([
    Uint8Array.from(
      encode('pkg.cnirpc.CNIArgs', {
        container_id: 'c1',
        netns: '/run/netns/c1',
        ifname: 'eth0',
        args: { K8S_POD_NAME: 'web' },
        path: '/opt/cni/bin',
        stdin_data: Buffer.from(JSON.stringify(LISTS[0])),
      }),
    ),
    Uint8Array.from(encode('grpc.health.v1.HealthCheckRequest', { service: 'pkg.cnirpc.CNI' })),
  ]),
  run(bytes) {
    try {
      decode('pkg.cnirpc.CNIArgs', bytes);
    } catch (error) {
      // protobufjs reports this by a RangeError; the door of the running daemon tests what grpc-js makes of it.
      if (error instanceof TypeError) throw error;
    }
  },
});

/** Fragments of lines, split anywhere. */
export const workerLines = door({
  name: 'worker lines',
  weight: 3,
  arbitrary: fc.tuple(
    damagedText(['{"call":{"link":"bridge"}}\n{"rest":true}\n', '\n\n']),
    fc.array(fc.nat(30), { maxLength: 6 }),
  ),
  run([text, cuts]) {
    const bytes = new TextEncoder().encode(text);
    const splitter = new LineSplitter();
    const found: string[] = [];
    let at = 0;
    for (const cut of [...cuts, bytes.length]) {
      found.push(...splitter.push(bytes.subarray(at, at + cut)));
      at += cut;
    }
    const whole = new TextDecoder().decode(bytes).split('\n').slice(0, -1);
    if (at >= bytes.length && JSON.stringify(found) !== JSON.stringify(whole))
      throw new Error(`it found ${JSON.stringify(found)}`);
  },
});

const REQUESTS = [
  `POST /v1/call HTTP/1.1\r\nHost: c\r\nContent-Length: 29\r\n\r\n{"args":["status","podnet"]}  `,
  'POST /v1/call HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n',
  'GET /v1/traces/../../../etc/passwd HTTP/1.1\r\nHost: c\r\n\r\n',
  'GET /metrics HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n',
  'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0',
].map(text => new TextEncoder().encode(text));

let server: Server | undefined;

/** Bytes on a socket with the daemon's server behind it, without a chain. */
export const socketBytes = door({
  name: 'daemon socket',
  weight: 1,
  arbitrary: fc.oneof(
    damagedBytes(REQUESTS).map(bytes => ({ bytes, isCall: false })),
    damagedBytes([bytesOf(await requestHere()), bytesOf(await requestHere({ args: [], stdin: '{}' }))]).map(
      bytes => ({ bytes, isCall: true }),
    ),
  ),
  async run({ bytes, isCall }) {
    const socket = path.join(ground().dir('server'), 'catena.sock');
    server ??= await startServer(
      socket,
      {
        run: async () => ({ exitCode: 0, stdout: '{}', stderr: '' }),
        answer: async request =>
          new URL(request.url).pathname === '/healthz' ? new Response('ok') : undefined,
        pool: {
          enter: () => ({ use: () => Promise.reject(new Error('no worker is asked for')), leave() {} }),
          state: { workers: 0, busy: 0, running: 0, queued: 0, served: 0 },
          problem: undefined,
        },
      },
      { declined() {}, restored() {}, stopped() {}, replaced() {} },
    );
    await talk(isCall ? wireOf(socket) : socket, bytes);
    const alive = await fetch('http://c/healthz', { unix: socket, signal: AbortSignal.timeout(10_000) });
    const text = await alive.text();
    if (text !== 'ok') throw new Error(`it no longer answers: ${alive.status} ${text}`);
  },
  async close() {
    await server?.stop();
    server = undefined;
  },
});

/** Sends bytes, and hangs up after the first reply, or after a moment without one. */
export function talk(socket: string, bytes: Uint8Array, waitMs = 3): Promise<string> {
  return new Promise((done, fail) => {
    let said = '';
    const client = net.connect(socket);
    const timer = setTimeout(() => client.destroy(), waitMs);
    client.on('connect', () => client.write(bytes));
    client.on('data', chunk => {
      said += String(chunk);
      client.destroy();
    });
    client.on('error', error =>
      (error as { code?: string }).code === 'ENOENT' ? fail(error) : client.destroy(),
    );
    client.on('close', () => {
      clearTimeout(timer);
      done(said);
    });
  });
}
