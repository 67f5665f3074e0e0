// What do all faults of a verb lead to, one after the other?

import { parseCalls, WATCHED } from './calls.ts';
import { type Ground, makeGround, prepareVerb, succeed, type Verb } from './ground.ts';
import { describePoint, findPoints, type Point } from './points.ts';
import { attachTracer } from './strace.ts';
import { type Outcome, tryPoint } from './trial.ts';

/** A verb on a host, and which of its points. */
export interface SweepPlan {
  readonly verb: Verb;
  /** Whether another container is attached all the while; the host is as new at each ADD otherwise. */
  readonly busy: boolean;
  /** Every how manyth point is tried, from which on; boundaries between links are tried all. */
  readonly every: number;
  readonly offset: number;
}

/** What came of it. */
export interface SweepReport extends SweepPlan {
  /** How many points there are, and those that were tried. */
  readonly points: number;
  readonly outcomes: readonly Outcome[];
  readonly seconds: number;
}

/** Hosts on which points are tried at the same time: one for each core that tests may have. */
const LANES = 2;

/**
 * Counts the points of a verb and tries them.
 * @param onOutcome told of each as it comes
 */
export async function sweepVerb(
  plan: SweepPlan,
  onOutcome?: (outcome: Outcome) => void,
): Promise<SweepReport> {
  const started = performance.now();
  const first = await makeGround(plan.busy);
  let all: Point[];
  try {
    all = await countPoints(first, plan.verb);
  } catch (error) {
    await first.close();
    throw error;
  }
  const chosen = all.filter(
    ({ group }, i) => group === 'boundary' || i % plan.every === plan.offset % plan.every,
  );
  const queue = [...chosen.entries()];
  const outcomes: Outcome[] = [];
  await Promise.all(
    Array.from({ length: LANES }, async (_, lane) => {
      let ground = lane === 0 ? first : await makeGround(plan.busy);
      try {
        for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
          const [turn, point] = next;
          const outcome = await tryPoint(ground, point, turn).catch(error => ({
            ...{ point, happened: true },
            wrong: [error instanceof Error ? error.message : String(error)],
          }));
          outcomes.push(outcome);
          onOutcome?.(outcome);
          // What one fault left must not be taken for the next one's.
          if (outcome.wrong.length > 0) {
            await ground.close();
            ground = await makeGround(plan.busy);
          }
        }
      } finally {
        await ground.close();
      }
    }),
  );
  return { ...plan, points: all.length, outcomes, seconds: (performance.now() - started) / 1000 };
}

/** What is wrong after a sweep, in words. */
export function findFaults(reports: readonly SweepReport[]): string[] {
  const outcomes = reports.flatMap(report => report.outcomes);
  return outcomes.flatMap(({ point, wrong }) => wrong.map(problem => `${describePoint(point)}: ${problem}`));
}

/** Runs the verb once without a fault and looks at all that it asks. */
async function countPoints(ground: Ground, verb: Verb): Promise<Point[]> {
  await prepareVerb(ground, verb);
  const held = await ground.hold(verb);
  const runner = await attachTracer(held.pid, { syscalls: WATCHED });
  const worker = await attachTracer(held.workerPid, { syscalls: WATCHED });
  await held.release();
  const { exitCode, stderr } = await held.finished;
  await Promise.all([runner.ended, worker.ended]);
  if (exitCode !== 0) throw new Error(`${verb} fails without a fault: ${stderr}`);
  if (verb === 'add') await succeed(ground, 'del');
  return findPoints(verb, {
    runner: parseCalls(runner.lines.map(ground.generalise)),
    worker: parseCalls(worker.lines.map(ground.generalise)),
  });
}
