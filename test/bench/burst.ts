// How fast are whole chains under load, eight at a time?
import type { Container } from '../helpers/netns.ts';
import { quantile, renewed, timed } from './measure.ts';
import { type Peer, portOf, type Runner, withSides } from './sides.ts';

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
