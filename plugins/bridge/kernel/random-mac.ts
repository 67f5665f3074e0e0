// Which hardware address does a device get if none is configured?
import { renderMac } from '../../../src/net/mac.ts';

/** Prefix of the hardware addresses of bridges that this plugin creates: locally administered and unicast. */
const OURS = [0xca, 0x7e];

/**
 * An address for a bridge, which identifies it as ours before it has its alias: the kernel accepts an alias only for an existing
 * device, and the creating process may be killed in between.
 */
export function randomBridgeMac(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes.set(OURS);
  return renderMac(bytes);
}

/** Whether an address may come from {@link randomBridgeMac}. */
export function isBridgeMac(mac: string | undefined): boolean {
  return mac?.startsWith(`${OURS.map(byte => byte.toString(16)).join(':')}:`) === true;
}

/** A locally administered unicast address. */
export function randomMac(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes[0] = ((bytes[0] ?? 0) & 0xfc) | 0x02;
  return renderMac(bytes);
}
