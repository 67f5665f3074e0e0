// Which hardware address has the end of a tunnel, so that nodes need not tell each other?
import { createHash } from 'node:crypto';
import { type Ip, ipFromBytes, ipToBytes } from '../net/ip.ts';
import { parseMac, renderMac } from '../net/mac.ts';

/** Locally administered and unicast; the second byte tells ours from those that other programs draw at random. */
const V4_PREFIX = [0x0a, 0xc7];
const V6_PREFIX = [0x0e];

/**
 * The hardware address of a node's end, which follows from its address: IPv4 is contained in it, of IPv6 a hash. So a node that boots
 * again, or whose tunnel is made again, has the same.
 */
export function macOf(address: Ip): string {
  const bytes = ipToBytes(address);
  if (address.family === 4) return renderMac(Uint8Array.of(...V4_PREFIX, ...bytes));
  const hash = createHash('sha256').update(bytes).digest();
  return renderMac(Uint8Array.of(...V6_PREFIX, ...hash.subarray(0, 5)));
}

/** The link-local address that belongs to a hardware address (RFC 4291, appendix A). */
export function linkLocalOf(mac: string): Ip {
  const [first = 0, ...others] = parseMac(mac);
  const id = [first ^ 0x02, ...others.slice(0, 2), 0xff, 0xfe, ...others.slice(2)];
  return ipFromBytes(Uint8Array.of(0xfe, 0x80, 0, 0, 0, 0, 0, 0, ...id));
}
