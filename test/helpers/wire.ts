// How does a test speak to the daemon's socket for calls, or act as a daemon there?
import { mkdirSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { dirname } from 'node:path';
import { callsFileOf, type RunRequest, wireOf } from '../../src/daemon/protocol.ts';
import { ownPlace } from '../../src/daemon/who-listens.ts';
import { decodeFrame, type Frame, WIRE } from '../../src/daemon/wire.ts';

const encoder = new TextEncoder();

/** A request that a daemon of this process's executable and namespaces takes. */
export async function requestHere(change: Partial<RunRequest> = {}): Promise<RunRequest> {
  const place = ownPlace();
  const command = { args: ['status', 'podnet'], cwd: '/', env: {}, stdin: '' };
  return { place, ...command, key: crypto.randomUUID(), ...change };
}

/** The bytes of a request, as the front sends them. */
export function bytesOf(request: RunRequest): Uint8Array {
  const { plugin = '', cwd, args, env, stdin } = request;
  const variables = Object.entries(env).flatMap(([name, value]) =>
    value === undefined ? [] : `${name}=${value}`,
  );
  const parts = [plugin, cwd, joined(args), joined(variables), stdin].map(text => encoder.encode(text));
  const total = parts.reduce<number>((sum, { length }) => sum + length, WIRE.WIRE_REQUEST_HEADER);
  const bytes = new Uint8Array(total);
  const view = new DataView(bytes.buffer);
  view.setUint32(WIRE.WIRE_AT_MAGIC, WIRE.WIRE_MAGIC, true);
  view.setUint32(WIRE.WIRE_AT_VERSION, WIRE.WIRE_VERSION, true);
  view.setUint32(WIRE.WIRE_AT_TOTAL, total, true);
  view.setUint32(WIRE.WIRE_AT_KIND, args.length > 0 ? WIRE.WIRE_KIND_COMMAND : WIRE.WIRE_KIND_CALL, true);
  view.setUint32(WIRE.WIRE_AT_SENT, (Date.now() - (request.ageMs ?? 0)) >>> 0, true);
  encoder.encodeInto(request.key, bytes.subarray(WIRE.WIRE_AT_KEY, WIRE.WIRE_AT_KEY + WIRE.WIRE_KEY_BYTES));
  const { executable, network, mount } = request.place;
  [executable, network, mount].forEach((identity, i) => {
    const [device = '0', inode = '0'] = identity.split(':');
    view.setBigUint64(WIRE.WIRE_AT_PLACE + 16 * i, BigInt(device), true);
    view.setBigUint64(WIRE.WIRE_AT_PLACE + 16 * i + 8, BigInt(inode), true);
  });
  let at: number = WIRE.WIRE_REQUEST_HEADER;
  parts.forEach((part, i) => {
    view.setUint32(WIRE.WIRE_AT_LENGTHS + 4 * i, part.length, true);
    bytes.set(part, at);
    at += part.length;
  });
  return bytes;
}

/**
 * Sends bytes to the daemon of a socket.
 * @returns the frames until the connection ended, or until the deadline
 */
export function sendToWire(
  socket: string,
  bytes: Uint8Array,
  deadlineMs = 10_000,
): Promise<(Frame | 'broken')[]> {
  return new Promise((resolve, reject) => {
    let received = Buffer.alloc(0);
    const client = net.connect(wireOf(socket), () => client.write(bytes));
    const timer = setTimeout(() => client.destroy(), deadlineMs);
    client.on('data', (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
    });
    client.on('error', error => ((error as { code?: string }).code === 'ENOENT' ? reject(error) : undefined));
    client.on('close', () => {
      clearTimeout(timer);
      resolve(framesIn(received));
    });
  });
}

function framesIn(bytes: Uint8Array): (Frame | 'broken')[] {
  const first = decodeFrame(bytes);
  if (first === undefined) return [];
  return first === 'broken' ? ['broken'] : [first.frame, ...framesIn(bytes.subarray(first.length))];
}

/**
 * A fake daemon: what it does with each connection, once some bytes have arrived. Its calls file is empty: it has begun nothing,
 * and reads no notes.
 */
export async function actAsDaemon(
  socket: string,
  serve: (client: net.Socket, received: Buffer) => void,
): Promise<{ stop(): Promise<void> }> {
  mkdirSync(dirname(socket), { recursive: true, mode: 0o700 });
  const clients = new Set<net.Socket>();
  const server = net.createServer(client => {
    clients.add(client);
    client.on('error', () => {});
    client.on('close', () => clients.delete(client));
    client.once('data', (received: Buffer) => serve(client, received));
  });
  await new Promise<void>(resolve => server.listen(wireOf(socket), resolve));
  // As a daemon does it: in the middle of a millisecond, rounding makes no difference.
  const now = (Date.now() + 0.5) / 1000;
  utimesSync(wireOf(socket), now, now);
  const callsFile = callsFileOf(socket, statSync(wireOf(socket)));
  writeFileSync(callsFile, '');
  return {
    async stop() {
      for (const client of clients) client.destroy();
      await new Promise(resolve => server.close(resolve));
      rmSync(callsFile, { force: true });
    },
  };
}

/** Each text ends with a null byte, as in the memory of a process. */
function joined(texts: readonly string[]): string {
  return texts.map(text => `${text}\0`).join('');
}
