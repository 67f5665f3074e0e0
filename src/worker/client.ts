// How does a runner have its own plugins run by workers?
import { basename } from 'node:path';
import { ownExecutables } from '../chain/config/find-plugin.ts';
import type { ExecOutcome, KernelTransaction } from '../chain/run/exec-plugin.ts';
import {
  type PluginCall,
  processSegments,
  type Segment,
  type SegmentRunner,
  startPlugin,
} from '../chain/run/segment.ts';
import { ErrorCode } from '../cni/errors.ts';
import type { Outcome } from '../cni/invocation.ts';
import type { Limits, WorkerCall, WorkerOutcome, WorkerProcess, WorkerSource } from './process.ts';

/** How many workers are tried: one may turn out to have ended when the request is sent. */
const ATTEMPTS = 3;

/** The same workers for one request, with a note of why its calls had none, human-readable; undefined while all of them had one. */
export function noteUnserved(source: WorkerSource) {
  const unserved: { why: string | undefined } = { why: undefined };
  const workers: WorkerSource = {
    use: (invocation, work, which) => source.use(invocation, work, which),
    remove: async (indexes, limits) => (await source.remove?.(indexes, limits)) ?? false,
    unserved(why) {
      unserved.why ??= why;
    },
  };
  return { workers, unserved };
}

/** Number of chains run so far; it names a chain to workers, each of which belongs to one process. */
let chains = 0;

/**
 * Has workers run segments of our own plugins; foreign executables are started as processes. Which one applies is decided for
 * each call by device and inode of the file that was found. For one run of a chain, or several that finish together.
 * @param cwd directory from which relative paths start; the workers' own unless given
 */
export function workerSegments(source: WorkerSource, cwd?: string): SegmentRunner {
  const own = ownSegments(source, cwd);
  const isOwn = ownExecutables();
  const foreign = processSegments(startPlugin, () => false);
  return {
    ...own,
    joins: isOwn,
    run: segment => (isOwn(segment.calls[0]?.path ?? '') ? own : foreign).run(segment),
  };
}

/** Has workers run every segment, whatever its executables are. */
export function ownSegments(source: WorkerSource, cwd?: string): Required<SegmentRunner> {
  const chain = String(++chains);
  const waiting = new Map<WorkerProcess, readonly number[]>();
  let last: { readonly call: PluginCall; readonly segment: Segment } | undefined;
  let lost = false;
  const keep = (worker: WorkerProcess, { removals }: WorkerOutcome): void => {
    if (removals) waiting.set(worker, removals);
    // With a worker that had to be ended, what earlier plugins had deferred in it is lost.
    lost ||= !worker.usable && waiting.delete(worker);
  };
  return {
    joins: () => true,
    async *run(segment) {
      const [first] = segment.calls;
      if (first === undefined) return;
      last = { call: first, segment };
      for (let attempt = 1; ; attempt++) {
        // The worker that holds what this chain has deferred also runs the rest of the chain.
        const holder = [...waiting.keys()].find(worker => worker.usable);
        const lent = await borrow(source, first, holder);
        const outcomes = outcomesIn(lent.worker, segment, requestOf(segment, chain, cwd), keep);
        try {
          const { value: outcome } = await outcomes.next();
          const isDeclined = outcome?.unread && !segment.signal?.aborted;
          if (isDeclined && attempt < ATTEMPTS && outcome.spawnError === undefined) continue;
          if (isDeclined) source.unserved?.(howEnded(outcome));
          if (outcome) yield outcomeOf(outcome);
          for await (const one of outcomes) yield outcomeOf(one);
          return;
        } finally {
          await outcomes.return(undefined);
          lent.giveBack();
        }
      }
    },
    async finish() {
      const workers = [...waiting.entries()];
      waiting.clear();
      if (last === undefined || workers.length === 0) return takeLost();
      const { outcomes, transactions } = await finishIn(workers, source, last, chain);
      const failed = outcomes.find(({ exitCode }) => exitCode !== 0);
      const outcome = (failed && replyOf(failed)) ?? takeLost() ?? outcomes[0];
      return outcome && { ...outcome, ...(last.segment.tracesKernel ? { transactions } : {}) };
    },
  };

  function takeLost(): Outcome | undefined {
    const outcome = lost ? LOST : undefined;
    lost = false;
    return outcome;
  }
}

