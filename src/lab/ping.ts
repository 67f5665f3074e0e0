// Does an address answer an echo request?
import { type Ip, ipFromBytes, ipToBytes, sameIp } from '../net/ip.ts';
import {
  closeSocket,
  type InetSocket,
  openSocket,
  POLLIN,
  receiveBytes,
  sendBytesTo,
  waitFor,
} from '../sys/inet-socket.ts';
import { inNetns, type Netns } from '../sys/netns.ts';

/** RFC 792, RFC 4443 */
const ECHO = { 4: { request: 8, reply: 0 }, 6: { request: 128, reply: 129 } } as const;
const HEADER_BYTES = 8;
/** Long enough for duplicate address detection and a few neighbour solicitations. */
const DEADLINE_MS = 3_000;
const RESEND_MS = 250;

/**
 * Sends echo requests until one is answered.
 * @param scope interface index, for link-local addresses
 * @returns milliseconds until the answer; undefined when there is none. Same as: `ping -c 1`
 */
export function ping(from: Netns, to: Ip, scope = 0): number | undefined {
  const socket = inNetns(from, () => openSocket('icmp', to.family));
  const started = performance.now();
  try {
    for (let sequence = 1; performance.now() - started < DEADLINE_MS; sequence++) {
      const sent = performance.now();
      if (!trySend(socket, to, scope, sequence)) {
        // The interface's address may still be tentative, so that there is no route yet.
        Bun.sleepSync(RESEND_MS);
        continue;
      }
      while (waitFor([[socket, POLLIN]], RESEND_MS - (performance.now() - sent))) {
        if (isReply(socket, to, sequence)) return performance.now() - sent;
        if (performance.now() - sent > RESEND_MS) break;
      }
    }
    return undefined;
  } finally {
    closeSocket(socket);
  }
}

function trySend(socket: InetSocket, to: Ip, scope: number, sequence: number): boolean {
  try {
    sendBytesTo(socket, encodeRequest(to.family, sequence), { address: ipToBytes(to), port: 0, scope });
    return true;
  } catch {
    return false;
  }
}

/** A raw socket receives every ICMP message of the namespace, in IPv4 including the IP header. */
function isReply(socket: InetSocket, to: Ip, sequence: number): boolean {
  const got = receiveBytes(socket, new Uint8Array(2048));
  if (got?.from === undefined || !sameIp(ipFromBytes(got.from.address), to)) return false;
  const start = to.family === 4 ? ((got.bytes[0] ?? 0) & 0xf) * 4 : 0;
  const message = got.bytes.subarray(start);
  if (message.length < HEADER_BYTES || message[0] !== ECHO[to.family].reply) return false;
  const view = new DataView(message.buffer, message.byteOffset);
  return view.getUint16(4) === identifier() && view.getUint16(6) === sequence;
}

/** Type, code, checksum, identifier, sequence number. The kernel computes the checksum of ICMPv6. */
function encodeRequest(family: 4 | 6, sequence: number): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, ECHO[family].request);
  view.setUint16(4, identifier());
  view.setUint16(6, sequence);
  if (family === 4) view.setUint16(2, checksum(view));
  return bytes;
}

/** RFC 1071 */
function checksum(view: DataView): number {
  let sum = 0;
  for (let at = 0; at < view.byteLength; at += 2) sum += view.getUint16(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

function identifier(): number {
  return process.pid & 0xffff;
}
