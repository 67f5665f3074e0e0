// How full are the range sets, and could an ADD be served right now?
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { listLeases } from '../../src/ipam/lease-files.ts';
import { DEFAULT_DATA_DIR, type LeaseStore } from '../../src/ipam/lease-store.ts';
import type { Log } from '../../src/log.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { findIp } from '../../src/net/ip.ts';
import { capacityOf, findRange, isGateway, type RangeSet, renderRangeSet } from './range.ts';

/** From this share on a set counts as nearly full. */
const NEARLY_FULL_PERCENT = 90n;

/** How many addresses a set has, and how many of them are taken. */
export interface Usage {
  readonly capacity: bigint;
  readonly used: bigint;
}

/** Where a network keeps its leases, for messages that name a command. */
export interface StorePlace {
  readonly network: string;
  /** The directory that holds a folder per network. */
  readonly dataDir: string;
  /** The network's folder. */
  readonly dir: string;
}

/** Counts the leased addresses; gateways count neither as capacity nor as used. */
export function usageOf(set: RangeSet, store: Pick<LeaseStore, 'countTaken' | 'isTaken'>): Usage {
  const taken = set.reduce((sum, { start, end }) => sum + store.countTaken(start, end), 0);
  const gateways = new Map(set.flatMap(({ gateway }) => (gateway ? [[gateway.value, gateway]] : [])));
  const leasedGateways = [...gateways.values()].filter(ip => findRange(set, ip) && store.isTaken(ip));
  return { capacity: capacityOf(set), used: BigInt(taken - leasedGateways.length) };
}

/**
 * The error for a set without a free address: which set, its size, which leases may be stale and how to free them.
 * @param code 11 for ADD, 50 for STATUS
 */
export function exhausted(
  { set, setIndex }: { set: RangeSet; setIndex: number },
  store: LeaseStore,
  place: StorePlace,
  code: number,
): CniError {
  const { used, capacity } = usageOf(set, store);
  const reclaimable = countOfEarlierBoots(set, store, place.dir);
  const subnets = set.map(({ subnet }) => renderCidr(subnet)).join(', ');
  const where = place.dataDir === DEFAULT_DATA_DIR ? '' : ` --data-dir ${place.dataDir}`;
  return new CniError(
    code,
    // The text after the first colon is the reference's: alerts on nodes search for it.
    `Cannot allocate from range set ${setIndex}: no IP addresses available in range set: ${renderRangeSet(set)} ` +
      `(subnet ${subnets}: ${used} of ${capacity} addresses in use, ${reclaimable} reclaimable)`,
    {
      details: [
        `"catena ipam ls ${place.network}${where}" shows who holds them`,
        `"catena ipam free ${place.network} <address>${where}" releases one, GC all that the runtime does not list`,
        ...(reclaimable
          ? ['the reclaimable ones are from an earlier boot, and kept because of "reclaimAfterReboot": false']
          : []),
      ].join('; '),
    },
  );
}

/** Warns when a set is nearly full. */
export function warnIfNearlyFull(set: RangeSet, setIndex: number, { used, capacity }: Usage, log: Log): void {
  if (used * 100n < capacity * NEARLY_FULL_PERCENT) return;
  log.warn(`Range set ${setIndex} is nearly full: ${used} of ${capacity} addresses in use`, {
    range_set: renderRangeSet(set),
    used: Number(used),
    capacity: Number(capacity),
  });
}

/**
 * Checks that leases can be written: in the directory, or where it would be created.
 * @throws CniError 50
 */
export function refuseReadOnly(dir: string): void {
  let existing = dir;
  while (!existsSync(existing)) existing = dirname(existing);
  try {
    // The slash makes access(2) fail for a file in place of a directory.
    accessSync(`${existing}/`, constants.W_OK | constants.X_OK);
  } catch (cause) {
    const reason = (cause as { code?: string }).code ?? String(cause);
    throw new CniError(ErrorCode.unavailable, `Cannot write leases in "${dir}": "${existing}": ${reason}`, {
      cause,
    });
  }
}

/** Leases that are kept only because the configuration says so. */
function countOfEarlierBoots(set: RangeSet, store: LeaseStore, dir: string): number {
  return listLeases(dir).filter(address => {
    const ip = findIp(address);
    return ip && findRange(set, ip) && !isGateway(set, ip) && store.bootOf(address) === 'earlier';
  }).length;
}
