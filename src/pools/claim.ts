// How does a node get a block, and how does it make up for a request whose outcome it never learned?
//
// The next process sends the request again: the object either is created, exists already and names this node, or belongs to another.
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { CniError, ErrorCode, invalidConfig, tryAgainLater } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import type { LeaseStore } from '../ipam/lease-store.ts';
import { compare } from './compare.ts';
import {
  blockObject,
  type Held,
  type HeldBlock,
  heldFrom,
  isOwn,
  kindOf,
  labelOf,
  newlyHeld,
  POOL_LABEL,
  type StoredObject,
  termsOf,
} from './held.ts';
import { handedOn, inUse, notInPool, refuseBlocks, takeOver } from './keep.ts';
import type { Wish } from './lease.ts';
import {
  type Claimant,
  changeHeld,
  claiming,
  heldIn,
  isCompared,
  isConfirmed,
  leasing,
  ownerIn,
  postponeComparison,
} from './place.ts';
import { anyFree, type BlockShape, blockWith, countBlocks, firstChoices, type Pool } from './pool.ts';
import { isAnother, isFromBefore, refuseWhileSettling, restoredStore } from './restored.ts';

/** Attempts of one ADD while the store does not answer; a runtime tries again later. */
const MOST_FAILURES = 3;
/** Longest pause between them. */
const PAUSE_MS = 200;
/** Collisions after the list was read: every one means that another node got a block. */
const MOST_COLLISIONS = 100;
/** Tries after each of so many pages of a long list, and one after each further page: of a pool with a tenth free, 64 tries find a block. */
const TRIES_PER_PAGE = 8;

/**
 * Reserves something from the blocks of this node, after further ones have been claimed if necessary.
 * @param reserve undefined if the blocks have no room
 * @param wish for which `reserve` looks
 * @throws CniError 11 when the store cannot be reached, the pool has no free block, or what is wished for is in use; 7 when the pool
 *   cannot be used
 */
export async function obtain<T>(
  claimant: Claimant,
  findPool: () => Promise<Pool>,
  reserve: (store: LeaseStore, held: Held | undefined) => T | undefined,
  deadlineMs: number,
  wish?: Wish,
): Promise<T> {
  const giveUpAt = performance.now() + deadlineMs;
  const tryReserve = (): T | undefined => leasing(claimant, reserve);
  const step = async (): Promise<T> => {
    // A process that ends here leaves notes of what it began; they may be of a block that is ours already.
    for (let failures = 0; ; ) {
      const found = tryReserve();
      if (found !== undefined) return found;
      if (performance.now() > giveUpAt) {
        const text = `Cannot obtain addresses for network "${claimant.network}" in time`;
        throw tryAgainLater(text);
      }
      try {
        const held = heldIn(claimant);
        const look = async () => {
          await completeBegun(claimant);
          const found = await compare(claimant, [await findPool()]);
          claimant.onCompared?.(found);
        };
        if (!isCompared(claimant, held)) await look();
        else if (!isConfirmed(claimant, held)) await look().catch(() => postponeComparison(claimant));
        else if (!(await completeBegun(claimant))) {
          const pool = await findPool();
          if (!followTerms(claimant, pool)) await claimFor(claimant, pool, wish);
        }
      } catch (thrown) {
        const isBusy = thrown instanceof CniError && thrown.code === ErrorCode.tryAgainLater;
        if (!isBusy || thrown instanceof PoolExhausted || ++failures >= MOST_FAILURES) throw thrown;
        await (claimant.pause ?? sleep)(PAUSE_MS * claimant.random());
      }
    }
  };
  return claiming(claimant, giveUpAt, step);
}

/**
 * Notes what the pool says of its addresses now. What a block offers follows what is noted, so one would be claimed after the other where
 * the pool no longer excludes something.
 * @returns whether it says something else: then the blocks that are held may have room
 */
