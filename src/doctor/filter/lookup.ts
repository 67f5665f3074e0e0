// Does a set contain what a register holds, and what does a map have for it?
import type { RawElement } from '../../netlink/nft/set-contents.ts';
import type { Holds } from './iptables.ts';
import type { Byte } from './packet.ts';
import { compare, equals } from './registers.ts';

/** The outcome of a lookup; `element` is the one found if that is certain. */
export interface Found {
  readonly holds: Holds;
  readonly element?: RawElement;
}

const UNKNOWN: Found = { holds: undefined };

/** @param read the register, with the length of a key */
export function lookUp(
  elements: readonly RawElement[] | undefined,
  read: (length: number) => readonly Byte[],
): Found {
  if (elements === undefined) return UNKNOWN;
  const [first] = elements;
  if (first === undefined) return { holds: false };
  if (elements.some(({ isComplex }) => isComplex)) return UNKNOWN;
  const key = read(first.key.length);
  if (elements.some(({ endsInterval }) => endsInterval)) return lookUpInterval(elements, key);
  const states = elements.map(element => ({ element, holds: equals(key, element.key) }));
  const found = states.find(({ holds }) => holds === true);
  if (found) return found;
  return states.some(({ holds }) => holds === undefined) ? UNKNOWN : { holds: false };
}

/** Each interval begins with an element, and ends before one that is marked so. */
function lookUpInterval(elements: readonly RawElement[], key: readonly Byte[]): Found {
  if (key.includes(undefined)) return UNKNOWN;
  const before = elements.filter(element => (compare(key, element.key) ?? -1) >= 0);
  const last = before.sort((a, b) => Buffer.compare(a.key, b.key)).at(-1);
  return last === undefined || last.endsInterval ? { holds: false } : { holds: true, element: last };
}
