// How fast are whole chains under load: eight at a time, or all at once?
import type { Container } from '../helpers/netns.ts';
import { quantile, renewed, timed } from './measure.ts';
import { type Peer, portOf, type Runner, type Side, withSides } from './sides.ts';

/** The figures of a burst: milliseconds of a verb under load, the middle half of them, and attachments per second. */
export interface Burst {
  readonly medianMs: number;
  readonly spread: readonly [number, number];
  readonly perSecond: number;
}

/** Containers that a daemon has already served before a burst is measured. */
const SETTLED_CONTAINERS = 400;

/** Parts of a burst, between which the sides take turns. */
const PORTIONS = 4;

/** ADD and DEL of many containers, eight at a time; the sides take turns, with a part of their containers each time. */
export async function measureBurst(
  peer: Peer,
  containers: number,
): Promise<Readonly<Record<'reference' | 'ours' | 'warm', { ADD: Burst; DEL: Burst }>>> {
  return await withSides(['reference', 'ours', 'warm'], peer, async runners => {
    const contestants = await Promise.all(runners.map(runner => withContainers(runner, containers)));
    const add: Work = ({ run }, one, i) => run('add', one, portOf(i));
    const del: Work = ({ run }, one) => run('del', one);
    const warm = contestants.filter(({ runner }) => runner.side === 'warm');
    // A daemon runs for weeks, so the code of each of its workers is already compiled.
    for (let served = 0; served < SETTLED_CONTAINERS; served += containers) {
      const before = warm.map(({ runner, all }) => ({ runner, all: all.map(one => renewed(one, served)) }));
      for (const work of [add, del]) await inPortions(before, work);
    }
    const [ADD, DEL] = [await inPortions(contestants, add), await inPortions(contestants, del)];
    const of = (side: string) => ({ ADD: summarize(ADD.get(side)), DEL: summarize(DEL.get(side)) });
    return { reference: of('reference'), ours: of('ours'), warm: of('warm') };
  });
}

/** Calls of a verb that begin at once with a daemon. */
export interface Crowd {
  readonly medianMs: number;
  readonly p99Ms: number;
  /** Calls that the daemon left to their clients. */
  readonly declined: number;
}

/** ADD, then DEL, of so many containers at once: of each plugin by a runtime, and of the chain by the command. */
export async function measureAtOnce(
  peer: Peer,
  sides: readonly Side[],
  containers: number,
  rounds: number,
): Promise<ReadonlyMap<Side, Readonly<Record<'ADD' | 'DEL', Crowd>>>> {
  return await withSides(sides, peer, async runners => {
    const contestants = await Promise.all(runners.map(runner => withContainers(runner, containers)));
    const found = new Map<Side, Record<'ADD' | 'DEL', { times: number[]; declined: number }>>();
    for (let round = 0; round <= rounds; round++) {
      for (const { runner, all } of round % 2 ? contestants.toReversed() : contestants) {
        const of = found.get(runner.side) ?? {
          ADD: { times: [], declined: 0 },
          DEL: { times: [], declined: 0 },
        };
        for (const verb of ['ADD', 'DEL'] as const) {
          const before = await declinedBy(runner);
          const run = (one: Container, i: number) =>
            timed(() => runner.run(verb === 'ADD' ? 'add' : 'del', renewed(one, round), portOf(i)));
          const times = await Promise.all(all.map(run));
          if (round === 0) continue;
          of[verb].times.push(...times);
          of[verb].declined += (await declinedBy(runner)) - before;
        }
        found.set(runner.side, of);
      }
    }
    const crowd = ({ times, declined }: { times: number[]; declined: number }): Crowd => ({
      medianMs: quantile(times),
      p99Ms: quantile(times, 0.99),
      declined,
    });
    return new Map([...found].map(([side, { ADD, DEL }]) => [side, { ADD: crowd(ADD), DEL: crowd(DEL) }]));
  });
}

async function declinedBy({ daemon }: Runner): Promise<number> {
  const state = (await (await daemon?.fetch('/v1/state'))?.json()) as
    | { declined: Record<string, { count: number }> }
    | undefined;
  return Object.values(state?.declined ?? {}).reduce((sum, { count }) => sum + count, 0);
}

type Work = (runner: Runner, one: Container, i: number) => Promise<void>;

/** A side and its containers to attach. */
interface Laden {
  readonly runner: Runner;
  readonly all: readonly Container[];
}

async function withContainers(runner: Runner, containers: number): Promise<Laden> {
  const all: Container[] = [];
  for (let i = 0; i < containers; i++) all.push(await runner.lab.container());
  return { runner, all };
}

/** The duration of the parts of a burst: of each verb, and of the whole. */
interface Taken {
  readonly times: number[];
  wholeMs: number;
}

/** Makes every side do its work in parts, in turns. */
async function inPortions(contestants: readonly Laden[], work: Work): Promise<Map<string, Taken>> {
  const taken = new Map(
    contestants.map(({ runner }): [string, Taken] => [runner.side, { times: [], wholeMs: 0 }]),
  );
  for (let portion = 0; portion < PORTIONS; portion++) {
    for (const { runner, all } of portion % 2 ? contestants.toReversed() : contestants) {
      const part = [...all.entries()].filter(([i]) => i % PORTIONS === portion);
      const sum = taken.get(runner.side);
      if (sum) sum.wholeMs += await timed(() => eightAtATime(part, runner, work, sum.times));
    }
  }
  return taken;
}

async function eightAtATime(
  queue: [number, Container][],
  runner: Runner,
  work: Work,
  times: number[],
): Promise<void> {
  const worker = async (): Promise<void> => {
    for (let next = queue.shift(); next; next = queue.shift()) {
      const [i, one] = next;
      times.push(await timed(() => work(runner, one, i)));
    }
  };
  await Promise.all(Array.from({ length: 8 }, worker));
}

function summarize({ times, wholeMs }: Taken = { times: [], wholeMs: 0 }): Burst {
  return {
    medianMs: quantile(times),
    spread: [quantile(times, 0.25), quantile(times, 0.75)],
    perSecond: (times.length * 1000) / wholeMs,
  };
}
