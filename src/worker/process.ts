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

/** A running worker; it answers one request at a time. It ends with its standard input. */
export class WorkerProcess {
  readonly #child: Bun.Subprocess<'pipe', 'pipe', 'pipe'> | undefined;
  readonly #spawnError: string = '';
  #answer: ((reply: WorkerReply | undefined) => void) | undefined;
  #stderr = '';
  #ended: ExecOutcome['ended'];
  #over = false;
  #turn: Promise<unknown> = Promise.resolve();
  readonly #chains = new Set<string>();

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

  /** Whether chains have put something off in it. */
  get holds(): boolean {
    return this.#chains.size > 0;
  }

  /**
   * Asks one thing, after what was asked before; never rejects. When the time is up or the signal fires, the worker is
   * ended.
   */
  ask(limits: Limits, request: WorkerRequest): Promise<WorkerOutcome> {
    const turn = this.#turn.then(() => this.#askNow(limits, request));
    this.#turn = turn;
    return turn;
  }

  async #askNow({ deadlineMs, signal }: Limits, request: WorkerRequest): Promise<WorkerOutcome> {
    const started = performance.now();
    const child = this.#child;
    if (child === undefined) return { stdout: '', stderr: '', spawnError: this.#spawnError, durationMs: 0 };
    this.#stderr = '';
    const deadline = setTimeout(() => this.#end('deadline'), Math.max(deadlineMs, 0));
    const interrupt = (): void => this.#end('interrupt');
    signal?.addEventListener('abort', interrupt);
    const sent = this.#send(child, request);
    const reply = sent ? await sent : undefined;
    clearTimeout(deadline);
    signal?.removeEventListener('abort', interrupt);
    const durationMs = performance.now() - started;
    if (reply === undefined) {
      return { ...(await this.#endOf(child)), ...(sent ? {} : { unread: true }), durationMs };
    }
    if ('call' in request && reply.removals) this.#chains.add(request.call.chain);
    if ('finish' in request) this.#chains.delete(request.finish);
    return { ...reply, stderr: this.#stderr + reply.stderr, durationMs };
  }

  /** @returns a promise of the answer, or of nothing when the worker ends; undefined when it has ended already */
  #send(
    child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>,
    request: WorkerRequest,
  ): Promise<WorkerReply | undefined> | undefined {
    if (this.#over) return undefined;
    const answer = new Promise<WorkerReply | undefined>(resolve => {
      this.#answer = resolve;
    });
    try {
      child.stdin.write(toLine(request));
      // A request longer than the pipe goes out bit by bit; whether all of it was read, the answer tells.
      Promise.resolve(child.stdin.flush()).catch(() => {});
    } catch {
      this.#over = true;
      return undefined;
    }
    return answer;
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
      for (const line of lines.push(chunk)) this.#answer?.(JSON.parse(line) as WorkerReply);
    }
    this.#over = true;
    this.#answer?.(undefined);
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
    this.#child?.stdin.end();
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
