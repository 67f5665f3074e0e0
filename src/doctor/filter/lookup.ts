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
  /** By key: of intervals, where they begin or end; of the others, by their text. */
  readonly sorted: readonly RawElement[];
  readonly byKey: ReadonlyMap<string, RawElement>;
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
  const { isComplex, isOfIntervals, sorted, byKey, answers } = indexOf(elements);
  if (isComplex) return UNKNOWN;
  const key = read(first.key.length);
  const text = key.join();
  const found =
    answers.get(text) ?? (isOfIntervals ? findInterval(sorted, key) : findEqual(elements, byKey, key));
  answers.set(text, found);
  return found;
}

function indexOf(elements: readonly RawElement[]): Index {
  let index = indexes.get(elements);
  if (index === undefined) {
    const isComplex = elements.some(one => one.isComplex);
    const isOfIntervals = elements.some(one => one.endsInterval);
    // Where one interval ends and the next begins at the same key, the later element counts, as in a stable order.
    const sorted = isOfIntervals ? elements.toSorted((a, b) => Buffer.compare(a.key, b.key)) : [];
    const byKey = new Map(isOfIntervals ? [] : elements.toReversed().map(one => [one.key.join(), one]));
    index = { isComplex, isOfIntervals, sorted, byKey, answers: new Map() };
    indexes.set(elements, index);
  }
  return index;
}

function findEqual(
  elements: readonly RawElement[],
  byKey: ReadonlyMap<string, RawElement>,
  key: readonly Byte[],
): Found {
  const element = byKey.get(key.join());
  if (element) return { holds: true, element };
  const isPossible = key.includes(undefined) && elements.some(one => equals(key, one.key) === undefined);
  return isPossible ? UNKNOWN : { holds: false };
}

/** Each interval begins with an element, and ends before one that is marked so. */
function findInterval(sorted: readonly RawElement[], key: readonly Byte[]): Found {
  if (key.includes(undefined)) return UNKNOWN;
  let [from, to] = [0, sorted.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if ((compare(key, sorted[middle]?.key ?? new Uint8Array()) ?? -1) < 0) to = middle;
    else from = middle + 1;
  }
  const last = sorted[from - 1];
  return last === undefined || last.endsInterval ? { holds: false } : { holds: true, element: last };
}
