// How does a runner have its own links served by workers?
import { basename } from 'node:path';
import type { Invocation, KernelTransaction, StartPlugin } from '../chain/exec-plugin.ts';
import { isOwnExecutable } from '../chain/find-plugin.ts';
import type { Runtime } from '../chain/runtime.ts';
import { startPlugin } from '../chain/start.ts';
import { ErrorCode } from '../cni/errors.ts';
import type { Outcome } from '../cni/reply.ts';
import { type Limits, type WorkerOutcome, WorkerProcess } from './process.ts';

/** Workers that may turn out to have ended when they are asked. */
const ATTEMPTS = 3;

/** Where workers come from. */
export interface WorkerSource {
  /** Told that a call of a link will come: time to start what is not running. */
  prepare?(invocation: Invocation): void;
  /** Gives a worker to one caller, a certain one if that is named, and takes it back when the work is done. */
  use<T>(
    invocation: Invocation,
    work: (worker: WorkerProcess) => Promise<T>,
    which?: WorkerProcess,
  ): Promise<T>;
  /** Deletes devices together with those of other chains. @returns whether they are gone */
  remove?(indexes: readonly number[], limits: Limits): Promise<boolean>;
}

/** The part of a runtime that one run of a chain has its own links served by. */
export type OwnLinks = Required<Pick<Runtime, 'start' | 'finish' | 'inOrder'>>;

/** A worker that a chain has to itself while some of its calls wait for their answers. */
interface Held {
  readonly worker: Promise<WorkerProcess>;
  waiting: number;
  release(): void;
}

/** Chains and calls so far; a worker belongs to one process. */
let chains = 0;
let calls = 0;

/**
 * Prepares one run of a chain whose links are served by workers.
 * @param cwd directory that relative paths start from; the workers' own unless given
 */
export function serveThrough(source: WorkerSource, cwd?: string): OwnLinks {
  const chain = String(++chains);
  const waiting = new Map<WorkerProcess, readonly number[]>();
  let last: Invocation | undefined;
  let lost = false;
  let held: Held | undefined;
  const keep = (worker: WorkerProcess, { removals }: WorkerOutcome): void => {
    if (removals) waiting.set(worker, removals);
    // With a worker that had to be ended goes what earlier links had put off.
    lost ||= !worker.usable && waiting.delete(worker);
  };
  const hold = (invocation: Invocation): Held => {
    const [given, done] = [Promise.withResolvers<WorkerProcess>(), Promise.withResolvers<void>()];
    const work = (worker: WorkerProcess): Promise<void> => {
      given.resolve(worker);
      return done.promise;
    };
    source.use(invocation, work).catch(given.reject);
    return { worker: given.promise, waiting: 0, release: done.resolve };
  };
  /** What comes while a worker serves this chain goes to the same: one after the other. */
  const useInOrder = async (
    invocation: Invocation,
    ask: (worker: WorkerProcess) => Promise<WorkerOutcome>,
  ): Promise<WorkerOutcome> => {
    held ??= hold(invocation);
    const own = held;
    own.waiting += 1;
    let isOfUse = true;
    try {
      const outcome = await ask(await own.worker);
      isOfUse = !outcome.unread;
      return outcome;
    } finally {
      own.waiting -= 1;
      if (own.waiting === 0) own.release();
      if (held === own && (own.waiting === 0 || !isOfUse)) held = undefined;
    }
  };
  return {
    inOrder: true,
    start(invocation) {
      last = invocation;
      source.prepare?.(invocation);
      const id = ++calls;
      return {
        id,
        async send(request, follows) {
          const { path, env, noted } = invocation;
          const call = { link: basename(path), env, request, chain, id, follows, noted, cwd };
          const ask = async (worker: WorkerProcess): Promise<WorkerOutcome> => {
            const outcome = await worker.ask(invocation, { call });
            keep(worker, outcome);
            return outcome;
          };
          for (let attempt = 1; ; attempt++) {
            const { removals: _, unread, ...outcome } = await useInOrder(invocation, ask);
            if (!unread || attempt === ATTEMPTS || invocation.signal?.aborted) return outcome;
          }
        },
        discard() {},
      };
    },
    async finish() {
      const workers = [...waiting.entries()];
      waiting.clear();
      if (last === undefined || workers.length === 0) return takeLost();
      const invocation = { ...last, signal: undefined };
      const { noted } = invocation;
      const indexes = workers.flatMap(([, removals]) => removals);
      const begin = performance.now();
      const removed = (await source.remove?.(indexes, invocation)) ?? false;
      const transactions = removed && indexes.length ? [removalOf(indexes, performance.now() - begin)] : [];
      const outcomes = await Promise.all(
        workers.map(async ([worker]) => {
          const ask = () => worker.ask(invocation, { finish: chain, removed, noted });
          const outcome = await source.use(invocation, ask, worker);
          const startMs = performance.now() - begin - outcome.durationMs;
          transactions.push(...shift(outcome.transactions, startMs));
          return outcome;
        }),
      );
      const outcome = outcomes.find(({ exitCode }) => exitCode !== 0) ?? takeLost() ?? outcomes[0];
      return outcome && { ...outcome, ...(noted ? { transactions } : {}) };
    },
  };

  function takeLost(): Outcome | undefined {
    const outcome = lost ? LOST : undefined;
    lost = false;
    return outcome;
  }
}

/**
 * Serves our own links with workers and starts everybody else's as ever. Which is which is decided for each call by the
 * file that was found (design: "ours is decided by device and inode").
 */
export function runThrough(
  source: WorkerSource,
  { startOther = startPlugin, cwd }: { startOther?: StartPlugin; cwd?: string } = {},
): OwnLinks {
  const own = serveThrough(source, cwd);
  return {
    ...own,
    start: invocation => (isOwnExecutable(invocation.path) ? own.start(invocation) : startOther(invocation)),
  };
}

/**
 * One worker for one chain, started when the first of our links is called, and again after one had to be ended.
 * @param early one that runs already
 */
export function ownWorker(early?: WorkerProcess): WorkerSource {
  let current = early;
  const take = ({ path, env }: Invocation): WorkerProcess => {
    current = current?.usable ? current : new WorkerProcess(path, env);
    return current;
  };
  return {
    prepare: invocation => void take(invocation),
    use: (invocation, work, which) => work(which ?? take(invocation)),
  };
}

/** Somebody else has asked the kernel for it, together with devices of other chains. */
function removalOf(indexes: readonly number[], durationMs: number): KernelTransaction {
  const what = `delete ${indexes.length} link${indexes.length === 1 ? '' : 's'}, together with those of other requests`;
  return { family: 'rtnetlink', what, startMs: 0, durationMs };
}

function shift(transactions: readonly KernelTransaction[] = [], ms: number): KernelTransaction[] {
  return transactions.map(one => ({ ...one, startMs: one.startMs + ms }));
}

const LOST: Outcome = {
  exitCode: 1,
  stdout: JSON.stringify({
    code: ErrorCode.tryAgainLater,
    msg: 'Cannot remove devices of the attachment: the worker ended before it came to them; run it again',
  }),
  stderr: '',
};
