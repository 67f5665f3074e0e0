// Could an ADD be served right now?
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { findIp } from '../../src/net/ip.ts';
import { capacityOf, findRange, isGateway, type RangeSet, renderRangeSet } from './range.ts';

/**
 * Looks whether leases can be written: in the directory, or where it would be created.
 * @throws CniError 50
 */
export function refuseReadOnly(dir: string): void {
  let existing = dir;
  while (!existsSync(existing)) existing = dirname(existing);
  try {
    // The slash makes a file that stands where a directory should be an error.
    accessSync(`${existing}/`, constants.W_OK | constants.X_OK);
  } catch (cause) {
    const reason = (cause as { code?: string }).code ?? String(cause);
    throw new CniError(
      ErrorCode.unavailable,
      `Cannot write leases in "${dir}": "${existing}" says ${reason}`,
      { cause },
    );
  }
}

/**
 * Looks whether a range set has a free address.
 * @param leases addresses that are taken, of any set
 * @throws CniError 50
 */
export function refuseExhausted(set: RangeSet, leases: readonly string[]): void {
  const used = leases.filter(address => {
    const ip = findIp(address);
    return ip !== undefined && findRange(set, ip) !== undefined && !isGateway(set, ip);
  });
  const capacity = capacityOf(set);
  if (BigInt(used.length) < capacity) return;
  throw new CniError(
    ErrorCode.unavailable,
    `Cannot hand out addresses: no IP addresses available in range set: ${renderRangeSet(set)} ` +
      `(${used.length} of ${capacity} addresses in use)`,
  );
}