function followTerms(claimant: Claimant, pool: Pool): boolean {
  const now = termsOf(pool);
  const isKnown = ({ terms }: Held): boolean => isDeepStrictEqual(terms?.[pool.name] ?? now, now);
  if (isKnown(heldIn(claimant))) return false;
  changeHeld(claimant, held => ({ ...held, terms: { ...held.terms, [pool.name]: now } }));
  return true;
}

async function claimFor(claimant: Claimant, pool: Pool, wish: Wish | undefined): Promise<void> {
  if (await isAnother(claimant, pool)) throw restoredStore(pool);
  refuseWhileSettling(claimant, pool);
  if (wish === undefined) return claimBlock(claimant, pool);
  refuseBlocks(pool);
  if (await takeOver(claimant, pool, wish)) return;
  if (wish.addresses.length === 0) return claimBlock(claimant, pool, wish);
  const shape = blockWith(pool, wish.addresses);
  if (shape === undefined) throw notInPool(pool, wish);
  const isHeld = heldIn(claimant).blocks.some(({ name }) => name === shape.name);
  if (isHeld || !(await tryClaim(claimant, pool, shape, wish))) throw await inUse(claimant, shape.name);
}

/**
 * Claims one more block; to be called while `claiming`.
 * @param wish for whom it is
 * @throws CniError 11 when there is none, or the store cannot be reached
 */
export async function claimBlock(claimant: Claimant, pool: Pool, wish?: Wish): Promise<void> {
  const held = heldIn(claimant);
  if (held.blocks.length === 0) await refuseUnknownNode(claimant, held);
  const own = new Set(held.blocks.map(({ name }) => name));
  const first = own.size === 0 ? `${held.node}/${claimant.network}/${pool.name}` : undefined;
  for (const shape of firstChoices(pool, wish?.keptFor ?? first, own, claimant.random))
    if (await tryClaim(claimant, pool, shape, wish)) return;
  const taken = new Set(own);
  const tryAny = async (): Promise<boolean> => {
    const shape = anyFree(pool, taken, claimant.random);
    if (shape === undefined) throw exhausted(pool, taken.size);
    if (await tryClaim(claimant, pool, shape, wish)) return true;
    taken.add(shape.name);
    return false;
  };
  const labels = { [POOL_LABEL]: labelOf(pool.name) };
  let pages = 0;
  // A page of a list takes longer than some tries, and one node may have nine blocks of ten.
  for await (const page of claimant.store.pages(kindOf({ size: pool.blockSize }), labels)) {
    for (const { name } of page) taken.add(name);
    const tries = pages++ < TRIES_PER_PAGE ? TRIES_PER_PAGE : 1;
    for (let i = 0; i < tries; i++) if (await tryAny()) return;
  }
  for (let i = 0; i < MOST_COLLISIONS; i++) if (await tryAny()) return;
  throw tryAgainLater(
    `Cannot claim a block of pool "${pool.name}": other nodes were faster ${MOST_COLLISIONS} times`,
  );
}

/**
 * Completes what an earlier process began: to be called while `claiming`.
 * @returns whether the node has more blocks than before
 */
export async function completeBegun(claimant: Claimant): Promise<boolean> {
  const { blocks } = heldIn(claimant);
  let gained = false;
  for (const block of blocks) {
    if (block.state === 'returning') await completeReturn(claimant, block);
    if (block.state === 'claiming') gained = (await take(claimant, block, undefined)) || gained;
  }
  return gained;
}

/**
 * Deletes the object of a block from which nothing is leased, unless it is another's. One of another uid may be ours nevertheless: the block
 * had vanished and was claimed again, and the answer was lost.
 */
