// Which bytes is a UDP datagram over IPv4?

const IP_BYTES = 20;
const UDP_BYTES = 8;
const UDP = 17;
const TTL = 64;

/** One end: an address of 4 bytes, and a port. */
export interface Endpoint {
  readonly address: Uint8Array;
  readonly port: number;
}

/** Encodes an unfragmented datagram, with both checksums. */
export function encodeDatagram(from: Endpoint, to: Endpoint, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(IP_BYTES + UDP_BYTES + payload.length);
  const view = new DataView(bytes.buffer);
  bytes[0] = 0x45;
  view.setUint16(2, bytes.length);
  bytes[8] = TTL;
  bytes[9] = UDP;
  bytes.set(from.address, 12);
  bytes.set(to.address, 16);
  view.setUint16(10, checksum(bytes.subarray(0, IP_BYTES)));
  view.setUint16(20, from.port);
  view.setUint16(22, to.port);
  view.setUint16(24, UDP_BYTES + payload.length);
  bytes.set(payload, IP_BYTES + UDP_BYTES);
  const pseudo = Uint8Array.from([...bytes.subarray(12, 20), 0, UDP, ...bytes.subarray(24, 26)]);
  const sum = checksum(Uint8Array.from([...pseudo, ...bytes.subarray(IP_BYTES)]));
  // 0 would mean that there is no checksum (RFC 768).
  view.setUint16(26, sum || 0xffff);
  return bytes;
}

/**
 * The payload of a datagram from and to these ports; undefined for anything else. The checksum is not verified: a packet that
 * never leaves the machine carries an unfinished one.
 */
export function decodeDatagram(packet: Uint8Array, fromPort: number, toPort: number): Uint8Array | undefined {
  if (packet.length < IP_BYTES || (packet[0] ?? 0) >> 4 !== 4) return undefined;
  const header = ((packet[0] ?? 0) & 0x0f) * 4;
  const view = new DataView(packet.buffer, packet.byteOffset, packet.byteLength);
  const total = view.getUint16(2);
  const isWhole = (view.getUint16(6) & 0x3fff) === 0;
  if (header < IP_BYTES || total > packet.length || total < header + UDP_BYTES || !isWhole) return undefined;
  if (packet[9] !== UDP) return undefined;
  if (view.getUint16(header) !== fromPort || view.getUint16(header + 2) !== toPort) return undefined;
  const length = view.getUint16(header + 4);
  if (length < UDP_BYTES || header + length > total) return undefined;
  return packet.slice(header + UDP_BYTES, header + length);
}

/** RFC 1071 */
function checksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += ((bytes[i] ?? 0) << 8) | (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}
