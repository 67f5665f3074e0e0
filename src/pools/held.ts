// Which blocks does this node hold, as it knows without asking, how are they stored, whatever the store is, and what do their objects say?

import { join } from 'node:path';
import * as z from 'zod/mini';
import { defined, type JsonObject, tryParse } from '../cni/json.ts';
import type { AddressRange, SeenPool } from '../cni/plugin-about.ts';
import { putFile, syncPath } from '../files/put-file.ts';
import { readIfThere } from '../files/read-file.ts';
import {
  type Cidr,
  findCidr,
  findIp,
  IP_BITS,
  networkOf,
  parseIp,
  renderCidr,
  renderIp,
  subnetOf,
} from '../net/ip.ts';
import type { BlockShape, Pool } from './pool.ts';

/** By what `thisMachine` says of both: by the first identity if they have the same ones, since a disk moves to another machine. */
export function isSameMachine(one: string | undefined, other: string | undefined): boolean {
  if (!one || !other) return true;
  const [a, b] = [one.split(' '), other.split(' ')];
  return a.length === b.length ? a[0] === b[0] : a.some(id => b.includes(id));
}

/** API group and version of all kinds. */
export const GROUP = 'catena.cni.cncf.io';
export const API_VERSION = `${GROUP}/v1alpha1`;

/** Kinds of objects by the name of their collection. */
export const KINDS = { pools: 'Pool', blocks: 'Block', addresses: 'Address' } as const;
export type ObjectKind = keyof typeof KINDS;
/** What nodes claim. */
export const BLOCK_KINDS = ['blocks', 'addresses'] as const satisfies readonly ObjectKind[];

export const POOL_LABEL = `${GROUP}/pool`;
export const NODE_LABEL = `${GROUP}/node`;
/** Of addresses that outlast their attachment: for whom. */
export const KEPT_LABEL = `${GROUP}/kept`;

