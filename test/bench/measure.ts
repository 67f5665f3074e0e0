// How are two things timed so that the comparison is valid on a noisy machine?

import type { Container } from '../helpers/netns.ts';

/** Durations in milliseconds by what was measured. */
export type Samples = Map<string, number[]>;

/** A contestant: its name and one round of work, which returns the duration of each part. */
export interface Contestant {
  readonly name: string;
  round(i: number): Promise<Readonly<Record<string, number>>>;
}

/** Rounds before those that count. */
export const WARMUP_ROUNDS = 2;

/**
 * Lets the contestants take turns, so that drift of the machine affects all alike; the first rounds only warm up.
 * @returns samples under `<contestant> <part>`
 */
export async function takeTurns(
  contestants: readonly Contestant[],
  rounds: number,
  warmup = WARMUP_ROUNDS,
): Promise<Samples> {
  const samples: Samples = new Map();
  for (let i = 0; i < rounds + warmup; i++) {
    for (const { name, round } of i % 2 ? contestants.toReversed() : contestants) {
      const parts = await round(i);
      if (i < warmup) continue;
      for (const [part, ms] of Object.entries(parts)) {
        const key = `${name} ${part}`;
        samples.set(key, [...(samples.get(key) ?? []), ms]);
      }
    }
  }
  return samples;
}

/** Rounds that a daemon has served before it is measured: it runs for weeks, so its code is already compiled. */
const SETTLED_ROUNDS = 60;

/** Brings a long-running contestant to its usual state. */
export async function settle({ round }: Contestant, rounds = SETTLED_ROUNDS): Promise<void> {
  for (let i = 0; i < rounds; i++) await round(SETTLING + i);
}

/** Round numbers that are not used for anything else. */
const SETTLING = 1_000;

/** Milliseconds that the work takes. */
export async function timed(work: () => unknown): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** The container of a round: its namespace is kept, but no runtime assigns an id twice. */
export function renewed(container: Container, round: number): Container {
  return { ...container, id: `${container.id}-${round}` };
}

/** How much longer each round of one took than the same round of another, which cancels out other load on the machine. */
export function differences(longer: readonly number[] = [], shorter: readonly number[] = []): number[] {
  return longer.flatMap((ms, i) => {
    const less = shorter[i];
    return less === undefined ? [] : [ms - less];
  });
}

/** The median; `at` 0.25 and 0.75 give the quartiles. */
export function quantile(values: readonly number[] = [], at = 0.5): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * at))] ?? Number.NaN;
}
