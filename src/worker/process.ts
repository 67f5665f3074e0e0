// How is one worker started, asked and ended?
import type { ExecOutcome, Invocation } from '../chain/exec-plugin.ts';
import { GRACE_MS, signalGroup } from '../chain/process-group.ts';
import { MAX_STDERR_BYTES } from '../chain/process-output.ts';
import { processOf, WORKER_VARIABLE } from '../journal/runner.ts';
import {
  LineSplitter,
  STAY_FLAG,
  toLine,
  WORKER_FLAG,
  type WorkerReply,
  type WorkerRequest,
} from './protocol.ts';

/** How long an answer may take. */
export type Limits = Pick<Invocation, 'deadlineMs' | 'signal'>;

/** How a call went, and what it has put off. */
export type WorkerOutcome = ExecOutcome &
  Pick<WorkerReply, 'removals'> & {
    /** The worker had ended before it could read the request: another one may be asked. */
    readonly unread?: boolean;
  };

/** A request that waits for its answer. */
interface Asked {
  readonly limits: Limits;
  readonly request: WorkerRequest;
  readonly resolve: (outcome: WorkerOutcome) => void;
  /** When it was its turn; it has its time from then on. */
  started: number;
  release(): void;
}

/**
 * A running worker; it answers one request after the other, and may be asked the next before. It ends with its standard
 * input.
 */
export class WorkerProcess {
  readonly #child: Bun.Subprocess<'pipe', 'pipe', 'pipe'> | undefined;
  readonly #spawnError: string = '';
  /** What was asked and not answered yet; the worker is at the first. */
  readonly #asked: Asked[] = [];
  #stderr = '';
  #ended: ExecOutcome['ended'];
  #over = false;
  readonly #chains = new Set<string>();
  #served = 0;

  /**
   * @param path our executable, by any of its names
   * @param stays it will serve many chains
   */
  constructor(path: string, env: Invocation['env'], stays = false) {
    try {
      this.#child = Bun.spawn([path, WORKER_FLAG, ...(stays ? [STAY_FLAG] : [])], {
        env: { ...env, [WORKER_VARIABLE]: processOf() },
        stdin: 'pipe',
        stdout: 'pipe',
        stderr: 'pipe',
        detached: true,
      });
    } catch (error) {
      const { code = '', message } = error as NodeJS.ErrnoException;
      this.#spawnError = message.startsWith(code) ? message : `${code}: ${message}`;
      this.#over = true;
      return;
    }
    void this.#readReplies(this.#child.stdout);
    void this.#readErrors(this.#child.stderr);
  }

  /** False once it has ended or is being ended. */
  get usable(): boolean {
    return !this.#over;
  }

  /** Calls of links that it has answered. */
  get served(): number {
    return this.#served;
  }

  /** Whether chains have put something off in it. */
  get holds(): boolean {
    return this.#chains.size > 0;
  }

  /**
   * Asks one thing, after what was asked before; never rejects. When the time is up or the signal fires, the worker is
   * ended.
   */
  ask(limits: Limits, request: WorkerRequest): Promise<WorkerOutcome> {
    const child = this.#child;
    const nothing = { stdout: '', stderr: '', durationMs: 0 };
    if (child === undefined) return Promise.resolve({ ...nothing, spawnError: this.#spawnError });
    if (!this.#send(child, request)) {
      return this.#endOf(child).then(how => ({ ...how, unread: true, durationMs: 0 }));
    }
    const { promise, resolve } = Promise.withResolvers<WorkerOutcome>();
    this.#asked.push({ limits, request, resolve, started: performance.now(), release() {} });
    if (this.#asked.length === 1) this.#begin();
    return promise;
  }

  /** It is the turn of what was asked first. */
  #begin(): void {
    const [first] = this.#asked;
    if (first === undefined) return;
    const { deadlineMs, signal } = first.limits;
    this.#stderr = '';
    first.started = performance.now();
    const deadline = setTimeout(() => this.#end('deadline'), Math.max(deadlineMs, 0));
    const interrupt = (): void => this.#end('interrupt');
    if (signal?.aborted) interrupt();
    signal?.addEventListener('abort', interrupt);
    first.release = () => {
      clearTimeout(deadline);
      signal?.removeEventListener('abort', interrupt);
    };
  }

  #settle(reply: WorkerReply): void {
    const first = this.#asked.shift();
    if (first === undefined) return;
    const { request, resolve, started, release } = first;
    release();
    const durationMs = performance.now() - started;
    if ('call' in request) this.#served += 1;
    if ('call' in request && reply.removals) this.#chains.add(request.call.chain);
    if ('finish' in request) this.#chains.delete(request.finish);
    resolve({ ...reply, stderr: this.#stderr + reply.stderr, durationMs });
    this.#begin();
  }

  /** No more answers will come. It works in order: all but the first of what was asked it has not begun. */
  async #settleAll(child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>): Promise<void> {
    const [first, ...others] = this.#asked.splice(0);
    const how = await this.#endOf(child);
    if (first) {
      first.release();
      first.resolve({ ...how, durationMs: performance.now() - first.started });
    }
    for (const { resolve } of others) resolve({ ...how, unread: true, durationMs: 0 });
  }

  /** @returns false when it has ended already */
  #send(child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>, request: WorkerRequest): boolean {
    if (this.#over) return false;
    try {
      // A request longer than the pipe goes out bit by bit; whether all of it was read, the answer tells.
      heedless(child.stdin.write(toLine(request)));
      heedless(child.stdin.flush());
      return true;
    } catch {
      this.#over = true;
      return false;
    }
  }

  /** How a worker that gave no answer has ended. */
  async #endOf(child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>): Promise<Omit<ExecOutcome, 'durationMs'>> {
    await child.exited;
    const how =
      child.signalCode === null ? { exitCode: child.exitCode || 1 } : { signal: String(child.signalCode) };
    const ended = this.#ended === undefined ? {} : { ended: this.#ended };
    // Who interrupts it does not want it done.
    const again = this.#ended === 'interrupt' ? {} : { again: true };
    return { ...how, ...ended, ...again, stdout: '', stderr: this.#stderr };
  }

  async #readReplies(stdout: ReadableStream<Uint8Array>): Promise<void> {
    const lines = new LineSplitter();
    for await (const chunk of stdout) {
      for (const line of lines.push(chunk)) this.#settle(JSON.parse(line) as WorkerReply);
    }
    this.#over = true;
    if (this.#child) await this.#settleAll(this.#child);
  }

  async #readErrors(stderr: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    for await (const chunk of stderr) {
      this.#stderr = (this.#stderr + decoder.decode(chunk, { stream: true })).slice(-MAX_STDERR_BYTES);
    }
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Lets it go: it ends when it has answered what it was asked. */
  close(): void {
    this.#over = true;
    heedless(this.#child?.stdin.end());
  }

  /** Ends the process group: SIGTERM now, SIGKILL a little later. */
  #end(reason: NonNullable<ExecOutcome['ended']>): void {
    const { pid } = this.#child ?? {};
    if (pid === undefined || this.#ended !== undefined) return;
    this.#ended = reason;
    this.#over = true;
    signalGroup(pid, 'SIGTERM');
    const kill = setTimeout(() => signalGroup(pid, 'SIGKILL'), GRACE_MS);
    // Children that ignored SIGTERM must not outlive the worker.
    void this.#child?.exited.then(() => {
      clearTimeout(kill);
      signalGroup(pid, 'SIGKILL');
    });
  }
}

/** Each of them may tell of a worker that has ended, which is known by other ways. */
function heedless(done: unknown): void {
  Promise.resolve(done).catch(() => {});
}
