// How does a runner have its own links served by a worker?
import { basename } from 'node:path';
import type { ExecOutcome, Invocation, StartPlugin } from '../chain/exec-plugin.ts';
import { type CniError, ErrorCode } from '../cni/errors.ts';
import type { Outcome } from '../cni/reply.ts';
import { LineSplitter, toLine, WORKER_FLAG, type WorkerReply, type WorkerRequest } from './protocol.ts';

/** Time between SIGTERM and SIGKILL. */
const GRACE_MS = 2_000;
/** Standard error of one call that is kept. */
const MAX_STDERR_BYTES = 1024 * 1024;

/** A worker that is started when the first of our links is called, and again after one had to be ended. */
export interface Worker {
  /** Calls a link that is this very executable. */
  readonly start: StartPlugin;
  /** Has the worker do what the links put off. @returns how that went; undefined when there was nothing */
  finish(): Promise<Outcome | undefined>;
}

/**
 * Prepares a worker; nothing is started yet. It ends with its standard input, that is with this process: nobody waits
 * for it.
 */
export function openWorker(): Worker {
  let current: WorkerProcess | undefined;
  let last: Invocation | undefined;
  let lost = false;
  return {
    start(invocation) {
      const worker = current?.usable ? current : new WorkerProcess(invocation);
      current = worker;
      last = invocation;
      return {
        async send(request) {
          const { path, env } = invocation;
          const outcome = await worker.ask(invocation, { link: basename(path), env, request });
          lost ||= worker.unfinished && !worker.usable;
          return outcome;
        },
        discard() {},
      };
    },
    async finish() {
      const open = current?.unfinished && current.usable && last !== undefined;
      const outcome = open ? await current?.ask(last as Invocation, 'finish') : undefined;
      if (!lost) return outcome;
      lost = false;
      return LOST;
    },
  };
}

/** A worker that had to be ended in between takes with it what earlier links had put off. */
const LOST: Outcome = {
  exitCode: 1,
  stdout: JSON.stringify({
    code: ErrorCode.tryAgainLater,
    msg: 'Cannot remove devices of the attachment: the worker ended before it came to them; run it again',
  } satisfies Pick<CniError, 'code'> & { msg: string }),
  stderr: '',
};

class WorkerProcess {
  readonly #child: Bun.Subprocess<'pipe', 'pipe', 'pipe'> | undefined;
  readonly #spawnError: string = '';
  #answer: ((reply: WorkerReply | undefined) => void) | undefined;
  #stderr = '';
  #ended: ExecOutcome['ended'];
  #over = false;
  #unfinished = false;

  constructor({ path, env }: Invocation) {
    try {
      this.#child = Bun.spawn([path, WORKER_FLAG], {
        env: { ...env },
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

  get usable(): boolean {
    return !this.#over;
  }

  /** Whether a link has put something off that was not done yet. */
  get unfinished(): boolean {
    return this.#unfinished;
  }

  async ask({ deadlineMs, signal }: Invocation, request: WorkerRequest): Promise<ExecOutcome> {
    const started = performance.now();
    const child = this.#child;
    if (child === undefined) return { stdout: '', stderr: '', spawnError: this.#spawnError, durationMs: 0 };
    this.#stderr = '';
    const deadline = setTimeout(() => this.#end('deadline'), Math.max(deadlineMs, 0));
    const interrupt = (): void => this.#end('interrupt');
    signal?.addEventListener('abort', interrupt);
    const reply = await this.#exchange(child, request);
    clearTimeout(deadline);
    signal?.removeEventListener('abort', interrupt);
    const durationMs = performance.now() - started;
    if (reply === undefined) return { ...(await this.#endOf(child)), durationMs };
    const { exitCode, stdout, stderr, unfinished = false } = reply;
    this.#unfinished = unfinished;
    return { exitCode, stdout, stderr: this.#stderr + stderr, durationMs };
  }

  #exchange(
    child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>,
    request: WorkerRequest,
  ): Promise<WorkerReply | undefined> {
    return new Promise(resolve => {
      if (this.#over) return resolve(undefined);
      this.#answer = resolve;
      child.stdin.write(toLine(request));
      child.stdin.flush();
    });
  }

  /** How a worker that gave no answer has ended. */
  async #endOf(child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>): Promise<Omit<ExecOutcome, 'durationMs'>> {
    await child.exited;
    const how =
      child.signalCode === null ? { exitCode: child.exitCode || 1 } : { signal: String(child.signalCode) };
    const ended = this.#ended === undefined ? {} : { ended: this.#ended };
    return { ...how, ...ended, stdout: '', stderr: this.#stderr };
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

  /** Ends the process group: SIGTERM now, SIGKILL a little later. */
  #end(reason: NonNullable<ExecOutcome['ended']>): void {
    const { pid } = this.#child ?? {};
    if (pid === undefined || this.#ended !== undefined) return;
    this.#ended = reason;
    this.#over = true;
    killGroup(pid, 'SIGTERM');
    const kill = setTimeout(() => killGroup(pid, 'SIGKILL'), GRACE_MS);
    // Children that ignored SIGTERM must not outlive the worker.
    void this.#child?.exited.then(() => {
      clearTimeout(kill);
      killGroup(pid, 'SIGKILL');
    });
  }
}

function killGroup(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal);
  } catch {
    // Nobody of the group is left.
  }
}
