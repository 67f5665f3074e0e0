// What does the walk of a packet consist of?
import type { AnswerOf } from '../answers/kinds.ts';

/** One place that the packet passes. */
export type Hop = AnswerOf<'PacketWalk'>['hops'][number];

/** Behind the last one, it is not known where the packet goes. */
export type Step = Hop & { readonly isLast?: true };

/** The walk as far as it goes: the value is what comes behind it. */
export type Walk<T = void> = Generator<Step, T>;

/** How a walk ended. */
export type Outcome = 'arrives' | 'stopped' | 'unknown';

/** Takes the hops up to the first one that stops the packet. */
export function walkOn(walk: Walk<boolean>): { readonly outcome: Outcome; readonly hops: Hop[] } {
  const hops: Hop[] = [];
  for (let step = walk.next(); ; step = walk.next()) {
    if (step.done) {
      const isSure = step.value && hops.every(({ state }) => state === 'passes');
      return { outcome: isSure ? 'arrives' : 'unknown', hops };
    }
    const { isLast, ...hop } = step.value;
    hops.push(hop);
    if (hop.state === 'stops') return { outcome: 'stopped', hops };
    if (isLast) return { outcome: 'unknown', hops };
  }
}
