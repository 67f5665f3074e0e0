// Which addresses of a server or router may a pod believe?
import { type Ip, ipFromBytes } from '../../../../src/net/ip.ts';

const ADDRESS_BYTES = 16;
const MAX_NAMESERVERS = 8;

/** Whether the address is of the link alone: fe80::/10. */
export function isLinkLocal({ value }: Ip): boolean {
  return value >> 118n === 0x3fan;
}

/** Whether a host can be reached by the address: not unspecified, loopback, IPv4-mapped, of the link alone, or multicast. */
export function isGlobal(ip: Ip): boolean {
  const { value } = ip;
  return (
    ip.family === 6 && value >> 32n !== 0xffffn && value > 1n && value >> 120n !== 0xffn && !isLinkLocal(ip)
  );
}

/** The addresses of a list, as far as a host can be reached by them. */
export function addressesOf(value: Uint8Array | undefined): Ip[] {
  const found: Ip[] = [];
  for (let at = 0; value && at + ADDRESS_BYTES <= value.length && found.length < MAX_NAMESERVERS; ) {
    const ip = ipFromBytes(value.subarray(at, at + ADDRESS_BYTES));
    if (isGlobal(ip)) found.push(ip);
    at += ADDRESS_BYTES;
  }
  return found;
}