/** An IPAMClaim: one that was deleted and made again is another one. */
export interface ClaimKey {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

export interface NewObject {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly spec: JsonObject;
}

/** An object as it was when it was read. */
export interface StoredObject extends NewObject {
  /** Never used again: tells this object from a later one of the same name. */
  readonly uid: string;
  /** Changes with the object. */
  readonly version: string;
  readonly annotations: Readonly<Record<string, string>>;
}

/** A store of objects. Every call throws CniError 11 if the store cannot be reached: then the request may have been done or not. */
export interface ObjectStore {
  find(kind: ObjectKind, name: string): Promise<StoredObject | undefined>;
  /** Those that have all the labels, as they are at the time of the call or later, in pages: any node can write any number. */
  pages(kind: ObjectKind, labels: Readonly<Record<string, string>>): AsyncIterable<StoredObject[]>;
  /** @returns undefined if there is one of that name */
  create(kind: ObjectKind, object: NewObject): Promise<StoredObject | undefined>;
  /** Replaces an object by a new version. @returns undefined if it has been changed since it was read, or is gone */
  replace(kind: ObjectKind, object: StoredObject): Promise<StoredObject | undefined>;
  /**
   * Deletes this very object, if `version` is given in this very version.
   * @returns whether this call has deleted it; false if it is gone, is another one or was changed
   */
  remove(
    kind: ObjectKind,
    object: Pick<StoredObject, 'name' | 'uid'> & { readonly version?: string },
  ): Promise<boolean>;
  /**
   * Whether the cluster has a node of that name; undefined in a store without nodes.
   * @param machine of `thisMachine`: a node that is known to be another machine does not count
   */
  hasNode(name: string, machine?: string): Promise<boolean | undefined>;
  /** The number of the last change to the store, which only grows unless the store is restored; undefined if it counts none. */
  revision(): Promise<number | undefined>;
  /** Whether this very IPAMClaim exists; undefined in a store without claims. */
  hasClaim(claim: ClaimKey): Promise<boolean | undefined>;
}

/** Those of all pages that are to be kept. */
export async function listAll(
  store: ObjectStore,
  kind: ObjectKind,
  labels: Readonly<Record<string, string>>,
  isKept: (object: StoredObject) => boolean = () => true,
): Promise<StoredObject[]> {
  const found: StoredObject[] = [];
  for await (const page of store.pages(kind, labels))
    for (const object of page) if (isKept(object)) found.push(object);
  return found;
}

/** In the lease directory of the network. Those who read or write it hold the lock of that directory. */
const FILE = '.catena-blocks';
/** Its successor, until it is complete. */
const UNFINISHED = '.catena-blocks.new';

/** Addresses of a block that may be handed out, in text. */
const HeldRange = z.object({
  from: z.string(),
  to: z.string(),
  prefix: z.int(),
  gateway: z.optional(z.string()),
});

const HeldBlock = z.object({
  pool: z.string(),
  name: z.string(),
  /** Number of addresses: decides the kind of its object. */
  size: z.int(),
  /**
   * `claiming`: its object may exist, or may be created by a request that is still on its way. `held`: addresses are handed out.
   * `returning`: no address of it is leased, and its object may have been deleted. `lost`: its object is of another node, or gone;
   * leases remain until they are released, but no further one is made.
   */
  state: z.enum(['claiming', 'held', 'returning', 'lost']),
  /** Of its object; absent while that is not known. */
  uid: z.optional(z.string()),
  /** Since when no address of it is leased: seconds of the clock of `Held.boot`. */
  emptySince: z.optional(z.number()),
  /** For whom its address is kept; nothing else gets it. */
  keptFor: z.optional(z.string()),
  /** Seconds for which it is kept while no attachment has it; absent for a claim, which says itself when it ends. */
  keepS: z.optional(z.number()),
  /**
   * Other nodes may take a kept address over: `noted` here, or `told` to the store as well. Until this node has taken it over itself, it is
   * not leased here either.
   */
  idle: z.optional(z.enum(['noted', 'told'])),
  /** A machine moves to this node: the address is still that of the one that it comes from, and is leased for that machine only. */
  guest: z.optional(z.object({ node: z.string(), machine: z.optional(z.string()), network: z.string() })),
  /** That of its object, as this node knows it last: with an earlier one of the same object, the store was restored. */
  turn: z.optional(z.int()),
  ranges: z.array(HeldRange),
});

/** A block of a node that seems to have vanished. */
const Orphan = z.object({
  kind: z.enum(['blocks', 'addresses']),
  name: z.string(),
  uid: z.string(),
  /** Of the object with the mark. */
  version: z.string(),
  node: z.string(),
  machine: z.optional(z.string()),
  /** Since when this node knows it in that version: seconds of the clock of `Held.boot`. */
  since: z.number(),
});
export type Orphan = z.output<typeof Orphan>;

/** What a pool says about its addresses now: its blocks have what it said when they were claimed. */
const Terms = z.object({
  layout: z.enum(['routed', 'flat']),
  gateways: z.array(z.string()),
  exclude: z.array(z.string()),
  subnets: z.array(z.string()),
});
export type Terms = z.output<typeof Terms>;

/** What a pool says about its addresses, as {@link Held} has it. */
export function termsOf({ layout, gateways, subnets }: Pool): Terms {
  const excluded = subnets.flatMap(({ families }) => families.flatMap(({ exclude }) => exclude));
  const exclude = new Set(excluded.map(([from, to]) => `${renderIp(from)}-${renderIp(to)}`));
  const cidrs = subnets.flatMap(({ families }) => families.map(({ cidr }) => renderCidr(cidr)));
  return { layout, gateways: gateways.map(renderIp), exclude: [...exclude], subnets: cidrs };
}

const Held = z.object({
  /** The name under which this node claims blocks, and the machine. A list that another wrote is not this node's: disks are copied. */
  node: z.string(),
  machine: z.optional(z.string()),
  /** The boot of all times. */
  boot: z.string(),
  /** The boot in which the blocks were compared with the store; that of all times unless given. */
  comparedIn: z.optional(z.string()),
  /** When the blocks were last compared with the store, in seconds of the clock of `comparedIn`. */
  checkedAt: z.optional(z.number()),
  /** The same by the wall clock, in milliseconds: that of the boot stands still while a hypervisor keeps the machine paused. */
  checkedOn: z.optional(z.number()),
  /** When the store was last searched for blocks of this node that it does not know; absent if that is due. */
  searchedAt: z.optional(z.number()),
  /** Whether the daemon has been asked for another block. */
  asked: z.optional(z.boolean()),
  /** How many nodes the pool had when this one last looked at all. */
  nodes: z.optional(z.int()),
  /** What this node saw of each pool when it last looked at all of it: blocks in all, those that are claimed, and nodes. */
  pools: z.optional(z.record(z.string(), z.object({ blocks: z.int(), claimed: z.int(), nodes: z.int() }))),
  orphans: z.optional(z.array(Orphan)),
  /** By pool: as this node knew it when it last compared its blocks with the store. */
  terms: z.optional(z.record(z.string(), Terms)),
  /** The newest revision of the store that this node knows: with an older one, the store was restored. */
  newest: z.optional(z.int()),
  /** By pool: the object that this node knows. Another one was made after all objects had been deleted. */
  known: z.optional(z.record(z.string(), z.string())),
  /** Both are from a copy of another node's disk, which may be of another cluster. */
  copied: z.optional(z.boolean()),
  /** By pool: since when this node knows the mark of a store that was restored, in seconds of the clock of `boot`. */
  restored: z.optional(
    z.record(z.string(), z.object({ mark: z.string(), boot: z.string(), since: z.number() })),
  ),
  blocks: z.array(HeldBlock),
});

/** A block that this node holds, or may hold. */
export type HeldBlock = z.output<typeof HeldBlock>;
/** What this node knows of its blocks in one network. */
export type Held = z.output<typeof Held>;

/** Addresses of a block, as {@link HeldBlock} has them in text. */
export type Usable = ReturnType<typeof usableOf>[number];

/** What this process read or wrote last, so that a list of hundreds of single addresses is not decoded for every step. */
const lastRead = new Map<string, { readonly text: string; readonly held: Held }>();
/** A worker serves few networks. */
const MOST_REMEMBERED = 64;

function remember(path: string, text: string, held: Held): void {
  if (lastRead.size >= MOST_REMEMBERED) lastRead.clear();
  lastRead.set(path, { text, held });
}

/** What is known when the list cannot be used, as after a power failure: the next comparison searches the store for all blocks. */
const UNKNOWN: Held = { node: '', boot: '', blocks: [] };

/**
 * What is known; undefined if nothing is.
 * @throws CniError 5 when the file cannot be read: the blocks in it must not be forgotten
 */
export function readHeld(dir: string): Held | undefined {
  const path = join(dir, FILE);
  const text = readIfThere(path, 'list of blocks');
  if (text === undefined) return undefined;
  const before = lastRead.get(path);
  if (before?.text === text) return before.held;
  const { success, data } = Held.safeParse(tryParse(text));
  if (!success) return UNKNOWN;
  remember(path, text, data);
  return data;
}

/**
 * Replaces what is known.
 * @param durable wait until the directory has it, too: after a power failure, a block that was given back must not count as held
 */
export function writeHeld(dir: string, held: Held, durable = false): void {
  // Without this, a power failure may leave an empty file.
  const options = { what: 'list of blocks', unfinished: join(dir, UNFINISHED), sync: true };
  const text = JSON.stringify(held);
  putFile(join(dir, FILE), text, options);
  remember(join(dir, FILE), text, held);
  if (durable) syncPath(dir);
}

export function newlyHeld(pool: string, size: number, { name, ranges }: BlockShape): HeldBlock {
  return {
    pool,
    name,
    size,
    state: 'claiming',
    ranges: ranges.map(({ stretch: [from, to], prefix, gateway }) => {
      const ends = { from: renderIp(from), to: renderIp(to) };
      return { ...ends, prefix, ...(gateway && { gateway: renderIp(gateway) }) };
    }),
  };
}

export function usableOf({ ranges }: HeldBlock) {
  return ranges.map(({ from, to, prefix, gateway }) => {
    return { from: parseIp(from), to: parseIp(to), prefix, gateway };
  });
}

/**
 * The blocks of a lease directory as ranges. Single addresses are left out: they are claimed when they are needed, so none is free.
 * @throws CniError 5 or 6 when the list of blocks cannot be read
 */
export function heldRanges(dir: string): AddressRange[] {
  const blocks = readHeld(dir)?.blocks ?? [];
  return blocks
    .filter(({ state, size }) => state === 'held' && size > 1)
    .flatMap((block, i) =>
      usableOf(block).map(({ from, to, prefix, gateway }): AddressRange => {
        const subnet = { ip: networkOf({ ip: from, prefix }), prefix };
        const ends = gateway === undefined ? ` ${renderIp(from)}-${renderIp(to)}` : '';
        return {
          ...{ path: ['ipam'], subnet, start: from, end: to, set: 2 * i + (from.family === 4 ? 0 : 1) },
          gateway: gateway === undefined ? undefined : findIp(gateway),
          text: `${renderCidr(subnet)}${ends}`,
        };
      }),
    );
}

/**
 * Pools as this node saw them when it last looked at all of their blocks.
 * @throws CniError as {@link heldRanges}
 */
export function seenPools(dir: string): SeenPool[] {
  return Object.entries(readHeld(dir)?.pools ?? {}).map(([pool, seen]) => ({ pool, ...seen }));
}

/** Values of labels are limited to this many characters. */
const LONGEST = 63;

/** The name itself if it may be a value; otherwise one that only this name has. */
export function labelOf(name: string): string {
  if (name.length <= LONGEST && /^[A-Za-z\d]([A-Za-z\d._-]*[A-Za-z\d])?$/.test(name)) return name;
  // Most names are short, and node:crypto is a good part of a plugin's start.
  const { createHash } = process.getBuiltinModule('node:crypto');
  return `sha256-${createHash('sha256').update(name).digest('hex').slice(0, 40)}`;
}

const BlockOwner = z.object({ node: z.string(), machine: z.optional(z.string()), network: z.string() });

export type BlockOwner = z.output<typeof BlockOwner>;

/** The `spec` of a Block or an Address: everything that a node needs that takes it up again. */
const BlockSpec = z.looseObject({
  pool: z.string(),
  node: z.string(),
  /** Of the node: another machine of that name is another node. */
  machine: z.optional(z.string()),
  network: z.string(),
  size: z.int(),
  cidrs: z.array(z.string()),
  ranges: z.array(HeldRange),
  /** Another node marks a block whose owner is missing, before it deletes or takes the block. An owner that is there clears the mark. */
  orphaned: z.optional(z.boolean()),
  /** For whom a single address is kept when its attachment has ended, and for how many seconds; a claim has no such limit. */
  keptFor: z.optional(z.string()),
  keepS: z.optional(z.number()),
  /** No attachment has the kept address: any node may take it over. */
  idle: z.optional(z.boolean()),
  /** A machine moves: this one has the kept address as well, and gets it when the attachment of the owner ends. */
  next: z.optional(BlockOwner),
  /** Changes whenever the address is given or taken: a write without a difference would not change the version. */
  turn: z.optional(z.int()),
});
type BlockSpec = z.output<typeof BlockSpec>;

export function kindOf({ size }: { readonly size: number }): ObjectKind {
  return size === 1 ? 'addresses' : 'blocks';
}

export function blockObject(
  { name, pool, size, ranges, keptFor, keepS, turn }: HeldBlock,
  { node, machine, network }: BlockOwner,
): NewObject {
  return {
    name,
    labels: {
      [POOL_LABEL]: labelOf(pool),
      [NODE_LABEL]: labelOf(node),
      ...(keptFor === undefined ? {} : { [KEPT_LABEL]: labelOf(keptFor) }),
    },
    spec: {
      ...{ pool, node, ...defined({ machine }), network, size, cidrs: cidrsOf({ size, ranges }), ranges },
      // One that is claimed again goes on counting: fewer turns would mean that the store was restored.
      ...defined({ keptFor, keepS, turn }),
    },
  };
}

/** The block of each family that has these addresses. */
function cidrsOf({ size, ranges }: Pick<HeldBlock, 'size' | 'ranges'>): string[] {
  const blocks = ranges.map(({ from }) => {
    const ip = parseIp(from);
    return renderCidr(subnetOf({ ip, prefix: IP_BITS[ip.family] - Math.log2(size) }));
  });
  return [...new Set(blocks)];
}

/** What an object says; undefined if it is not the object of a block. */
export function blockSpecOf({ spec }: Pick<StoredObject, 'spec'>): BlockSpec | undefined {
  const { success, data } = BlockSpec.safeParse(spec);
  return success ? data : undefined;
}

/** The subnets of a block of a routed pool: they are on its node. Blocks of a flat pool lie in one subnet, which is on all nodes. */
export function routedCidrsOf({ cidrs, ranges }: BlockSpec): Cidr[] {
  return cidrs
    .map(findCidr)
    .filter((cidr): cidr is Cidr => cidr !== undefined)
    .filter(({ ip: { family }, prefix }) =>
      ranges.some(range => range.prefix === prefix && findIp(range.from)?.family === family),
    );
}

export function isOwn(object: StoredObject, owner: BlockOwner): boolean {
  return isOwner(blockSpecOf(object), owner);
}

/** Those alone, of a value that says more. */
export function ownerOf({ node, machine, network }: BlockOwner): BlockOwner {
  return { node, ...defined({ machine }), network };
}

export function isOwner(one: BlockOwner | undefined, { node, machine, network }: BlockOwner): boolean {
  return one?.node === node && one.network === network && isSameMachine(one.machine, machine);
}

/** The same object of another owner, without its marks, and with the next turn: a request that comes late names a version that is gone. */
export function ownedBy(
  object: StoredObject,
  { node, machine, network }: BlockOwner,
  idle?: true,
): StoredObject {
  const { machine: _, ...spec } = nextTurn(object, idle).spec;
  const labels = { ...object.labels, [NODE_LABEL]: labelOf(node) };
  return { ...object, labels, spec: { ...spec, node, network, ...defined({ machine }) } };
}

/** The same object without its marks, and with the next turn. */
export function nextTurn(object: StoredObject, idle: true | undefined): StoredObject {
  const { idle: _, orphaned: __, next: ___, ...spec } = object.spec;
  const turn = typeof spec.turn === 'number' ? spec.turn + 1 : 1;
  return { ...object, spec: { ...spec, ...defined({ idle }), turn } };
}

export function heldFrom(object: StoredObject): HeldBlock | undefined {
  const spec = blockSpecOf(object);
  if (spec === undefined) return undefined;
  const { pool, size, ranges, keptFor, keepS, idle, turn } = spec;
  return {
    ...{ pool, name: object.name, size, state: 'held', uid: object.uid, ranges },
    ...defined({ keptFor, keepS, turn, idle: idle ? 'told' : undefined }),
  };
}

/** Whether the store had a later state of a block's object before: since then it was restored. */
export function isEarlier(object: StoredObject, { uid, turn = 0 }: HeldBlock): boolean {
  return object.uid === uid && (blockSpecOf(object)?.turn ?? 0) < turn;
}
