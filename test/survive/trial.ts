// What does one fault do to a verb, and what is there after a recovery?

import fs from 'node:fs';
import type { Finished } from '../helpers/command.ts';
import { type Ground, type Held, prepareVerb, succeed, type Verb } from './ground.ts';
import type { Point } from './points.ts';
import { awaitState, findDifferences, type State } from './state.ts';
import { attachTracer, type Tracer } from './strace.ts';

/** How a trial ended: the fault happened or did not, and what was not as it must be. */
export interface Outcome {
  readonly point: Point;
  readonly happened: boolean;
  readonly wrong: readonly string[];
}

/** How somebody comes after a crash; taken in turn. */
const RECOVERIES = ['del', 'next', 'repair', 'again'] as const;
type Recovery = (typeof RECOVERIES)[number];

/** How long a worker that outlives its runner works on while a recovery waits for it. */
const OUTLIVE_MS = 150;
const LATE_NEWS_MS = 200;
const WORKER_END_MS = 10_000;

/**
 * Tries one point on a ground without the attachment, and leaves it so where nothing is wrong.
 * @param turn which recovery comes, by number
 */
export async function tryPoint(whole: Ground, point: Point, turn: number): Promise<Outcome> {
  const ground = point.verb === 'gc' ? withoutSysctls(whole) : whole;
  const wrong: string[] = [];
  const note = (problem: string | undefined): void => {
    if (problem !== undefined) wrong.push(problem);
  };
  await prepareVerb(ground, point.verb);
  const { held, finished, tracer, outliving } = await strike(ground, point);
  const happened = tracer.lines.some(line => /\(INJECTED\)|killed by SIGKILL|stopped by SIGSTOP/.test(line));
  const isKilled = point.strike !== 'fails' && point.strike !== 'worker killed';

  if (!happened) await outliving?.();
  if (!happened || !isKilled) {
    note(findReplyProblem(finished));
    if (happened && point.strike === 'worker killed' && finished.exitCode === 0 && point.verb === 'add')
      note('ADD succeeds though its worker died');
  }
  if (happened && isKilled) {
    const kind = RECOVERIES[turn % RECOVERIES.length] as Recovery;
    const recovered = recover(ground, point.verb, kind);
    if (outliving) await outliving();
    note(
      await recovered.then(
        () => undefined,
        error => `recovery by ${kind}: ${error.message}`,
      ),
    );
    note(await finish(ground, kind));
  } else if (point.verb === 'add') {
    note(await judgeAdd(ground, finished));
  } else {
    note(await judgeRemoval(ground, point, finished));
  }
  if (!(await hasEnded(held.workerPid))) note('the worker is still there');
  return { point, happened, wrong };
}

/** What GC collects has no namespace any more in which a value could be of interest to anybody. */
function withoutSysctls(ground: Ground): Ground {
  const rest = (state: State) => state.filter(line => !/: somaxconn \d+$/.test(line));
  return {
    ...ground,
    absent: rest(ground.absent),
    present: rest(ground.present),
    state: async () => rest(await ground.state()),
  };
}

interface Struck {
  readonly held: Held;
  readonly finished: Finished;
  readonly tracer: Tracer;
  /** Where the worker was left in the middle of its work: lets it go on. */
  readonly outliving?: () => Promise<void>;
}

