// Does a set answer each key without a look at all of its elements, and as the kernel does?
import { expect, test } from 'bun:test';
import type { RawElement } from '../../../../../src/netlink/nft/element.ts';
import { lookUp } from '../../../../../src/node/doctor/filter/rule.ts';

const COUNT = 4_096;

/** Elements of two bytes, every fourth number; of intervals, every second one ends the one before. Their keys count how often they are read. */
function setOf(isOfIntervals: boolean): { readonly elements: RawElement[]; reads(): number } {
  let reads = 0;
  const elements = Array.from({ length: COUNT }, (_, i): RawElement => {
    const key = Uint8Array.of((4 * i) >> 8, (4 * i) & 0xff);
    return {
      get key() {
        reads++;
        return key;
      },
      isComplex: false,
      endsInterval: isOfIntervals && i % 2 === 1,
    } as unknown as RawElement;
  });
  return { elements: elements.toReversed(), reads: () => reads };
}

test.each([false, true])('sets of intervals: %p', isOfIntervals => {
  const { elements, reads } = setOf(isOfIntervals);
  const holds = (...key: (number | undefined)[]) => lookUp(elements, () => key).holds;
  expect([holds(0, 0), holds(0, 8), holds(0, 7), holds(0, undefined)]).toEqual([
    true,
    true,
    false,
    undefined,
  ]);
  expect(holds(0, 2)).toBe(isOfIntervals);
  const before = reads();
  for (let i = 0; i < 1_000; i++) holds(i & 0x3f, i & 0xff);
  expect(reads() - before).toBeLessThan(1_000 * 20);
});
