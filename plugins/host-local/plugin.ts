// What does host-local do for each verb?
import { join } from 'node:path';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { decode } from '../../src/cni/json.ts';
import type { ResultDns } from '../../src/cni/result.ts';
import { listLeases } from '../../src/ipam/lease-files.ts';
import {
  DEFAULT_DATA_DIR,
  type LeaseStore,
  type StoreOptions,
  storeExists,
  withStore,
} from '../../src/ipam/lease-store.ts';
import { type Owner, renderAttachment } from '../../src/ipam/owner.ts';
import { findIp, renderIp } from '../../src/net/ip.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { type Allocation, allocate, HostLocalCode, SetExhausted } from './allocate.ts';
import { exhausted, refuseReadOnly, type StorePlace, usageOf, warnIfNearlyFull } from './availability.ts';
import { HostLocalConf, LeaseConf } from './config.ts';
import { findOrphans } from './orphan.ts';
import { findUnleased, type Plan, planAllocation, planLeases, planResult, planSets } from './plan.ts';
import { findRange, type RangeSet } from './range.ts';
import { readResolvConf } from './resolv-conf.ts';

/** STATUS answers soon, or not at all: whoever asks does so again and again. */
const STATUS_DEADLINE_MS = 2_000;

/** Hands out addresses of configured ranges and remembers on disk who holds which. */
export const hostLocal = definePlugin({
  name: 'host-local',
  // Not the whole of it: DEL must work with options that went bad.
  config: LeaseConf,
  netns: 'unused',

  add(call) {
    const conf = readConf(call);
    const plan = planAllocation(conf, call.args, call.version);
    const dns = findDns(conf);
    const [place, owner] = [placeOf(call), ownerOf(call)];
    const allocations = inStore(call, { create: true }, store => {
      refuseSecondLease(store, owner, plan.sets);
      const chosen = choose(plan, store, place);
      store.reserve(chosen, owner);
      return chosen;
    });
    call.onFailure('release the addresses', () => releaseOwn(call, owner, allocations));
    return planResult(allocations, plan, dns);
  },

  check(call) {
    const sets = planSets(readConf(call), call.version);
    const [{ dir }, owner] = [placeOf(call), ownerOf(call)];
    const leased = storeExists(dir) ? inStore(call, {}, store => store.findLeasesOf(owner)) : [];
    if (leased.length === 0) throw new Error(`Cannot find a lease of ${renderAttachment(owner)} in "${dir}"`);
    const wrong = findUnleased(sets, call.prevResult?.ips ?? [], leased);
    if (wrong.length) {
      throw new Error(
        `Cannot confirm address ${wrong.join(', ')} of ${renderAttachment(owner)}: ` +
          `it holds ${leased.join(', ')} in "${dir}"`,
      );
    }
  },

  repair(call) {
    const sets = planSets(readConf(call), call.version);
    const owner = ownerOf(call);
    inStore(call, { create: true }, store => {
      const missing = findUnleased(sets, call.prevResult?.ips ?? [], store.findLeasesOf(owner));
      // One that somebody else holds by now stays his, and CHECK says so.
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
    const owner = ownerOf(call);
    if (!storeExists(placeOf(call).dir)) return;
    inStore(call, {}, store => store.release(store.findLeasesOf(owner)));
  },

  gc(call) {
    const { validAttachments } = call;
    const { dir } = placeOf(call);
    if (validAttachments === undefined || !storeExists(dir)) return;
    inStore(call, {}, store => {
      store.meetAll();
      store.release(findOrphans(store, listLeases(dir), validAttachments));
    });
  },

  status(call) {
    const conf = readConf(call);
    const sets = planSets(conf, call.version);
    const place = placeOf(call);
    refuseReadOnly(place.dir);
    findDns(conf);
    if (storeExists(place.dir)) {
      const options = { deadlineMs: STATUS_DEADLINE_MS };
      asUnavailable(() => inStore(call, options, store => judge(call, sets, store)));
    }
  },
});

/** Works on the network's leases, and tells of those that an earlier boot left. */
function inStore<T>(
  call: Call<LeaseConf>,
  options: Omit<StoreOptions, 'reclaim'>,
  work: (store: LeaseStore) => T,
): T {
  const { dir } = placeOf(call);
  const reclaim = call.conf.ipam.reclaimAfterReboot ?? true;
  return withStore(dir, { reclaim, ...options }, store => {
    const outcome = work(store);
    if (store.reclaimed) call.log.info(`Took back ${store.reclaimed} leases of an earlier boot in "${dir}"`);
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

/** A lock that cannot be had keeps ADD from working as well. */
function asUnavailable(work: () => void): void {
  try {
    work();
  } catch (thrown) {
    if (!(thrown instanceof CniError) || thrown.code !== ErrorCode.tryAgainLater) throw thrown;
    throw new CniError(ErrorCode.unavailable, thrown.message, { cause: thrown });
  }
}

/** Two addresses for one attachment would leave the first without anyone to give it back. */
function refuseSecondLease(store: LeaseStore, owner: Owner, sets: readonly RangeSet[]): void {
  const held = store.findKnownLeasesOf(owner).filter(address => {
    const ip = findIp(address);
    return ip !== undefined && sets.some(set => findRange(set, ip));
  });
  if (held.length === 0) return;
  throw new CniError(
    HostLocalCode.alreadyAllocated,
    `Cannot allocate an address for ${renderAttachment(owner)}: it already holds ${held.join(', ')}; DEL releases it`,
  );
}

/** Between ADD and its failure someone else may have got the address: only a lease that still names us goes. */
function releaseOwn(call: Call<LeaseConf>, owner: Owner, allocations: readonly Allocation[]): void {
  const addresses = allocations.map(({ ip }) => renderIp(ip));
  inStore(call, {}, store => store.release(addresses.filter(address => store.isOwnedBy(address, owner))));
}

function readConf({ request, network }: Call): HostLocalConf {
  return decode(HostLocalConf, request, `configuration of "host-local" in network "${network}"`);
}

function placeOf({ conf, network }: Call<LeaseConf>): StorePlace {
  const dataDir = conf.ipam.dataDir || DEFAULT_DATA_DIR;
  return { network, dataDir, dir: join(dataDir, network) };
}

function ownerOf(call: Call<LeaseConf>): Owner {
  return { containerId: call.env.containerId, ifname: call.env.ifname };
}

function findDns(conf: HostLocalConf): ResultDns | undefined {
  return conf.ipam.resolvConf ? readResolvConf(conf.ipam.resolvConf) : undefined;
}
