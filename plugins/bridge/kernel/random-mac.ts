// Which hardware address does something get that nobody gave one?
import { renderMac } from '../../../src/net/mac.ts';

/** A locally administered unicast address. */
export function randomMac(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes[0] = ((bytes[0] ?? 0) & 0xfc) | 0x02;
  return renderMac(bytes);
}
