// What are the outcomes of all faults of a verb, one after the other?

import { callsOfLink, parseCalls, WATCHED } from './calls.ts';
import { CHAINS } from './chains.ts';
import { countDaemonPoints, serve, tryDaemonPoint } from './daemon-trial.ts';
import { type Ground, makeGround, prepareVerb, succeed, type Verb } from './ground.ts';
import { describePoint, findPoints, type Point } from './points.ts';
import { attachTracer } from './strace.ts';
import { type Outcome, tryPoint } from './trial.ts';

/** A verb on a host, and which of its points to try. */
export interface SweepPlan {
  readonly verb: Verb;
  /**
   * `busy`: another container is attached all the time. `alone`: none is, and the host is fresh at each ADD. `daemon`: as `busy`,
   * and a daemon runs the command. A plugin: as `busy`, with the chain of this name.
   */
  readonly where: 'busy' | 'alone' | 'daemon' | keyof typeof CHAINS;
  /** Every nth point is tried, beginning with the offset; boundaries between plugins are all tried. */
  readonly every: number;
  readonly offset: number;
}

/** The outcome of a sweep. */
export interface SweepReport extends SweepPlan {
  /** The number of points, and the outcomes of those tried. */
  readonly points: number;
  readonly outcomes: readonly Outcome[];
  readonly seconds: number;
}

/** Hosts on which points are tried concurrently: two more than cores, since the kernel often makes processes wait. */
const LANES = 4;

/**
 * Counts the points of a verb and tries them.
 * @param onOutcome called with each outcome
 */
export async function sweepVerb(
  plan: SweepPlan,
  onOutcome?: (outcome: Outcome) => void,
): Promise<SweepReport> {
  const started = performance.now();
  // Create all of them before counting: GC looks into every namespace of the machine.
  const places = await makePlaces(plan);
  let points = 0;
  const outcomes: Outcome[] = [];
  try {
    const all = await places[0].count();
    points = all.length;
    const chosen = all.filter(
      ({ group }, i) => group === 'boundary' || i % plan.every === plan.offset % plan.every,
    );
    const queue = [...chosen.entries()];
    await Promise.all(
      places.map(async (place, lane) => {
        for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
          const outcome = await tryAt(place, next);
          outcomes.push(outcome);
          onOutcome?.(outcome);
          if (outcome.wrong.length === 0) continue;
          // Garbage of one fault must not be attributed to the next.
          await place.close();
          place = await makePlace(plan);
          places[lane] = place;
        }
      }),
    );
  } finally {
    await Promise.all(places.map(place => place.close()));
  }
  return { ...plan, points, outcomes, seconds: (performance.now() - started) / 1000 };
}

/** The problems found by sweeps, human-readable. */
export function findFaults(reports: readonly SweepReport[]): string[] {
  return reports.flatMap(report => report.outcomes).flatMap(findWrong);
}

/** The problems found at a point. */
export function findWrong({ point, wrong }: Outcome): string[] {
  return wrong.map(problem => `${describePoint(point)}: ${problem}`);
}

/** Where the points of a verb are counted and tried. */
interface Place {
  count(): Promise<Point[]>;
  tryPoint(point: Point, turn: number): Promise<Outcome>;
  close(): Promise<void>;
}

async function makePlaces(plan: SweepPlan): Promise<[Place, ...Place[]]> {
  const made = await Promise.allSettled(Array.from({ length: LANES }, () => makePlace(plan)));
  const places = made.flatMap(one => (one.status === 'fulfilled' ? [one.value] : []));
  const [first, ...more] = places;
  if (first !== undefined && places.length === LANES) return [first, ...more];
  await Promise.all(places.map(place => place.close()));
  throw made.find(one => one.status === 'rejected')?.reason;
}

async function makePlace({ verb, where }: SweepPlan): Promise<Place> {
  const chain = where in CHAINS ? CHAINS[where as keyof typeof CHAINS] : undefined;
  const ground = await makeGround(where !== 'alone', chain?.plugins);
  const close = () => ground.close();
  if (where !== 'daemon') {
    const count = () => countPoints(ground, verb, chain?.struck);
    return { count, tryPoint: (...one) => tryPoint(ground, ...one), close };
  }
  try {
    const served = await serve(ground, verb);
    return {
      count: () => countDaemonPoints(served),
      tryPoint: point => tryDaemonPoint(served, point),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function tryAt(place: Place, [turn, point]: [number, Point]): Promise<Outcome> {
  try {
    return await place.tryPoint(point, turn);
  } catch (error) {
    return { point, happened: true, wrong: [error instanceof Error ? error.message : String(error)] };
  }
}

/** Runs the verb once without a fault and finds the points among all its requests, or only those of one plugin. */
async function countPoints(ground: Ground, verb: Verb, struck?: 'first' | 'last'): Promise<Point[]> {
  await prepareVerb(ground, verb);
  const held = await ground.hold(verb);
  const runner = await attachTracer(held.pid, { syscalls: WATCHED });
  const worker = await attachTracer(held.workerPid, { syscalls: WATCHED });
  await held.release();
  const { exitCode, stderr } = await held.finished;
  await Promise.all([runner.ended, worker.ended]);
  if (exitCode !== 0) throw new Error(`${verb} fails without a fault: ${stderr}`);
  if (verb === 'add') await succeed(ground, 'del');
  const [ofRunner, ofWorker] = [runner, worker].map(({ lines }) => parseCalls(lines.map(ground.generalise)));
  if (struck !== undefined) {
    // DEL begins with the last plugin.
    const isFirst = (struck === 'first') === (verb !== 'del');
    return findPoints(verb, { worker: callsOfLink(ofWorker ?? [], isFirst ? 0 : ground.links - 1) });
  }
  return findPoints(verb, { runner: ofRunner ?? [], worker: ofWorker ?? [] });
}
