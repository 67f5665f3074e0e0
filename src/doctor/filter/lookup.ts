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

/** What all lookups in one set share. Many rules ask the same set for the same key, and a set may have tens of thousands of elements. */
interface Index {
  readonly isComplex: boolean;
  readonly isOfIntervals: boolean;
  readonly answers: Map<string, Found>;
}

const indexes = new WeakMap<readonly RawElement[], Index>();

/** @param read the register, with the length of a key */
export function lookUp(
  elements: readonly RawElement[] | undefined,
  read: (length: number) => readonly Byte[],
): Found {
  if (elements === undefined) return UNKNOWN;
  const [first] = elements;
  if (first === undefined) return { holds: false };
  const { isComplex, isOfIntervals, answers } = indexOf(elements);
  if (isComplex) return UNKNOWN;
  const key = read(first.key.length);
  const text = key.join();
  const found = answers.get(text) ?? (isOfIntervals ? findInterval(elements, key) : findEqual(elements, key));
  answers.set(text, found);
  return found;
}

function indexOf(elements: readonly RawElement[]): Index {
  let index = indexes.get(elements);
  if (index === undefined) {
    const isComplex = elements.some(one => one.isComplex);
    index = { isComplex, isOfIntervals: elements.some(one => one.endsInterval), answers: new Map() };
    indexes.set(elements, index);
  }
  return index;
}

function findEqual(elements: readonly RawElement[], key: readonly Byte[]): Found {
  const states = elements.map(element => ({ element, holds: equals(key, element.key) }));
  const found = states.find(({ holds }) => holds === true);
  if (found) return found;
  return states.some(({ holds }) => holds === undefined) ? UNKNOWN : { holds: false };
}

/** Each interval begins with an element, and ends before one that is marked so. */
function findInterval(elements: readonly RawElement[], key: readonly Byte[]): Found {
  if (key.includes(undefined)) return UNKNOWN;
  let last: RawElement | undefined;
  for (const element of elements) {
    if ((compare(key, element.key) ?? -1) < 0) continue;
    // Where one interval ends and the next begins at the same key, the later element counts, as in a stable order.
    if (last === undefined || Buffer.compare(last.key, element.key) <= 0) last = element;
  }
  return last === undefined || last.endsInterval ? { holds: false } : { holds: true, element: last };
}
