// What does one fault in the daemon or one of its workers do to a command that it runs for a client?

import { type Daemon, startDaemon } from '../helpers/daemon.ts';
import { type Actor, parseCalls, WATCHED } from './calls.ts';
import { type Ground, prepareVerb, settingsOf, succeed, type Verb } from './ground.ts';
import { judgeUnaided, judgeWhole, viewFor } from './judge.ts';
import { findPoints, type Point } from './points.ts';
import { attachTracer, type Tracer } from './strace.ts';
import { happenedIn, LATE_NEWS_MS, type Outcome } from './trial.ts';
import { hasEnded, workerOf } from './victims.ts';

/** A ground whose commands are run by a daemon with one worker. */
export interface Served {
  readonly ground: Ground;
  /** The verb that it runs when it is struck. */
  readonly verb: Verb;
  daemon: Daemon;
}

/** Starts the daemon, which then serves an attachment and the verb once. */
export async function serve(ground: Ground, verb: Verb): Promise<Served> {
  const served = { ground, verb, daemon: await startOne(ground) };
  await warmUp(served);
  return served;
}

async function startAgain(served: Served): Promise<void> {
  await served.daemon.stop();
  served.daemon = await startOne(served.ground);
  await warmUp(served);
}

/** Every point of a verb in the daemon's processes, where requests fail or a single process is killed. */
export async function countDaemonPoints(served: Served): Promise<Point[]> {
  const { ground, verb } = served;
  await prepareVerb(ground, verb);
  const pids = await processesOf(served);
  const tracers = new Map<Actor, Tracer>();
  for (const [actor, pid] of Object.entries(pids) as [Actor, number][])
    tracers.set(actor, await attachTracer(pid, { syscalls: WATCHED }));
  await succeed(ground, verb);
  const calls: Partial<Record<Actor, ReturnType<typeof parseCalls>>> = {};
  for (const [actor, tracer] of tracers) {
    await tracer.release();
    calls[actor] = parseCalls(tracer.lines.map(ground.generalise));
  }
  if (verb === 'add') await succeed(ground, 'del');
  return findPoints(verb, calls).filter(isNew);
}

/**
 * Plugins behave the same in every runner: the sweep of the command has already tried failures in them, and two deaths at once. What the
 * daemon receives next is a notification or a worker's answer: which one a count would meet is not known.
 */
function isNew({ strike, actor, syscall }: Point): boolean {
  if (strike === 'fails') return actor === 'runner' && !syscall.startsWith('recv');
  return strike === 'runner killed' || strike === 'worker killed';
}

/**
 * Tries one point. Whichever process is killed, the client learns the outcome of its request: it completes itself what a dead
 * daemon did not, and returns the result of an ADD that had completed.
 */
export async function tryDaemonPoint(served: Served, point: Point): Promise<Outcome> {
  const ground = viewFor(served.ground, point.verb);
  const wrong: (string | undefined)[] = [];
  await prepareVerb(ground, point.verb);
  const { syscall, path, nth, error, actor, strike } = point;
  const pid = (await processesOf(served))[actor];
  const only = path === undefined ? {} : { path: ground.localise(path) };
  const what = error ? `error=${error}` : 'signal=KILL';
  const tracer = await attachTracer(pid, { syscalls: syscall, ...only, inject: { what, nth } });
  const finished = await ground.run(point.verb);
  // The client may get its reply before the death is reported.
  if (strike !== 'fails' && !happenedIn(tracer)) await Promise.race([tracer.ended, Bun.sleep(LATE_NEWS_MS)]);
  await tracer.release();
  const happened = happenedIn(tracer);
  if (happened && strike === 'runner killed') {
    if (finished.exitCode !== 0) wrong.push(`the client fails: ${finished.stdout}${finished.stderr}`);
    served.daemon = await startOne(ground);
    wrong.push(await judgeWhole(ground, point.verb));
  } else wrong.push(...(await judgeUnaided(ground, point, finished, happened)));
  if (happened && strike !== 'fails') {
    if (!(await hasEnded(pid))) wrong.push('the process is still there');
    await startAgain(served);
  }
  return { point, happened, wrong: wrong.filter(one => one !== undefined) };
}

function startOne({ lab }: Ground): Promise<Daemon> {
  return startDaemon(lab, '--config', settingsOf(lab));
}

/**
 * Requests that a process makes only once, such as reading the boot id, happen in the first call of the verb: they are not points,
 * since they would not be made again.
 */
async function warmUp({ ground, verb }: Served): Promise<void> {
  ground.rewindRange();
  await succeed(ground, 'add');
  await succeed(ground, 'del');
  if (verb === 'gc') await succeed(ground, 'gc');
}

async function processesOf({ daemon: { pid } }: Served): Promise<Record<Actor, number>> {
  return { runner: pid, worker: await workerOf(pid) };
}