async function strike(ground: Ground, point: Point): Promise<Struck> {
  const { verb, actor, syscall, path, nth, error } = point;
  const held = await ground.hold(verb);
  const target = actor === 'runner' ? held.pid : held.workerPid;
  // A stop lets the request through and comes after it; a kill comes before.
  const stops = point.strike === 'both killed' || point.strike === 'worker outlives';
  const what = error ? `error=${error}` : stops ? 'signal=STOP' : 'signal=KILL';
  const only = path === undefined ? {} : { path: ground.localise(path) };
  const watched = { syscalls: syscall, ...only, inject: { what, nth } };
  const tracer = await attachTracer(target, watched);
  await held.release();
  if (!stops) {
    const finished = await held.finished;
    await tracer.ended;
    return { held, finished, tracer };
  }
  // The last reply of a worker may end its runner before anybody hears that it stopped.
  await Promise.race([tracer.stopped, held.finished.then(() => Bun.sleep(LATE_NEWS_MS))]);
  held.kill();
  if (point.strike === 'both killed') end(held.workerPid);
  const finished = await held.finished;
  if (point.strike === 'both killed') return { held, finished, tracer };
  const outliving = async (): Promise<void> => {
    await Bun.sleep(OUTLIVE_MS);
    await tracer.release();
    // It may be about to stop rather than stopped.
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
    // The ADD may have come to its end before: a second one is refused then, and nothing is wrong with that.
    const { exitCode, stdout } = await ground.run('add');
    const standing = exitCode !== 0 && (await ground.run('check')).exitCode === 0;
    if (exitCode !== 0 && !standing) throw new Error(`ADD fails: ${stdout.trim()}`);
    return;
  }
  await succeed(ground, 'add', 'other');
  await succeed(ground, 'del', 'other');
}

/** After a recovery everything is there or nothing is; a DEL ends it in any case. */
async function finish(ground: Ground, kind: Recovery): Promise<string | undefined> {
  if (kind === 'del' || (await ground.run('check')).exitCode !== 0) return differs(ground, 'absent');
  const problem = await differs(ground, 'present');
  if (problem) return problem;
  return (await attempt(() => succeed(ground, 'del'))) ?? differs(ground, 'absent');
}

/** A failed ADD has undone itself; one that did without is whole. */
async function judgeAdd(ground: Ground, { exitCode }: Finished): Promise<string | undefined> {
  if (exitCode !== 0) return differs(ground, 'absent');
  const problem = await differs(ground, 'present');
  if (problem) return problem;
  return (await attempt(() => succeed(ground, 'del'))) ?? differs(ground, 'absent');
}

/** What DEL or GC could not take away it says, or a further one finds it; then nothing is there. */
async function judgeRemoval(
  ground: Ground,
  { verb }: Point,
  { exitCode }: Finished,
): Promise<string | undefined> {
  if (exitCode === 0 && findDifferences(ground.absent, await ground.state()).length === 0) return undefined;
  return (await attempt(() => succeed(ground, verb))) ?? differs(ground, 'absent');
}

async function differs(ground: Ground, wanted: 'absent' | 'present'): Promise<string | undefined> {
  const all = await awaitState(ground.state, ground[wanted]);
  // The next verb takes away the mark of a record that needs no work.
  const differences =
    wanted === 'absent' ? all : all.filter(line => !line.startsWith('+ file state/unsettled/'));
  return differences.length ? `not ${wanted}: ${differences.join('; ')}` : undefined;
}

async function attempt(work: () => Promise<void>): Promise<string | undefined> {
  return work().then(
    () => undefined,
    error => error.message,
  );
}

/** A failure is an error object of the specification. */
function findReplyProblem({ exitCode, stdout, stderr }: Finished): string | undefined {
  if (exitCode === 0) return undefined;
  try {
    const { code, msg } = JSON.parse(stdout || stderr);
    if (typeof code === 'number' && typeof msg === 'string' && msg !== '') return undefined;
  } catch {
    // Told below.
  }
  return `no error object, exit code ${exitCode}: ${stdout}${stderr}`;
}

async function hasEnded(pid: number): Promise<boolean> {
  const until = Date.now() + WORKER_END_MS;
  while (fs.existsSync(`/proc/${pid}`)) {
    if (isZombie(pid)) return true;
    if (Date.now() > until) {
      end(pid);
      return false;
    }
    await Bun.sleep(5);
  }
  return true;
}

/** Whoever adopted it has not asked how it ended. */
function isZombie(pid: number): boolean {
  try {
    return / Z /.test(fs.readFileSync(`/proc/${pid}/stat`, 'latin1').replace(/^.*\)/, ''));
  } catch {
    return true;
  }
}

function end(pid: number): void {
  signal(pid, 'SIGKILL');
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended by itself.
  }
}
