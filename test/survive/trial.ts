// What does one fault do to a verb, and what exists after recovery?

import type { Finished } from '../helpers/command.ts';
import { type Ground, type Held, prepareVerb, succeed, type Verb } from './ground.ts';
import { afterAnother, attempt, differs, judgeUnaided, viewFor } from './judge.ts';
import type { Point } from './points.ts';
import { attachTracer, type Tracer } from './strace.ts';
import { end, hasEnded, signal } from './victims.ts';

/** How a trial ended: whether the fault happened, and what was wrong. */
export interface Outcome {
  readonly point: Point;
  readonly happened: boolean;
  readonly wrong: readonly string[];
}

/** Ways of recovering from a crash; used in turn. */
const RECOVERIES = ['del', 'next', 'repair', 'again'] as const;
type Recovery = (typeof RECOVERIES)[number];

/** How long a worker that outlives its runner continues to work while a recovery waits for it. */
export const OUTLIVE_MS = 150;
/** Time for strace to report what has already happened; only faults that did not happen take that long. */
export const LATE_NEWS_MS = 1_000;
/** A worker that does not end with its runner is released after this time, so that it can be reported. */
const LET_GO_MS = 10_000;

/**
 * Tries one point on a ground without the attachment, and leaves the ground in that state unless something is wrong.
 * @param turn number that selects the recovery
 */
export async function tryPoint(whole: Ground, point: Point, turn: number): Promise<Outcome> {
  const ground = viewFor(whole, point.verb);
  await prepareVerb(ground, point.verb);
  const { held, finished, tracer, outliving } = await strike(ground, point);
  const happened = happenedIn(tracer);
  const wrong: (string | undefined)[] = [];
  if (!happened) await outliving?.();
  if (!happened || point.strike === 'fails' || point.strike === 'worker killed') {
    // Random names shift the count, so the struck request is the one that strace reports, not the intended one.
    const what = findStruck(tracer) ?? point.what;
    wrong.push(...(await judgeUnaided(ground, { ...point, what }, finished, happened)));
  } else {
    const kind = RECOVERIES[turn % RECOVERIES.length] as Recovery;
    const recovered = attempt(() => recover(ground, point.verb, kind));
    await outliving?.();
    let failed = await recovered;
    let problem = await finish(ground, kind);
    // Another attachment's verb awaits a worker for a second only: on a busy machine, it is the verb after that which recovers.
    if (problem && kind === 'next' && outliving) {
      failed ??= await attempt(() => recover(ground, point.verb, kind));
      problem = await finish(ground, kind);
    }
    wrong.push(failed && `recovery by ${kind}: ${failed}`, problem);
  }
  if (!(await hasEnded(held.workerPid))) wrong.push('the worker is still there');
  return { point, happened, wrong: wrong.filter(one => one !== undefined) };
}

/** Whether the fault happened. */
export function happenedIn({ lines }: Tracer): boolean {
  return lines.some(line => /\(INJECTED\)|killed by SIGKILL|stopped by SIGSTOP/.test(line));
}

/** The refused request, as strace printed it. */
function findStruck({ lines }: Tracer): string | undefined {
  return lines.find(line => line.includes('(INJECTED)'));
}

interface Struck {
  readonly held: Held;
  readonly finished: Finished;
  readonly tracer: Tracer;
  /** Resumes a worker that was stopped in the middle of its work. */
  readonly outliving?: () => Promise<void>;
}

async function strike(ground: Ground, point: Point): Promise<Struck> {
  const { verb, actor, syscall, path, nth, error } = point;
  const held = await ground.hold(verb);
  const target = actor === 'runner' ? held.pid : held.workerPid;
  // A stop takes effect after the request has been made, a kill before it.
  const stops = point.strike === 'both killed' || point.strike === 'worker outlives';
  const what = error ? `error=${error}` : stops ? 'signal=STOP' : 'signal=KILL';
  const only = path === undefined ? {} : { path: ground.localise(path) };
  const watched = { syscalls: syscall, ...only, inject: { what, nth } };
  const tracer = await attachTracer(target, watched);
  await held.release();
  if (!stops) {
    const finished = await held.finished;
    await Promise.race([tracer.ended, Bun.sleep(LET_GO_MS)]);
    await tracer.release();
    return { held, finished, tracer };
  }
  // The last reply of a worker may end its runner before the stop is reported.
  await Promise.race([tracer.stopped, held.finished.then(() => Bun.sleep(LATE_NEWS_MS))]);
  held.kill();
  if (point.strike === 'both killed') end(held.workerPid);
  const finished = await held.finished;
  if (point.strike === 'both killed') {
    await hasEnded(held.workerPid);
    return { held, finished, tracer };
  }
  const outliving = async (): Promise<void> => {
    await Bun.sleep(OUTLIVE_MS);
    await tracer.release();
    // It may be about to stop, but not be stopped yet.
    for (let attempt = 0; attempt < 5; attempt++) {
      signal(held.workerPid, 'SIGCONT');
      await Bun.sleep(10);
    }
  };
  return { held, finished, tracer, outliving };
}

async function recover(ground: Ground, verb: Verb, kind: Recovery): Promise<void> {
  if (kind === 'del') return succeed(ground, 'del');
  if (kind === 'repair') return succeed(ground, 'repair');
  if (kind === 'again' && verb === 'gc') return succeed(ground, 'gc');
  if (kind === 'again' && verb === 'del') return succeed(ground, 'del');
  if (kind === 'again') {
    ground.rewindRange();
    // The first ADD may have completed: then a second one is refused, which is correct.
    const { exitCode, stdout } = await ground.run('add');
    const standing = exitCode !== 0 && (await ground.run('check')).exitCode === 0;
    if (exitCode !== 0 && !standing) throw new Error(`ADD fails: ${stdout.trim()}`);
    return;
  }
  await succeed(ground, 'add', 'other');
  await succeed(ground, 'del', 'other');
}

/** After a recovery everything or nothing must exist; a final DEL deletes it in any case. */
async function finish(ground: Ground, kind: Recovery): Promise<string | undefined> {
  const isMet = kind !== 'next';
  if (kind === 'del' || (await ground.run('check')).exitCode !== 0) return differs(ground, 'absent', isMet);
  const problem = await differs(kind === 'again' ? afterAnother(ground) : ground, 'present', isMet);
  if (problem) return problem;
  return (await attempt(() => succeed(ground, 'del'))) ?? differs(ground, 'absent');
}
