// What does the plugin do for each verb?

import { CLAIM_ARG } from '../../src/cni/env.ts';
import { CniError, ErrorCode, invalidConfig } from '../../src/cni/errors.ts';
import { decode } from '../../src/cni/json.ts';
import { LeaseConf } from '../../src/cni/schemas.ts';
import { fileExists } from '../../src/files/read-file.ts';
import { type Owner, renderAttachment } from '../../src/ipam/lease-files.ts';
import { type LeaseStore, refuseUnleased, releaseDead, unusedGarbage } from '../../src/ipam/lease-store.ts';
import { findCidr, findIp, type Ip } from '../../src/net/ip.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { readHeld as findHeld, type Held, type HeldBlock, termsOf } from '../../src/pools/held.ts';
import {
  type ChosenAddress,
  chooseAddresses,
  isInBlocks,
  keyOfClaim,
  keyOfPod,
  useOf,
  type Wish,
} from '../../src/pools/lease.ts';
import { type Compared, inLeases, inPlace, isCompared, leasing, type Place } from '../../src/pools/place.ts';
import { parsePool } from '../../src/pools/pool.ts';
import { askForUpkeep, claimantOf, DEFAULT_TIMEOUT_S, noteUpkeep, placeOf } from './claimant.ts';
import { ClusterConf } from './config.ts';
import {
  argOf,
  type ConfiguredPool,
  choosePool,
  limitsOf,
  planResult,
  poolsOf,
  refuseUnusable,
} from './plan.ts';

/** STATUS is polled, so it must answer quickly or fail. */
const STATUS_DEADLINE_MS = 2_000;
/** DEL waits no longer for a store that it does not need. */
const GIVE_BACK_S = 2;
/** One call of the daemon. */
const UPKEEP_DEADLINE_MS = 20_000;

/** Hands out addresses that are unique in a cluster. */
export const plugin = definePlugin({
  name: 'cluster',
  // Not the full schema: DEL must work even if other options are invalid.
  config: LeaseConf,
  netns: 'unused',

  async add(call) {
    const conf = readConf(call);
    refuseUnusable(conf);
    const place = placeOf(call);
    const owner = call.env;
    const pool = choosePool(call, conf);
    const wish = wishOf(call, conf);
    const reserve = (store: LeaseStore, held: Held | undefined) =>
      reserveIn(call, conf, { pool, wish, owner }, store, held);
    const chosen = leasing(place, reserve) ?? (await obtain(call, conf, { pool, wish }, reserve));
    call.onFailure('release the addresses', async () => {
      const ips = chosen.map(({ ip }) => ip);
      inLeases(place, store => store.releaseOwn(owner, ips));
      await giveBackSingles(call);
    });
    noteUpkeep(call);
    return planResult(chosen, conf);
  },

  check(call) {
    const [place, owner] = [placeOf(call), call.env];
    const { leased, lost, blocks } = fileExists(place.dir)
      ? inPlace(place, (store, held) => inspect(store, held, owner), { restores: false })
      : { leased: [], lost: [], blocks: [] };
    refuseUnleased(call, place.dir, leased, address => isInBlocks(blocks, address));
    if (lost.length) {
      throw new Error(
        `Cannot confirm address ${lost.join(', ')} of ${renderAttachment(owner)}: the pool has given its block to another node; ` +
          'recreate the container',
      );
    }
  },

  async upkeep(call) {
    await tend(call, readConf(call), UPKEEP_DEADLINE_MS);
  },

  async del(call) {
    const place = placeOf(call);
    if (!fileExists(place.dir)) return;
    inLeases(place, store => store.release(store.findLeasesOf(call.env)));
    await giveBackSingles(call);
  },

  async gc(call) {
    const { kept, log } = call;
    const place = placeOf(call);
    if (kept === undefined || !fileExists(place.dir)) return;
    inLeases(place, store => store.release(unusedGarbage(store, place.dir, kept, log)));
    await tend(call, readConf(call), UPKEEP_DEADLINE_MS);
  },

  async status(call) {
    const conf = readConf(call);
    refuseUnusable(conf);
    const place = placeOf(call);
    // A further pool that is full does not make the node unusable for all other pods.
    const [pool] = poolsOf(conf);
    if (hasRoom(place, pool)) return;
    try {
      const { tryToFind } = await import('./slow.ts');
      await tryToFind(await claimantOf(call, conf), pool);
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, (cause as Error).message, { cause });
    }
  },
});

function hasRoom(place: Place, pool: ConfiguredPool): boolean {
  if (!fileExists(place.dir)) return false;
  // Not by way of the store, which may be away, while the blocks are those of this boot.
  const look = (store: LeaseStore, held: Held | undefined) =>
    held !== undefined &&
    isCompared(place, held) &&
    useOf(inPresentTerms(held, pool), pool.name, store).free > 0;
  return inPlace(place, look, { deadlineMs: STATUS_DEADLINE_MS, restores: false });
}

/** The blocks of this node, of which the pool hands out what the configuration says now. */
function inPresentTerms(held: Held, { name, spec }: ConfiguredPool): Held {
  return spec ? { ...held, terms: { ...held.terms, [name]: termsOf(parsePool(name, spec)) } } : held;
}

interface Asked {
  readonly pool: ConfiguredPool;
  readonly wish: Wish | undefined;
}