export async function completeReturn(claimant: Claimant, block: HeldBlock): Promise<void> {
  const { name, uid, size, keptFor } = block;
  const [{ store }, kind] = [claimant, kindOf({ size })];
  const isRemoved = keptFor === undefined && uid !== undefined && (await store.remove(kind, { name, uid }));
  const found = isRemoved ? undefined : await store.find(kind, name);
  const handed = found && handedOn(found);
  // One that has changed since is completed later: nothing else would look for it for hours.
  if (found && isOwn(found, ownerIn(claimant)))
    if (!(await (handed ? store.replace(kind, handed) : store.remove(kind, found)))) return;
  changeHeld(claimant, held => ({ ...held, blocks: held.blocks.filter(block => block.name !== name) }));
}

async function tryClaim(
  claimant: Claimant,
  pool: Pool,
  shape: BlockShape,
  { keptFor, keepS }: Partial<Wish> = {},
): Promise<boolean> {
  const noted = { ...newlyHeld(pool.name, pool.blockSize, shape), ...defined({ keptFor, keepS }) };
  changeHeld(claimant, held => ({ ...held, blocks: [...held.blocks, noted] }));
  const created = await claimant.store.create(kindOf(noted), blockObject(noted, ownerIn(claimant)));
  const isTaken = await take(claimant, noted, created);
  if (isTaken === undefined) throw restoredStore(pool);
  return isTaken;
}

/**
 * Takes up what the request for a block made, if it is this node's.
 * @param created the answer; undefined if there was none, or there is an object of that name already
 * @returns whether the node has gained it; undefined if the store was restored: another node may have it since then
 */
async function take(claimant: Claimant, block: HeldBlock, created: StoredObject | undefined) {
  const [{ store }, { name, pool, keptFor }, kind] = [claimant, block, kindOf(block)];
  const found = created ?? (await store.find(kind, name));
  const object = found && isOwn(found, ownerIn(claimant)) ? found : undefined;
  // What was found may be older than what this node knows; the store itself may not.
  const version = created?.version ?? (object && String(await store.revision()));
  const isBack = version !== undefined && (await isFromBefore(claimant, pool, version));
  if (isBack && object) await store.remove(kind, object);
  const own = object && !isBack ? heldFrom(object) : undefined;
  changeHeld(claimant, ({ searchedAt, ...held }) => {
    const blocks = [...held.blocks.filter(one => one.name !== name), ...(own ? [own] : [])];
    // A request that is still on its way may create it later: the next search finds it then.
    return { ...held, blocks, ...defined({ searchedAt: found && searchedAt }) };
  });
  return isBack ? undefined : own !== undefined && own.keptFor === keptFor;
}

/** Blocks of a node that the cluster does not know would be collected as those of one that has vanished. */
async function refuseUnknownNode({ store }: Claimant, { node, machine }: Held): Promise<void> {
  if ((await store.hasNode(node, machine)) !== false) return;
  if (await store.hasNode(node)) {
    throw tryAgainLater(
      `Cannot claim addresses for node "${node}": the cluster's node of that name is another machine than this one, "${machine}"`,
      {
        details:
          'give each machine a name of its own; "kubectl get node -o yaml" shows "systemUUID" and "machineID"',
      },
    );
  }
  throw invalidConfig(`Cannot claim addresses for node "${node}": the cluster has no node of that name`, {
    details:
      'the name is "ipam.node", else CATENA_NODE_NAME, else the one that "install --account" wrote into the kubeconfig, else the host name in lower case',
  });
}

export class PoolExhausted extends CniError {}

function exhausted(pool: Pool, claimed: number): CniError {
  const count = countBlocks(pool);
  const what = pool.blockSize === 1 ? 'addresses' : `blocks of ${pool.blockSize} addresses`;
  return new PoolExhausted(
    ErrorCode.tryAgainLater,
    // The text after the first colon is host-local's: alerts on nodes search for it.
    `Cannot allocate from pool "${pool.name}": no IP addresses available: nodes hold ${claimed} of its ${count} ${what}, ` +
      'and the others are excluded',
    {
      details:
        'give the pool another subnet' +
        (pool.blockSize === 1
          ? ''
          : ', or a smaller "blockSize" in a new pool, which leaves less unused on each node'),
    },
  );
}
