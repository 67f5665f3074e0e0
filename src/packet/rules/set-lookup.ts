// Is a key in a set, and what does a map hold for it?
import type { RawElement, RawSet } from '../../netlink/nft/ruleset.ts';
import { compareBytes, isCertain, startsWith, type Truth, type Value } from './value.ts';

/** linux/netfilter/nf_tables.h, enum nft_set_flags */
const INTERVAL = 0x4;
const OBJECT = 0x40;

/** Whether the set has the key, and its element. */
export function lookUpKey(set: RawSet, key: Value): { readonly truth: Truth; readonly element?: RawElement } {
  if (set.flags & OBJECT) return { truth: 'maybe' };
  const members = set.elements.filter(({ isEnd, isCatchall }) => !isEnd && !isCatchall);
  const catchall = set.elements.find(({ isCatchall }) => isCatchall);
  const rest = catchall ? ({ truth: 'yes', element: catchall } as const) : ({ truth: 'no' } as const);
  if (members.length === 0) return rest;
  if (!(set.flags & INTERVAL)) return exact(members, key) ?? rest;
  if (!isCertain(key)) return { truth: 'maybe' };
  const element = set.elements.some(({ keyEnd }) => keyEnd !== undefined)
    ? members.find(one => isWithin(one, set.fields, key.bytes))
    : inInterval(set.elements, key.bytes);
  return element ? { truth: 'yes', element } : rest;
}

function exact(members: readonly RawElement[], key: Value): ReturnType<typeof lookUpKey> | undefined {
  let isPossible = false;
  for (const element of members) {
    const truth = startsWith(key, element.key);
    if (truth === 'yes') return { truth, element };
    isPossible ||= truth === 'maybe';
  }
  return isPossible ? { truth: 'maybe' } : undefined;
}

/** Ranges are lists of boundaries: a key belongs to the last one that is not behind it. */
function inInterval(elements: readonly RawElement[], key: Uint8Array): RawElement | undefined {
  let last: RawElement | undefined;
  for (const element of elements) {
    if (element.isCatchall || compareBytes(element.key, key) > 0) continue;
    const order = last ? compareBytes(element.key, last.key) : 1;
    // Where one range ends, another may begin.
    if (order > 0 || (order === 0 && !element.isEnd)) last = element;
  }
  return last?.isEnd ? undefined : last;
}

/** Concatenated ranges: each part of the key within its own range. */
function isWithin(
  { key: from, keyEnd: to = from }: RawElement,
  fields: readonly number[],
  key: Uint8Array,
): boolean {
  let at = 0;
  for (const length of fields.length ? fields : [key.length]) {
    const part = (bytes: Uint8Array): Uint8Array => bytes.subarray(at, at + length);
    if (compareBytes(part(key), part(from)) < 0 || compareBytes(part(key), part(to)) > 0) return false;
    at += Math.ceil(length / 4) * 4;
  }
  return true;
}
