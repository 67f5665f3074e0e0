// Which block does a node try to get next?
//
// Every node begins at a place of its own, which depends on its name: two nodes seldom want the same block, and a node that was
// reinstalled tries its former one first. Further blocks are tried at random. Only when these are taken does it read the list of all.
import { type BlockShape, blockAt, countBlocks, type Pool } from './pool.ts';

/** Blocks tried before the list is read. While less than three quarters of a pool are taken, one of them is free in two of three cases. */
const BLIND_TRIES = 4;
/** Numbers looked at from a random place on, before it counts as exhausted: as many as there are, but a bound for pools of IPv6. */
const MOST_LOOKED_AT = 1 << 20;

/**
 * The first blocks to be tried: one that follows from a name, then others at random. Each is new to one who asks again, as a sequence of
 * its own would not be: what others have taken of it would be tried again and again.
 * @param asker name with a place of its own; undefined for one who has used that already
 * @param owned names that are known to be taken
 */
export function firstChoices(
  pool: Pool,
  asker: string | undefined,
  owned: ReadonlySet<string>,
  random: () => number,
): BlockShape[] {
  const count = countBlocks(pool);
  const choices = new Map<string, BlockShape>();
  for (let i = 0; choices.size < BLIND_TRIES && i < 4 * BLIND_TRIES; i++) {
    const place = i === 0 && asker !== undefined ? hashOf(asker) % count : Math.floor(random() * count);
    const block = blockAt(pool, place);
    if (block && !owned.has(block.name)) choices.set(block.name, block);
  }
  return [...choices.values()];
}

/** A free block, at random. @returns undefined if there is none */
export function anyFree(
  pool: Pool,
  taken: ReadonlySet<string>,
  random: () => number,
): BlockShape | undefined {
  const count = countBlocks(pool);
  const start = Math.floor(random() * count);
  for (let i = 0; i < Math.min(count, MOST_LOOKED_AT); i++) {
    const block = blockAt(pool, (start + i) % count);
    if (block && !taken.has(block.name)) return block;
  }
  return undefined;
}

/** FNV-1a, and the finish of MurmurHash3, without which similar names are neighbours. */
export function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
