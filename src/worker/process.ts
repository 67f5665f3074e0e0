// How is a worker started, sent requests and ended, and where does a runner get one?

import { isOwnExecutable } from '../chain/config/find-plugin.ts';
import type { ExecOutcome, Invocation } from '../chain/run/exec-plugin.ts';
import type { PluginCall } from '../chain/run/segment.ts';
import { MAX_STDERR_BYTES, saidBy } from '../cni/invocation.ts';
import { LineSplitter } from '../cni/json.ts';
import { endGroup, processOf, signalGroup, WORKER_VARIABLE } from '../files/process-stat.ts';
import { ONE_COLLECTOR } from '../sys/helper-threads.ts';
import { startTimer, type Timer } from '../wait.ts';
import {
  type SegmentRequest,
  STAY_FLAG,
  toLine,
  WORKER_FLAG,
  type WorkerReply,
  type WorkerRequest,
} from './protocol.ts';

/** How long a reply may take. */
export type Limits = Pick<Invocation, 'deadlineMs' | 'signal'>;

/** The outcome of a call, and what it has deferred. */
export type WorkerOutcome = ExecOutcome &
  Pick<WorkerReply, 'removals'> & {
    /** The worker has not begun the request: another one may be tried. */
    readonly unread?: boolean;
  };

/** Called once: when the worker serves, or with why it ended before it did. */
type OnStart = (problem: string | undefined) => void;

/**
 * Without the last of the engine's three compilers: its code saves no time in calls this short, and compiling took a sixth of the processor
 * time of a daemon's first hundred pods, a tenth of that of the third hundred (bench/pod.ts).
 */
const TWO_COMPILERS = { BUN_JSC_useFTLJIT: '0' } as const;

/** How long a new worker may take until it reads its first request, and how long one that has already served. */
const FIRST_READ_MS = 10_000;
const NEXT_READ_MS = 5_000;

/** Time for the call of a client that has gone, in a worker that other chains need: they would lose what they have deferred there. */
const SHARED_MS = 1_000;

interface PendingRequest {
  readonly limits: Limits;
  readonly request: WorkerRequest;
  /** Called for each reply; the last one has no `more`. */
  readonly onOutcome: (outcome: WorkerOutcome) => void;
  /** When its turn came, or when its last reply arrived: the time limit of each reply starts then. */
  started: number;
  /** The worker has read it. */
  begun: boolean;
  /** Ends the wait for the worker to read it; `release` ends all waits. */
  read(): void;
  release(): void;
}

/** A running worker. It serves requests in order; the next may be sent before the reply to the last. It ends with its input. */
export class WorkerProcess {
  readonly #child: Bun.Subprocess<'pipe', 'pipe', 'pipe'> | undefined;
  readonly #spawnError: string = '';
  /** Requests without a final reply; the worker is at the first. */
  readonly #asked: PendingRequest[] = [];
  #stderr = '';
  #ended: ExecOutcome['ended'] | 'unread';
  #over = false;
  #serves = false;
  readonly #onStart: OnStart;
  readonly #chains = new Set<string>();
  readonly #stuck = Promise.withResolvers<void>();
  #served = 0;

