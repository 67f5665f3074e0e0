// Which hardware address does something get that nobody gave one?
import { renderMac } from '../../../src/net/mac.ts';

/** With what the address of every bridge begins that this link creates: locally administered, and of one device. */
const OURS = [0xca, 0x7e];

/**
 * An address for a bridge, by which it is known as ours before it has its alias: the kernel takes an alias only for a
 * device that is there, and who creates it may be killed in between.
 */
export function randomBridgeMac(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes.set(OURS);
  return renderMac(bytes);
}

/** Whether an address may be of {@link randomBridgeMac}. */
export function isBridgeMac(mac: string | undefined): boolean {
  return mac?.startsWith(`${OURS.map(byte => byte.toString(16)).join(':')}:`) === true;
}

/** A locally administered unicast address. */
export function randomMac(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes[0] = ((bytes[0] ?? 0) & 0xfc) | 0x02;
  return renderMac(bytes);
}