/** The outcomes of a segment, as they come; the worker continues to the end of the segment when the caller leaves the iteration. */
async function* outcomesIn(
  worker: WorkerProcess,
  segment: Segment,
  request: ReturnType<typeof requestOf>,
  keep: (worker: WorkerProcess, outcome: WorkerOutcome) => void,
): AsyncGenerator<WorkerOutcome, undefined, undefined> {
  const outcomes = worker.run(segment, request);
  const next = async (): Promise<WorkerOutcome | undefined> => {
    const { value } = await outcomes.next();
    if (value) keep(worker, value);
    return value;
  };
  try {
    for (let one = await next(); one !== undefined; one = await next()) yield one;
  } finally {
    while ((await next()) !== undefined);
  }
}

/** Has each worker do, or leave to the source, what the plugins of a chain have deferred in it. */
async function finishIn(
  workers: readonly (readonly [WorkerProcess, readonly number[]])[],
  source: WorkerSource,
  { call, segment }: { readonly call: PluginCall; readonly segment: Segment },
  chain: string,
) {
  const { deadlineMs, tracesKernel } = segment;
  const limits: Limits = { deadlineMs };
  const indexes = workers.flatMap(([, removals]) => removals);
  const begin = performance.now();
  const removed = (await source.remove?.(indexes, limits)) ?? false;
  const transactions = removed && indexes.length ? [removalOf(indexes, performance.now() - begin)] : [];
  const outcomes = await Promise.all(
    workers.map(async ([worker]) => {
      const ask = () => worker.ask(limits, { finish: chain, removed, tracesKernel });
      const outcome = await source.use(call, ask, worker);
      const startMs = performance.now() - begin - outcome.durationMs;
      for (const one of outcome.transactions ?? [])
        transactions.push({ ...one, startMs: one.startMs + startMs });
      return outcome;
    }),
  );
  return { outcomes, transactions };
}

function requestOf(
  { calls, threadsResult, stopsAtFailure, tracesKernel }: Segment,
  chain: string,
  cwd: string | undefined,
): Parameters<WorkerProcess['run']>[1] {
  const named = calls.map(({ path, ...call }) => ({ plugin: basename(path), cwd, ...call }));
  return { calls: named, threadsResult, stopsAtFailure, tracesKernel, chain };
}

function outcomeOf({ removals: _, unread: __, ...outcome }: WorkerOutcome): ExecOutcome {
  return outcome;
}

/** Borrows a worker until `giveBack` is called. */
function borrow(
  source: WorkerSource,
  call: WorkerCall,
  which: WorkerProcess | undefined,
): Promise<{ readonly worker: WorkerProcess; giveBack(): void }> {
  return new Promise((resolve, reject) => {
    const work = (worker: WorkerProcess) => new Promise<void>(giveBack => resolve({ worker, giveBack }));
    source.use(call, work, which).catch(reject);
  });
}

/** What a worker replied, or an error if it ended without a reply. */
function replyOf(outcome: WorkerOutcome): Outcome {
  if (outcome.stdout !== '') return outcome;
  const { stderr } = outcome;
  return {
    ...LOST,
    stdout: errorText(`the worker ended before it had finished (${howEnded(outcome)})`),
    stderr,
  };
}

/** How the process of a call ended that gave no reply. */
export function howEnded({ ended, signal, spawnError, exitCode }: ExecOutcome): string {
  return ended ?? signal ?? spawnError ?? `exit status ${exitCode}`;
}

/** The removal of devices as a transaction: the worker source did it, together with devices of other chains. */
function removalOf(indexes: readonly number[], durationMs: number): KernelTransaction {
  const what = `delete ${indexes.length} device${indexes.length === 1 ? '' : 's'}, together with those of other requests`;
  return { family: 'rtnetlink', what, startMs: 0, durationMs };
}

function errorText(state: string): string {
  const msg = `Cannot remove devices of the attachment: ${state}; run it again`;
  return JSON.stringify({ code: ErrorCode.tryAgainLater, msg });
}

const LOST: Outcome = {
  exitCode: 1,
  stdout: errorText('the worker ended before it removed them'),
  stderr: '',
};
