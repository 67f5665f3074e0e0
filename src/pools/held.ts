// Which blocks does this node hold, as it knows without asking?
import { closeSync, fsyncSync, openSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/mini';
import { tryParse } from '../cni/json.ts';
import type { AddressRange, SeenPool } from '../cni/plugin-about.ts';
import { putFile } from '../files/put-file.ts';
import { readIfThere } from '../files/read-file.ts';
import { networkOf, renderCidr } from '../net/cidr.ts';
import { findIp, type Ip, parseIp, renderIp } from '../net/ip.ts';
import type { BlockShape } from './pool.ts';

/** In the lease directory of the network. Those who read or write it hold the lock of that directory. */
const FILE = '.catena-blocks';
/** Its successor, until it is complete. */
const UNFINISHED = '.catena-blocks.new';

/** Addresses of a block that may be handed out, in text. */
export const HeldRange = z.object({
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
  /** When the store was last searched for blocks of this node that it does not know; absent if that is due. */
  searchedAt: z.optional(z.number()),
  /** Whether the daemon has been asked for another block. */
  asked: z.optional(z.boolean()),
  /** How many nodes the pool had when this one last looked at all. */
  nodes: z.optional(z.int()),
  /** What this node saw of each pool when it last looked at all of it: blocks in all, those that are claimed, and nodes. */
  pools: z.optional(z.record(z.string(), z.object({ blocks: z.int(), claimed: z.int(), nodes: z.int() }))),
  orphans: z.optional(z.array(Orphan)),
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
export interface Usable {
  readonly from: Ip;
  readonly to: Ip;
  readonly prefix: number;
  readonly gateway: string | undefined;
}

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
  if (!durable) return;
  const fd = openSync(dir, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** A block about to be claimed. */
export function newlyHeld(pool: string, size: number, { name, ranges }: BlockShape): HeldBlock {
  return {
    pool,
    name,
    size,
    state: 'claiming',
    ranges: ranges.map(({ stretch: [from, to], prefix, gateway }) => {
      return {
        from: renderIp(from),
        to: renderIp(to),
        prefix,
        ...(gateway && { gateway: renderIp(gateway) }),
      };
    }),
  };
}

/** The addresses of a block. */
export function usableOf({ ranges }: HeldBlock): Usable[] {
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