/** Addresses of the node's own blocks, without a question to the store. */
function reserveIn(
  call: Call<LeaseConf>,
  conf: ClusterConf,
  { pool, wish, owner }: Asked & { readonly owner: Owner },
  store: LeaseStore,
  held: Held | undefined,
): ChosenAddress[] | undefined {
  releaseDead(store, placeOf(call), call, store.findKnownLeasesOf(owner));
  const present = held && inPresentTerms(held, pool);
  const chosen = chooseAddresses(present, pool.name, store, wish);
  if (chosen === undefined) return undefined;
  store.reserve(chosen, owner);
  const { free } = useOf(present, pool.name, store);
  if (held && !held.asked && free < limitsOf(conf, pool.spec?.blockSize).lowWater) askForUpkeep(call, held);
  return chosen;
}

async function obtain(
  call: Call<LeaseConf>,
  conf: ClusterConf,
  { pool, wish }: Asked,
  reserve: (store: LeaseStore, held: Held | undefined) => ChosenAddress[] | undefined,
): Promise<ChosenAddress[]> {
  const { obtainFrom } = await import('./slow.ts');
  const deadlineMs = (conf.ipam.timeout ?? DEFAULT_TIMEOUT_S) * 1000;
  const onCompared = (found: Compared) => logCompared(call, found);
  return obtainFrom({ ...(await claimantOf(call, conf)), onCompared }, pool, reserve, deadlineMs, wish);
}

async function tend(call: Call<LeaseConf>, conf: ClusterConf, deadlineMs: number): Promise<void> {
  const { tendTo } = await import('./slow.ts');
  const claimant = await claimantOf(call, conf);
  const done = await tendTo(claimant, poolsOf(conf), size => limitsOf(conf, size), deadlineMs);
  noteUpkeep(call, true);
  logCompared(call, done);
  if (done.claimed) call.log.info(`Claimed ${done.claimed} blocks in advance`);
  if (done.collected.length)
    call.log.warn(`Freed ${done.collected.join(', ')}: the cluster no longer has their nodes`);
  if (done.returned.length) call.log.info(`Gave back ${done.returned.join(', ')}: empty`);
}

function logCompared({ log }: Call<LeaseConf>, { reclaimed, lost, adopted }: Compared): void {
  if (reclaimed.length)
    log.warn(`Claimed ${reclaimed.join(', ')} again: the pool had lost them, though pods use them`);
  if (lost.length)
    log.error(`Lost ${lost.join(', ')}: the pool has given them to others; their pods must be recreated`);
  if (adopted.length) log.info(`Took up ${adopted.join(', ')}, which this node had claimed`);
}

/** Other nodes may be waiting for a single address. Nothing depends on it: upkeep gives back what remains. */
async function giveBackSingles(call: Call<LeaseConf>): Promise<void> {
  let held: Held | undefined;
  try {
    held = findHeld(placeOf(call).dir);
    if (!held?.blocks.some(({ size }) => size === 1)) return;
    const conf = readConf(call);
    const { giveBackAtOnce } = await import('./slow.ts');
    const claimant = await claimantOf(call, { ...conf, ipam: { ...conf.ipam, timeout: GIVE_BACK_S } });
    await giveBackAtOnce(claimant, GIVE_BACK_S * 1000);
  } catch (thrown) {
    call.log.debug(`Not giving back single addresses yet: ${(thrown as Error).message}`);
    if (held && !held.asked) inPlace(placeOf(call), (_, now) => now && askForUpkeep(call, now));
  }
}

/** What the attachment holds, and what of it is in a block that this node has no longer. */
function inspect(
  store: LeaseStore,
  held: Held | undefined,
  owner: Owner,
): { leased: string[]; lost: string[]; blocks: readonly HeldBlock[] } {
  const leased = store.findLeasesOf(owner);
  const gone = held?.blocks.filter(({ state }) => state === 'lost') ?? [];
  return { leased, lost: leased.filter(address => isInBlocks(gone, address)), blocks: held?.blocks ?? [] };
}

function readConf({ request, network }: Call): ClusterConf {
  return decode(ClusterConf, request, `configuration of "cluster" in network "${network}"`);
}

/** The pods of a StatefulSet end in a number. Few others do, and keeping their addresses for a while does no harm. */
const ORDINAL = /-\d+$/;

/**
 * What the attachment wishes; undefined if any address will do.
 * @throws CniError 7 for a requested address that is none
 */
export function wishOf(
  call: Pick<Call, 'environment' | 'env' | 'network'>,
  conf: ClusterConf,
): Wish | undefined {
  const addresses = (conf.runtimeConfig?.ips ?? []).map(parse);
  const claim = conf.args?.cni?.[CLAIM_ARG];
  if (claim) {
    const keptFor = keyOfClaim(claim);
    return { keptFor, keepS: undefined, addresses, isPromise: true, ...(claim.joins && { joins: true }) };
  }
  const [namespace, name] = [argOf(call, 'K8S_POD_NAMESPACE'), argOf(call, 'K8S_POD_NAME')];
  const keepS = conf.ipam.keep ?? 0;
  if (keepS > 0 && namespace && ORDINAL.test(name)) {
    const keptFor = keyOfPod(call.network, namespace, name, call.env.ifname);
    return { keptFor, keepS, addresses, isPromise: false };
  }
  return addresses.length ? { keptFor: undefined, keepS: undefined, addresses, isPromise: true } : undefined;
}

function parse(text: string): Ip {
  const ip = findIp(text) ?? findCidr(text)?.ip;
  if (ip) return ip;
  throw invalidConfig(`Cannot allocate ${JSON.stringify(text)} of "runtimeConfig.ips": it is not an address`);
}
