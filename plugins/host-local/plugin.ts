// What does host-local do for each verb?
import { join } from 'node:path';
import { CniError } from '../../src/cni/errors.ts';
import type { ResultDns } from '../../src/cni/result.ts';
import { findIp, renderIp } from '../../src/net/ip.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { type Allocation, allocate, HostLocalCode } from './allocate.ts';
import { refuseExhausted, refuseReadOnly } from './availability.ts';
import { DEFAULT_DATA_DIR, HostLocalConf } from './config.ts';
import { findOrphans } from './orphan.ts';
import { type Owner, renderAttachment } from './owner.ts';
import { findUnleased, planAllocation, planResult, planSets } from './plan.ts';
import { findRange, type RangeSet } from './range.ts';
import { readResolvConf } from './resolv-conf.ts';
import { ensureStore, type LeaseStore, listLeases, storeExists, withStore } from './store.ts';

/** Hands out addresses of configured ranges and remembers on disk who holds which. */
export const hostLocal = definePlugin({
  name: 'host-local',
  config: HostLocalConf,
  netns: 'unused',

  add(call) {
    const plan = planAllocation(call.conf, call.args, call.version);
    const dns = findDns(call.conf);
    const [dir, owner] = [storeDirOf(call), ownerOf(call)];
    ensureStore(dir);
    const allocations = withStore(dir, store => {
      refuseSecondLease(store, owner, plan.sets);
      const chosen = allocate(plan, store);
      store.reserve(chosen, owner);
      return chosen;
    });
    call.onFailure('release the addresses', () => releaseOwn(dir, owner, allocations));
    return planResult(allocations, plan, dns);
  },

  check(call) {
    const sets = planSets(call.conf, call.version);
    const [dir, owner] = [storeDirOf(call), ownerOf(call)];
    const leased = storeExists(dir) ? withStore(dir, store => store.findLeasesOf(owner)) : [];
    if (leased.length === 0) throw new Error(`Cannot find a lease of ${renderAttachment(owner)} in "${dir}"`);
    const wrong = findUnleased(sets, call.prevResult?.ips ?? [], leased);
    if (wrong.length) {
      throw new Error(
        `Cannot confirm address ${wrong.join(', ')} of ${renderAttachment(owner)}: ` +
          `it holds ${leased.join(', ')} in "${dir}"`,
      );
    }
  },

  del(call) {
    const [dir, owner] = [storeDirOf(call), ownerOf(call)];
    if (!storeExists(dir)) return;
    withStore(dir, store => store.release(store.findLeasesOf(owner)));
  },

  gc(call) {
    const { validAttachments } = call;
    const dir = storeDirOf(call);
    if (validAttachments === undefined || !storeExists(dir)) return;
    withStore(dir, store => store.release(findOrphans(store, listLeases(dir), validAttachments)));
  },

  status(call) {
    const sets = planSets(call.conf, call.version);
    const dir = storeDirOf(call);
    refuseReadOnly(dir);
    findDns(call.conf);
    const leases = storeExists(dir) ? listLeases(dir) : [];
    for (const set of sets) refuseExhausted(set, leases);
  },
});

/** Two addresses for one attachment would leave the first without anyone to give it back. */
function refuseSecondLease(store: LeaseStore, owner: Owner, sets: readonly RangeSet[]): void {
  const held = store.findLeasesOf(owner).filter(address => {
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
function releaseOwn(dir: string, owner: Owner, allocations: readonly Allocation[]): void {
  const addresses = allocations.map(({ ip }) => renderIp(ip));
  withStore(dir, store => {
    store.release(addresses.filter(address => store.isOwnedBy(address, owner)));
  });
}

function storeDirOf(call: Call<HostLocalConf>): string {
  return join(call.conf.ipam.dataDir || DEFAULT_DATA_DIR, call.network);
}

function ownerOf(call: Call<HostLocalConf>): Owner {
  return { containerId: call.env.containerId, ifname: call.env.ifname };
}

function findDns(conf: HostLocalConf): ResultDns | undefined {
  return conf.ipam.resolvConf ? readResolvConf(conf.ipam.resolvConf) : undefined;
}
