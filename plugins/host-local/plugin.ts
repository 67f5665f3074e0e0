// What does host-local do for each verb?

import { accessSync, constants, existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { decode, defined } from '../../src/cni/json.ts';
import type { ResultDns } from '../../src/cni/result.ts';
import { LeaseConf } from '../../src/cni/schemas.ts';
import { fileExists } from '../../src/files/read-file.ts';
import { DEFAULT_DATA_DIR, listLeases } from '../../src/ipam/lease-files.ts';
import {
  findUnleased,
  type LeaseStore,
  refuseUnleased,
  releaseDead,
  renderRestored,
  type StoreOptions,
  unusedGarbage,
  withStore,
} from '../../src/ipam/lease-store.ts';
import type { Log } from '../../src/log.ts';
import { findIp, renderCidr, renderIp } from '../../src/net/ip.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { HostLocalConf } from './config.ts';
import {
  type Allocation,
  allocate,
  capacityOf,
  findRange,
  isGateway,
  type Plan,
  planAllocation,
  planLeases,
  planResult,
  planSets,
  type RangeSet,
  renderRangeSet,
  SetExhausted,
} from './plan.ts';

/** STATUS is polled, so it must answer quickly or fail. */
const STATUS_DEADLINE_MS = 2_000;

/** Hands out addresses of configured ranges and records on disk which attachment holds which. */
export const plugin = definePlugin({
  name: 'host-local',
  // Not the full schema: DEL must work even if other options are invalid.
  config: LeaseConf,
  netns: 'unused',

  add(call) {
    const conf = readConf(call);
    const plan = planAllocation(conf, call.args, call.version);
    const dns = findDns(conf);
    const [place, owner] = [placeOf(call), call.env];
    const allocations = inStore(call, { create: true }, store => {
      const held = store.findKnownLeasesOf(owner).filter(address => isIn(plan.sets, address));
      const taken = plan.requested.filter(ip => store.isTaken(ip)).map(renderIp);
      releaseDead(store, place, call, held, taken);
      const chosen = choose(plan, store, place);
      store.reserve(chosen, owner);
      return chosen;
    });
    const ips = allocations.map(({ ip }) => ip);
    call.onFailure('release the addresses', () => inStore(call, {}, store => store.releaseOwn(owner, ips)));
    return planResult(allocations, plan, dns);
  },

  check(call) {
    const sets = planSets(readConf(call), call.version);
    const { dir } = placeOf(call);
    const look = { restores: false };
    const leased = fileExists(dir) ? inStore(call, look, store => store.findLeasesOf(call.env)) : [];
    refuseUnleased(call, dir, leased, address => isIn(sets, address));
  },

  repair(call) {
    const sets = planSets(readConf(call), call.version);
    const owner = call.env;
    inStore(call, { create: true }, store => {
      const [ips, leased] = [call.prevResult?.ips ?? [], store.findLeasesOf(owner)];
      const missing = findUnleased(ips, leased, address => isIn(sets, address));
      // An address that another attachment already holds is left to it, and CHECK reports that.
      store.reserve(
        planLeases(
          sets,
          missing.filter(address => store.findOwner(address) === undefined),
        ),
        owner,
      );
    });
  },

  del(call) {
    if (!fileExists(placeOf(call).dir)) return;
    inStore(call, {}, store => store.release(store.findLeasesOf(call.env)));
  },

  gc(call) {
    const { kept, log } = call;
    const { dir } = placeOf(call);
    if (kept === undefined || !fileExists(dir)) return;
    inStore(call, {}, store => store.release(unusedGarbage(store, dir, kept, log)));
  },

  status(call) {
    const conf = readConf(call);
    const sets = planSets(conf, call.version);
    const place = placeOf(call);
    refuseReadOnly(place.dir);
    findDns(conf);
    if (fileExists(place.dir)) {
      const options = { deadlineMs: STATUS_DEADLINE_MS, restores: false };
      asUnavailable(() => inStore(call, options, store => judge(call, sets, store)));
    }
  },
});

/** Works on the network's leases, and logs how many leases of an earlier boot were reclaimed. */
function inStore<T>(
  call: Call<LeaseConf>,
  options: Omit<StoreOptions, 'reclaim'>,
  work: (store: LeaseStore) => T,
): T {
  const { dir, network } = placeOf(call);
  const reclaim = call.conf.ipam.reclaimAfterReboot ?? true;
  const onRestored = (restored: readonly string[]) => call.log.warn(renderRestored(restored, dir));
  return withStore(dir, { reclaim, network, onRestored, ...options }, store => {
    const outcome = work(store);
    if (store.reclaimed) call.log.info(`Released ${store.reclaimed} leases of an earlier boot in "${dir}"`);
    return outcome;
  });
}

function choose(plan: Plan, store: LeaseStore, place: StorePlace): Allocation[] {
  try {
    return allocate(plan, store);
  } catch (thrown) {
    if (thrown instanceof SetExhausted) throw exhausted(thrown, store, place, ErrorCode.tryAgainLater);
    throw thrown;
  }
}

function judge(call: Call<LeaseConf>, sets: readonly RangeSet[], store: LeaseStore): void {
  for (const [setIndex, set] of sets.entries()) {
    const usage = usageOf(set, store);
    if (usage.used >= usage.capacity) {
      throw exhausted({ set, setIndex }, store, placeOf(call), ErrorCode.unavailable);
    }
    warnIfNearlyFull(set, setIndex, usage, call.log);
  }
}

/** A lock that is not available would make ADD fail as well. */
function asUnavailable(work: () => void): void {
  try {
    work();
  } catch (thrown) {
    if (!(thrown instanceof CniError) || thrown.code !== ErrorCode.tryAgainLater) throw thrown;
    throw new CniError(ErrorCode.unavailable, thrown.message, { cause: thrown });
  }
}

function isIn(sets: readonly RangeSet[], address: string): boolean {
  const ip = findIp(address);
  return ip !== undefined && sets.some(set => findRange(set, ip));
}

function readConf({ request, network }: Call): HostLocalConf {
  return decode(HostLocalConf, request, `configuration of "host-local" in network "${network}"`);
}

function placeOf({ conf, network }: Call<LeaseConf>): StorePlace {
  const dataDir = conf.ipam.dataDir || DEFAULT_DATA_DIR;
  return { network, dataDir, dir: join(dataDir, network) };
}

function findDns(conf: HostLocalConf): ResultDns | undefined {
  return conf.ipam.resolvConf ? readResolvConf(conf.ipam.resolvConf) : undefined;
}

/**
 * Reads a file in the format of resolv.conf(5).
 * @throws Error when it cannot be read
 */
export function readResolvConf(path: string): ResultDns {
  try {
    // A device may never end, and a pipe without a writer never begin.
    if (existsSync(path) && !statSync(path).isFile()) throw new Error('it is no regular file; name one');
    return parseResolvConf(readFileSync(path, 'utf8'));
  } catch (cause) {
    throw new Error(`Cannot read "ipam.resolvConf" ${path}: ${(cause as Error).message}`, { cause });
  }
}

/** `nameserver` takes one value per line, the last `domain` wins, `search` and `options` accumulate over lines. */
export function parseResolvConf(text: string): ResultDns {
  const nameservers: string[] = [];
  const search: string[] = [];
  const options: string[] = [];
  let domain: string | undefined;
  for (const line of text.split('\n')) {
    const [keyword, ...values] = line
      .replace(/(^|\s)[#;].*/s, '')
      .trim()
      .split(/\s+/);
    const [first] = values;
    if (first === undefined) continue;
    if (keyword === 'nameserver') nameservers.push(first);
    else if (keyword === 'domain') domain = first;
    else if (keyword === 'search') search.push(...values);
    else if (keyword === 'options') options.push(...values);
  }
  return {
    ...(nameservers.length ? { nameservers } : {}),
    ...defined({ domain }),
    ...(search.length ? { search } : {}),
    ...(options.length ? { options } : {}),
  };
}

/** From this share on a set counts as nearly full. */
const NEARLY_FULL_PERCENT = 90n;

/** How many addresses a set has, and how many of them are taken. */
interface Usage {
  readonly capacity: bigint;
  readonly used: bigint;
}

/** Where a network keeps its leases, for messages that name a command. */
interface StorePlace {
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
