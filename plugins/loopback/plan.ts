// What does an attachment to the loopback interface report?

import type { Result } from '../../src/cni/result.ts';
import { type Cidr, renderCidr } from '../../src/net/cidr.ts';
import { FAMILIES } from '../../src/net/ip.ts';

/** Name of the loopback interface; `CNI_IFNAME` is ignored. */
export const LOOPBACK = 'lo';

/** The kernel's hardware address of a loopback interface. */
const NO_MAC = '00:00:00:00:00:00';

/**
 * The result of an ADD without a prevResult: the interface with the first loopback address of each family.
 * @param addresses those of the interface, in the kernel's order
 */
export function planResult(addresses: readonly Cidr[], sandbox: string): Result {
  const ips = FAMILIES.flatMap(family => {
    const first = addresses.find(address => address.ip.family === family && isLoopback(address));
    return first === undefined ? [] : [{ address: renderCidr(first), interface: 0 }];
  });
  return { interfaces: [{ name: LOOPBACK, mac: NO_MAC, sandbox }], ips };
}

/** True for addresses in 127.0.0.0/8 and for ::1. */
export function isLoopback({ ip }: Cidr): boolean {
  return ip.family === 4 ? ip.value >> 24n === 127n : ip.value === 1n;
}
