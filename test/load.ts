// Was the machine quiet while a test failed, or did other programs take its cores?
import fs from 'node:fs';
import os from 'node:os';

/** A moment: seconds on the clock, and seconds that all cores together had worked. */
export interface Moment {
  readonly at: number;
  readonly busy: number;
}

/** A time span in which one of our own programs ran, and the processor time that it took. */
export interface Span {
  readonly from: Moment;
  readonly to: Moment;
  readonly cpu: number;
}

/** How often the runner asks whether cores idle: longer than a file takes to load, so that each has shown what it needs. */
export const LOOK_EVERY_MS = 1_000;

/** Cores that must idle before one more file begins, and fewer than which must idle before one that has ended is not replaced. */
const SPARE = { many: 0.4, none: 0.1 };

/** Ticks a second of /proc/stat, which is the same on every architecture of Linux that we run on. */
const TICKS = 100;

/** More than this share of all cores, taken by others, can make a test late. */
const QUIET_SHARE = 0.2;

/**
 * Reads the clock and /proc/stat: user, nice, system, interrupts, and what a hypervisor gave to others. Idle time, and time of
 * guests, which is part of the user's, do not count.
 */
export function now(): Moment {
  const at = performance.now() / 1000;
  try {
    const [line = ''] = fs.readFileSync('/proc/stat', 'utf8').split('\n');
    const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = line
      .split(/\s+/)
      .slice(1)
      .map(Number);
    return { at, busy: (user + nice + system + irq + softirq + steal) / TICKS };
  } catch {
    return { at, busy: 0 };
  }
}

/**
 * The share of all cores that other programs took during a span. A program of ours that ran for a part of it counts with that
 * part of its processor time.
 * @returns 0 to 1
 */
export function takenByOthers(span: Span, own: readonly Span[]): number {
  const seconds = span.to.at - span.from.at;
  if (seconds <= 0) return 0;
  const ours = own.reduce((sum, { from, to, cpu }) => {
    const shared = Math.min(to.at, span.to.at) - Math.max(from.at, span.from.at);
    return shared <= 0 ? sum : sum + (cpu * shared) / (to.at - from.at);
  }, 0);
  const others = span.to.busy - span.from.busy - ours;
  return Math.min(1, Math.max(0, others / seconds / os.availableParallelism()));
}

/** Whether a test that failed during the span has itself to blame. */
export function wasQuiet(span: Span, own: readonly Span[]): boolean {
  return takenByOthers(span, own) <= QUIET_SHARE;
}

/**
 * Whether one more file may begin beside others, or one fewer should run. Most end-to-end and kernel tests wait half of their time:
 * for deadlines of the product, for other processes, for the kernel. What a file needs is measured and not remembered, because that
 * differs within a file, is unknown in a first run, and depends on what runs beside it; cores that other programs use are not there
 * to be filled.
 */
export function spareCores(from: Moment, to: Moment): 'many' | 'some' | 'none' {
  const seconds = to.at - from.at;
  if (seconds <= 0 || to.busy === 0) return 'some';
  const spare = os.availableParallelism() - (to.busy - from.busy) / seconds;
  if (spare >= SPARE.many) return 'many';
  return spare <= SPARE.none ? 'none' : 'some';
}
