// How is a pool defined, and is it still divided as it was when its first block was claimed?

import { CniError, invalidConfig, tryAgainLater } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import {
  type Cidr,
  cidrContains,
  cidrsOverlap,
  findCidr,
  IP_BITS,
  networkOf,
  renderCidr,
  sameIp,
} from '../net/ip.ts';
import { GROUP, listAll, type ObjectStore, type StoredObject } from './held.ts';
import { blockName, DEFAULT_BLOCK_SIZE, type Pool, PoolSpec, parsePool } from './pool.ts';
import { RESTORED_ANNOTATION } from './restored.ts';

/** Blocks of another size would overlap those that nodes hold. */
const SIZE_ANNOTATION = `${GROUP}/block-size`;
/** All subnets from which nodes may hold blocks, whatever the present definition says. */
const SUBNETS_ANNOTATION = `${GROUP}/subnets`;
/** Several nodes may write the annotations at the same time. */
const ATTEMPTS = 5;

/** The families of a subnet: those of one pool are handed out together. */
type Pair = readonly Cidr[];

/**
 * The pool of that name, as the configuration defines it or else its object, to claim blocks of it: its division is noted in the object.
 * @param configured creates the object if there is none
 * @throws CniError as {@link lookAtPool}
 */
export async function findPool(
  store: ObjectStore,
  name: string,
  configured: PoolSpec | undefined,
): Promise<Pool> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const { object, pool } = await definedPool(store, name, configured);
    const noted = await noteIn(store, object, pool);
    const restored = noted?.annotations[RESTORED_ANNOTATION];
    if (noted) return { ...pool, uid: noted.uid, ...defined({ restored }) };
  }
  throw tryAgainLater(`Cannot use pool "${name}": its object keeps changing`);
}

/**
 * The same for who claims nothing: a size that was never used must not become the only one.
 * @throws CniError 7 when there is no definition, it is invalid, its blocks have had another size, or nodes may hold its addresses already
 *   from another pool or in other pairs
 */
export async function lookAtPool(
  store: ObjectStore,
  name: string,
  configured: PoolSpec | undefined,
): Promise<Pool> {
  return (await definedPool(store, name, configured)).pool;
}

async function definedPool(store: ObjectStore, name: string, configured: PoolSpec | undefined) {
  const all = await listAll(store, 'pools', {});
  const object = all.find(one => one.name === name);
  if (object === undefined && configured === undefined) {
    const text = `Cannot find pool "${name}": the store has no object of that name`;
    const details = 'create one of kind Pool, or give "subnets" in the configuration';
    throw invalidConfig(text, { details });
  }
  const pool = parsed(name, configured ?? object?.spec);
  refuseTaken(pool, all);
  refuseOtherSize(pool, object);
  return { object, pool };
}

/** How a Pool object says that its addresses are divided. */
export interface Division {
  readonly size: number;
  /** Subnets, each with its families, from which nodes may hold blocks. */
  readonly pairs: readonly (readonly string[])[];
}

/** The division of a pool, as nodes noted it with their first claims, and as it is defined. */
export function divisionOf({ annotations, spec }: Pick<StoredObject, 'annotations' | 'spec'>): Division {
  const { data: { subnets = [], blockSize = DEFAULT_BLOCK_SIZE } = {} } = PoolSpec.safeParse(spec);
  const defined = subnets.map(({ ipv4, ipv6 }) => [ipv4, ipv6].flatMap(text => text ?? []));
  const noted = notedIn(annotations).map(pair => pair.map(renderCidr));
  return { size: Number(annotations[SIZE_ANNOTATION] ?? blockSize), pairs: [...noted, ...defined] };
}

/** Whether a block of this name has these subnets: those of two names have no address in common. */
export function isBlockOf(
  { size, pairs }: Division,
  pool: string,
  name: string,
  cidrs: readonly Cidr[],
): boolean {
  const [head] = cidrs;
  if (head === undefined || name !== blockName(pool, head.ip)) return false;
  const isWhole = (cidr: Cidr) =>
    cidr.prefix === IP_BITS[cidr.ip.family] - Math.log2(size) && sameIp(networkOf(cidr), cidr.ip);
  if (!cidrs.every(isWhole)) return false;
  return pairs.some(texts => {
    const pair = texts.flatMap(text => findCidr(text) ?? []);
    const isIn = cidrs.every(({ ip }) => pair.some(cidr => cidrContains(cidr, ip)));
    return isIn && isSamePairing(cidrs, pair);
  });
}

