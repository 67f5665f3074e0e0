// What does an ARP message for IPv4 over Ethernet look like?
import type { Ip } from './ip.ts';
import { parseMac, renderMac } from './mac.ts';

/** linux/if_ether.h: ETH_P_ARP */
export const ETH_P_ARP = 0x0806;

/** RFC 826: hardware type Ethernet, protocol IPv4, and the lengths of their addresses. */
const HEADER = [0x00, 0x01, 0x08, 0x00, 6, 4];
const REQUEST = 1;
const MESSAGE_BYTES = 28;

/** Who says what about which address. */
export interface ArpMessage {
  readonly senderMac: string;
  /** 0.0.0.0 in a probe. */
  readonly sender: Ip;
  readonly target: Ip;
}

/** A probe (RFC 5227, 1.1): asks for an address without claiming one. */
export function encodeArpProbe(mac: string, ip: Ip): Uint8Array {
  const bytes = new Uint8Array(MESSAGE_BYTES);
  bytes.set([...HEADER, 0, REQUEST]);
  bytes.set(parseMac(mac), 8);
  new DataView(bytes.buffer).setUint32(24, Number(ip.value), false);
  return bytes;
}

/** @returns undefined for anything but ARP for IPv4 over Ethernet */
export function decodeArp(bytes: Uint8Array): ArpMessage | undefined {
  if (bytes.length < MESSAGE_BYTES || HEADER.some((byte, i) => bytes[i] !== byte)) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const ipAt = (at: number): Ip => ({ family: 4, value: BigInt(view.getUint32(at, false)) });
  return { senderMac: renderMac(bytes.subarray(8, 14)), sender: ipAt(14), target: ipAt(24) };
}