  /**
   * @param path our executable, by any of its names; or why there can be no process, which is then the reply to every request
   * @param stays it will serve many chains: it starts in the root directory, which always exists
   * @param onStart called when it serves, or has ended before it did
   */
  constructor(
    path: string | { readonly absent: string },
    env: Invocation['env'],
    stays = false,
    onStart: OnStart = () => {},
  ) {
    this.#onStart = onStart;
    if (typeof path !== 'string') {
      this.#spawnError = path.absent;
      this.#over = true;
      return;
    }
    try {
      this.#child = Bun.spawn([path, WORKER_FLAG, ...(stays ? [STAY_FLAG] : [])], {
        env: { ...env, ...ONE_COLLECTOR, ...(stays ? TWO_COMPILERS : {}), [WORKER_VARIABLE]: processOf() },
        ...(stays ? { cwd: '/' } : {}),
        stdin: 'pipe',
        stdout: 'pipe',
        stderr: 'pipe',
        detached: true,
      });
    } catch (error) {
      const { code = '', message } = error as NodeJS.ErrnoException;
      this.#spawnError = message.startsWith(code) ? message : `${code}: ${message}`;
      this.#over = true;
      onStart(this.#spawnError);
      return;
    }
    void this.#readReplies(this.#child.stdout);
    void this.#readErrors(this.#child.stderr);
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** False once it has ended or is being ended. */
  get usable(): boolean {
    return !this.#over;
  }

  /** Whether it has read a request: until then it is starting. */
  get serves(): boolean {
    return this.#serves;
  }

  /** Number of plugin calls that it has replied to. */
  get served(): number {
    return this.#served;
  }

  /** Whether it holds deferred work of chains. */
  get holds(): boolean {
    return this.#chains.size > 0;
  }

  /**
   * Sends a request that has one reply; never rejects. On timeout, or when the signal fires, the worker is ended.
   */
  ask(limits: Limits, request: WorkerRequest): Promise<WorkerOutcome> {
    return new Promise(resolve => this.#queue(limits, request, resolve));
  }

  /** Has the worker run a segment. Each reply may take as long as the limits say; the last one has no `more`. */
  async *run(limits: Limits, segment: SegmentRequest): AsyncGenerator<WorkerOutcome> {
    const arrived: WorkerOutcome[] = [];
    let wake = (): void => {};
    this.#queue(limits, { segment }, outcome => {
      arrived.push(outcome);
      wake();
    });
    for (let more = true; more; ) {
      const outcome = arrived.shift();
      if (outcome === undefined) await new Promise<void>(resolve => (wake = resolve));
      else {
        more = outcome.more ?? false;
        yield outcome;
      }
    }
  }

  #queue(limits: Limits, request: WorkerRequest, onOutcome: PendingRequest['onOutcome']): void {
    const child = this.#child;
    const unread = { stdout: '', stderr: '', durationMs: 0, unread: true };
    if (child === undefined) onOutcome({ ...unread, spawnError: this.#spawnError, again: true });
    else if (!this.#send(child, request)) {
      void this.#endOf(child).then(how => onOutcome({ ...unread, ...how }));
    } else {
      this.#asked.push({ limits, request, onOutcome, started: performance.now(), ...NEW });
      if (this.#asked.length === 1) this.#begin();
    }
  }

  /** Begins the wait for the first request, whose turn it is. */
  #begin(): void {
    const first = this.#asked[0];
    if (!first) return;
    const { deadlineMs, signal } = first.limits;
    this.#stderr = '';
    first.started = performance.now();
    const deadline = startTimer(() => this.#end('deadline'), deadlineMs);
    const readMs = first.begun ? Infinity : this.#serves ? NEXT_READ_MS : FIRST_READ_MS;
    const unread = readMs < deadlineMs ? startTimer(() => this.#end('unread'), readMs) : undefined;
    let unlessDone: Timer | undefined;
    const interrupt = (): void => {
      if (!this.#holdsForOthersThan(first.request)) this.#end('interrupt');
      else unlessDone = startTimer(() => this.#end('interrupt'), SHARED_MS);
    };
    if (signal?.aborted) interrupt();
    signal?.addEventListener('abort', interrupt);
    first.read = () => {
      first.begun = true;
      clearTimeout(unread);
    };
    first.release = () => {
      clearTimeout(deadline);
      clearTimeout(unread);
      clearTimeout(unlessDone);
      signal?.removeEventListener('abort', interrupt);
    };
  }

  #holdsForOthersThan(request: WorkerRequest): boolean {
    const own = 'segment' in request ? request.segment.chain : undefined;
    return [...this.#chains].some(chain => chain !== own);
  }

  #takeReply(reply: WorkerReply): void {
    const first = reply.more ? this.#asked[0] : this.#asked.shift();
    if (first === undefined) return;
    const { request, onOutcome, started, release } = first;
    release();
    const durationMs = performance.now() - started;
    const stderr = this.#stderr + reply.stderr;
    if ('segment' in request) this.#served += 1;
    if ('segment' in request && reply.removals) this.#chains.add(request.segment.chain);
    if ('finish' in request) this.#chains.delete(request.finish);
    this.#begin();
    onOutcome({ ...reply, stderr, durationMs });
  }

  /** Ends all requests: no more replies will come. The worker works in order, so only the first one may have begun. */
  async #endAll(child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>): Promise<void> {
    const [first, ...others] = this.#asked.splice(0);
    const how = await this.#endOf(child);
    if (first) {
      first.release();
      const { started, begun } = first;
      first.onOutcome({
        ...how,
        ...(begun ? {} : { unread: true }),
        durationMs: performance.now() - started,
      });
    }
    for (const { onOutcome } of others) onOutcome({ ...how, unread: true, durationMs: 0 });
  }

  /** @returns false when it has ended already */
  #send(child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>, request: WorkerRequest): boolean {
    if (this.#over) return false;
    try {
      // A request longer than the pipe is written in pieces. Only the reply tells whether all of it was read.
      ignoreFailure(child.stdin.write(toLine(request)));
      ignoreFailure(child.stdin.flush());
      return true;
    } catch {
      this.#over = true;
      return false;
    }
  }

  /** How a worker ended without a reply. */
  async #endOf(child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>): Promise<Omit<ExecOutcome, 'durationMs'>> {
    await Promise.race([child.exited, this.#stuck.promise]);
    const how =
      child.signalCode === null ? { exitCode: child.exitCode || 1 } : { signal: String(child.signalCode) };
    const ended = this.#ended === undefined || this.#ended === 'unread' ? {} : { ended: this.#ended };
    // A caller that interrupts a call does not want a retry.
    const again = this.#ended === 'interrupt' ? {} : { again: true };
    return { ...how, ...ended, ...again, stdout: '', stderr: this.#stderr };
  }

  async #readReplies(stdout: ReadableStream<Uint8Array>): Promise<void> {
    const lines = new LineSplitter();
    for await (const chunk of stdout) {
      for (const line of lines.push(chunk)) {
        if (line === '') this.#begins();
        else this.#takeReply(JSON.parse(line) as WorkerReply);
      }
    }
    this.#over = true;
    if (this.#child) await this.#endAll(this.#child);
    if (!this.#serves) this.#tellUnlessLetGo();
  }

  /** The worker has read the first request. */
  #begins(): void {
    this.#asked[0]?.read();
    if (this.#serves) return;
    this.#serves = true;
    this.#onStart(undefined);
  }

  /** Reports a worker that ended without ever having served, unless it was closed. */
  #tellUnlessLetGo(): void {
    const { exitCode, signalCode } = this.#child ?? {};
    if (exitCode === 0) return;
    const end = signalCode ?? `exit status ${exitCode}`;
    const how = this.#ended === 'unread' ? 'it did not read its first request' : end;
    const said = saidBy(this.#stderr).split('\n')[0] ?? '';
    this.#onStart(said === '' ? String(how) : `${how}: ${said}`);
  }

  async #readErrors(stderr: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    for await (const chunk of stderr) {
      this.#stderr = (this.#stderr + decoder.decode(chunk, { stream: true })).slice(-MAX_STDERR_BYTES);
    }
  }

  /** Closes its input: it ends after it has replied to its requests. */
  close(): void {
    this.#over = true;
    ignoreFailure(this.#child?.stdin.end());
  }

  #end(reason: NonNullable<ExecOutcome['ended']> | 'unread'): void {
    const { pid } = this.#child ?? {};
    if (pid === undefined || this.#ended !== undefined) return;
    this.#ended = reason;
    this.#over = true;
    const stop = endGroup(pid, () => this.#giveUp());
    // Children that ignored SIGTERM must not outlive the worker.
    void this.#child?.exited.then(() => {
      stop();
      signalGroup(pid, 'SIGKILL');
    });
  }

  /** It was killed and has not ended. */
  #giveUp(): void {
    this.#stuck.resolve();
    if (this.#child) void this.#endAll(this.#child);
  }
}

const NEW = { begun: false, read() {}, release() {} };

/** Ignores a rejection: it only says that the worker has ended, which is noticed elsewhere. */
function ignoreFailure(done: unknown): void {
  Promise.resolve(done).catch(() => {});
}

/** What a source may want to know of a call. */
export type WorkerCall = Pick<PluginCall, 'path' | 'env'> & Partial<Pick<PluginCall, 'stdin'>>;

/** Where workers come from. */
export interface WorkerSource {
  /** Lends a worker until the work is done; a particular one if `which` is given. */
  use<T>(call: WorkerCall, work: (worker: WorkerProcess) => Promise<T>, which?: WorkerProcess): Promise<T>;
  /** Deletes devices together with those of other chains. @returns whether they are gone */
  remove?(indexes: readonly number[], limits: Limits): Promise<boolean>;
  /** Called when no worker has read a call and no further one is tried. */
  unserved?(why: string): void;
}

/** A worker that ends with the process that started it, or before. */
interface OwnWorker extends WorkerSource {
  /** Ends it once it has answered. A later call starts another one. */
  close(): void;
}

/**
 * One worker for one chain, started when the first of our plugins is called, and again after one had to be ended.
 * @param early one that is already running
 */
export function ownWorker(early?: WorkerProcess): OwnWorker {
  let current = early;
  const take = ({ path, env }: WorkerCall): WorkerProcess => {
    current = current?.usable ? current : new WorkerProcess(path, env);
    return current;
  };
  return {
    use: (call, work, which) => work(which ?? take(call)),
    close() {
      current?.close();
      current = undefined;
    },
  };
}

/**
 * The same, but starts it now, if our own executable is in one of the plugin directories: then the worker will most likely
 * serve some of the chain. It starts while this process still loads its modules and reads configurations, which takes
 * as long (4 ms on a second core).
 * @param path list of directories, as in `CNI_PATH`
 * @param name of our executable
 */
export function earlyWorker(path: string, name: string): OwnWorker | undefined {
  const own = path.split(':').map(dir => `${dir}/${name}`);
  const found = own.find(one => isOwnExecutable(one));
  return found === undefined ? undefined : ownWorker(new WorkerProcess(found, process.env));
}