/** Only pools that are in use count: a new one by mistake must not stop an old one. */
function refuseTaken(pool: Pool, all: readonly StoredObject[]): void {
  const pairs = pairsOf(pool);
  for (const { name, annotations } of all) {
    const noted = notedIn(annotations);
    const isOther = name !== pool.name;
    for (const pair of pairs) {
      const before = noted.find(one => overlap(pair, one) && (isOther || !isSamePairing(pair, one)));
      if (before === undefined) continue;
      const what = isOther ? `pool "${name}"` : 'the same pool in another pairing';
      throw invalidConfig(
        `Cannot use pool "${pool.name}": its subnet ${textOf(pair)} overlaps ${textOf(before)} of ${what}: ` +
          'addresses would be handed out twice',
        {
          details: `give it other subnets; if no node holds a block of the former any longer, remove it from annotation "${SUBNETS_ANNOTATION}" of Pool "${name}"`,
        },
      );
    }
  }
}

function refuseOtherSize({ name, blockSize }: Pool, object: StoredObject | undefined): void {
  const former = object?.annotations[SIZE_ANNOTATION];
  if (former === undefined || former === String(blockSize)) return;
  throw invalidConfig(
    `Cannot use pool "${name}": its blocks had ${former} addresses before, and now "blockSize" is ${blockSize}`,
    {
      details: `the new blocks would overlap the old ones; make another pool for the new size, or, if no node holds a block any longer, remove annotation "${SIZE_ANNOTATION}" of Pool "${name}"`,
    },
  );
}

function overlap(one: Pair, other: Pair): boolean {
  return one.some(a => other.some(b => cidrsOverlap(a, b)));
}

/** Whether an address of one family belongs to the same address of the other: a subnet may grow, or be divided. */
function isSamePairing(one: Pair, other: Pair): boolean {
  const offsets = one.map(({ ip }) => {
    const base = other.find(cidr => cidr.ip.family === ip.family)?.ip;
    return base && ip.value - base.value;
  });
  return one.length === other.length && offsets.every(at => at !== undefined && at === offsets[0]);
}

/** @returns the object with all that is noted in it; undefined if it has been changed since */
async function noteIn(
  store: ObjectStore,
  object: StoredObject | undefined,
  pool: Pool,
): Promise<StoredObject | undefined> {
  const size = String(pool.blockSize);
  const { name, layout, blockSize } = pool;
  const pairs = pairsOf(pool).map(textOf);
  if (object === undefined) {
    const subnets = pool.subnets.map(({ families }) =>
      Object.fromEntries(families.map(({ cidr }) => [`ipv${cidr.ip.family}`, renderCidr(cidr)])),
    );
    const annotations = { [SIZE_ANNOTATION]: size, [SUBNETS_ANNOTATION]: pairs.join(' ') };
    const spec = { subnets, layout, blockSize };
    return store.create('pools', { name, labels: {}, annotations, spec });
  }
  const former = object.annotations[SIZE_ANNOTATION];
  const noted = notedIn(object.annotations).map(textOf);
  if (former === size && pairs.every(pair => noted.includes(pair))) return object;
  const all = [...new Set([...noted, ...pairs])].join(' ');
  const annotations = { ...object.annotations, [SIZE_ANNOTATION]: size, [SUBNETS_ANNOTATION]: all };
  return store.replace('pools', { ...object, annotations });
}

function pairsOf({ subnets }: Pool): Pair[] {
  return subnets.map(({ families }) => families.map(({ cidr }) => cidr));
}

function textOf(pair: Pair): string {
  return pair.map(renderCidr).join(',');
}

function notedIn(annotations: StoredObject['annotations']): Pair[] {
  const texts = (annotations[SUBNETS_ANNOTATION] ?? '').split(' ').filter(Boolean);
  return texts.map(text => text.split(',').flatMap(one => findCidr(one) ?? []));
}

function parsed(name: string, spec: unknown): Pool {
  try {
    return parsePool(name, PoolSpec.parse(spec));
  } catch (cause) {
    if (cause instanceof CniError) throw cause;
    const problem = (cause as Error).message;
    const text = problem.startsWith('Cannot') ? problem : `Cannot use pool "${name}": ${problem}`;
    throw invalidConfig(text, { cause });
  }
}
