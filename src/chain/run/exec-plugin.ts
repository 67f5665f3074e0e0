// How does one plugin process start, get its request, and end, and how much of its output is kept?
//
// The command, the library, under Node as well, and a plugin that calls one of others: execa starts each plugin. It takes 5 ms to
// load, so segment.ts waits until there is such a plugin.
import { ChildProcess } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { execa, type ResultPromise } from 'execa';
import { workingDirectory } from '../../cni/directories.ts';
import { attempt, succeeds } from '../../cni/errors.ts';
import { MAX_STDERR_BYTES, type Outcome } from '../../cni/invocation.ts';
import { defined } from '../../cni/json.ts';
import { endGroup, signalGroup } from '../../files/process-stat.ts';
import { openPipes } from '../../sys/pipes.ts';
import { pause, startTimer } from '../../wait.ts';

export interface Invocation {
  readonly path: string;
  /** The complete environment. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Time from {@link PluginProcess.send} until the process group is ended. */
  readonly deadlineMs: number;
  /** Ends the process group when it fires. */
  readonly signal?: AbortSignal | undefined;
}

/** One exchange of a plugin with the kernel. */
export interface KernelTransaction {
  /** `rtnetlink`, `netfilter`; `iptables` for its programs. */
  readonly family: string;
  /** What was requested, human-readable. */
  readonly what: string;
  /** Milliseconds after the call's start. */
  readonly startMs: number;
  readonly durationMs: number;
  /** Why the kernel refused: `ENODEV`. The plugin may have expected it. */
  readonly error?: string;
}

/** How an invocation went. One of `exitCode`, `signal` and `spawnError` is set. */
export interface ExecOutcome extends Outcome {
  readonly durationMs: number;
  /** The process did not start: the kernel's reason, for example `EACCES: permission denied`. */
  readonly spawnError?: string;
  /** Why we ended the process. */
  readonly ended?: 'deadline' | 'output' | 'interrupt';
  /** The process that serves plugins failed, not the plugin: a retry may succeed. */
  readonly again?: boolean;
  /** The next plugin of the segment has begun. */
  readonly more?: boolean;
  /** What the plugin did in the kernel, if that was asked for and is known. */
  readonly transactions?: readonly KernelTransaction[];
}

/** A started plugin that has not been sent a request yet. */
export interface PluginProcess {
  /** Sends the request and waits for the process to end; never rejects. Call it once. */
  send(request: string): Promise<ExecOutcome>;
  /** Kills the process, which has read nothing. */
  discard(): void;
}

/** Starts a plugin. Tests and other ways of running a plugin replace it. */
export type StartPlugin = (invocation: Invocation) => PluginProcess;

/**
 * Starts an executable as leader of its own process group, so that its children can be ended with it. More than 16 MiB of
 * standard output ends the plugin. Of standard error, the last 1 MiB is kept.
 */
export function startProcess({ path, env, deadlineMs, signal }: Invocation): PluginProcess {
  const early = trySpawn(path, env);
  return {
    send(request) {
      let next: Child | Error | undefined = early;
      return retryWhileBusy(async leftMs => {
        const child = next ?? trySpawn(path, env);
        next = undefined;
        if (child instanceof Error) return { stdout: '', stderr: '', spawnError: child.message };
        return converse(path, child, request, leftMs, signal);
      }, deadlineMs);
    },
    discard() {
      if (early instanceof Error) return;
      signalGroup(early.running.pid, 'SIGKILL');
      early.close();
    },
  };
}

type Running = ResultPromise<typeof EXECA_OPTIONS & Streams & { cwd: string }>;

type Streams = Record<'stdin' | 'stdout' | 'stderr', 'pipe'>;

const EXECA_OPTIONS = {
  detached: true,
  // A runtime that exits must not kill half a chain.
  cleanup: false,
  extendEnv: false,
  reject: false,
  buffer: false,
} as const;

type Child = ReturnType<typeof spawn>;

function trySpawn(path: string, env: Invocation['env']): Child | Error {
  try {
    return spawn(path, env);
  } catch (thrown) {
    return thrown as Error;
  }
}

/** Starts a process whose output is read from the start: Node discards unread output when a process ends. */
function spawn(path: string, env: Invocation['env']) {
  letExecaReportSpawnErrors();
  const options = { ...EXECA_OPTIONS, cwd: directoryToInherit(), env: env as Record<string, string> };
  const pipes = openPipes();
  const [stdin, stdout, stderr] = pipes?.theirs ?? (['pipe', 'pipe', 'pipe'] as const);
  // It takes descriptors, too, which its types do not say.
  const streams = { stdin, stdout, stderr } as Streams;
  const begin = () => execa(path, [], { ...options, ...streams }) as Running;
  const running = pipes?.start(begin) ?? begin();
  // A plugin need not read its request, so a broken pipe is not an error.
  if (!pipes) running.stdin.on('error', () => {});
  const ours = pipes ?? running;
  let ended: ExecOutcome['ended'];
  let giveUp = (): void => {};
  const stuck = new Promise<void>(resolve => {
    giveUp = resolve;
  });
  const end = (reason: NonNullable<ExecOutcome['ended']>): void => {
    if (ended !== undefined) return;
    ended = reason;
    running.once('exit', endGroup(running.pid, giveUp));
  };
  return {
    running,
    /** Resolves if it was killed and has not ended. */
    stuck,
    stdin: ours.stdin,
    stdout: new Output(ours.stdout, MAX_STDOUT_BYTES, () => end('output')),
    stderr: new Output(ours.stderr, MAX_STDERR_BYTES),
    close() {
      for (const stream of [ours.stdin, ours.stdout, ours.stderr]) stream.destroy();
    },
    get ended(): ExecOutcome['ended'] {
      return ended;
    },
    end,
  };
}

/**
 * A name of the working directory that the child can enter. execa always passes a directory by name, and fails as if the
 * executable were missing if that name no longer names a usable directory: it was deleted, or mounted over as in the lab.
 */
function directoryToInherit(): string {
  const names = ['/proc/self/cwd', workingDirectory()];
  return names.find(name => name !== undefined && succeeds(() => accessSync(name, constants.X_OK))) ?? '/';
}

async function converse(
  path: string,
  child: Child,
  request: string,
  deadlineMs: number,
  abort: AbortSignal | undefined,
): Promise<Omit<ExecOutcome, 'durationMs'>> {
  const { running, stdin, stdout, stderr } = child;
  if (running.pid === undefined) {
    child.close();
    return { stdout: '', stderr: '', spawnError: await spawnErrorOf(running, path) };
  }
  const deadline = startTimer(() => child.end('deadline'), deadlineMs);
  const interrupt = () => child.end('interrupt');
  abort?.addEventListener('abort', interrupt);
  // It may have been interrupted while execa was loaded.
  if (abort?.aborted) interrupt();
  stdin.end(request);

  const [exitCode, signal] = await Promise.race([exitOf(running), child.stuck.then(() => NOT_ENDED)]);
  clearTimeout(deadline);
  abort?.removeEventListener('abort', interrupt);
  const { ended } = child;
  // Kill children that ignored SIGTERM: they must not outlive the plugin.
  if (ended !== undefined) signalGroup(running.pid, 'SIGKILL');
  await drain([stdout, stderr]);
  child.close();
  return {
    ...(exitCode === null ? {} : { exitCode }),
    ...(signal === null ? {} : { signal }),
    ...defined({ ended }),
    stdout: stdout.text(),
    stderr: stderr.text(),
  };
}

type Exit = readonly [exitCode: number | null, signal: NodeJS.Signals | null];

const NOT_ENDED: Exit = [null, null];

function exitOf(running: Running): Promise<Exit> {
  return new Promise(resolve => {
    if (running.exitCode !== null || running.signalCode !== null) {
      return resolve([running.exitCode, running.signalCode]);
    }
    running.once('exit', (exitCode, signal) => resolve([exitCode, signal]));
  });
}

async function spawnErrorOf(running: Running, path: string): Promise<string> {
  const result = await running;
  const code = result.code ?? '';
  const why = whyNotStarted(code, path);
  if (why !== undefined) return `${code}: ${why}`;
  const cause = result.cause instanceof Error ? result.cause.message : String(result.shortMessage);
  return cause.startsWith(code) ? cause : `${code}: ${cause}`;
}

/** What the system's words leave open: those of ENOENT deny a file that is there. Undefined if they say it. */
function whyNotStarted(code: string, path: string): string | undefined {
  if (code === 'ENOEXEC')
    return 'it is a program for another kind of processor, or a script that does not begin with "#!"';
  const mode = attempt(() => statSync(path).mode);
  if (mode === undefined) return undefined;
  if (code === 'ENOENT')
    return 'it is there, but not the interpreter that its first line names, or the loader that it was linked for';
  if (code === 'EACCES' && mode & 0o111)
    return 'its file system is mounted with "noexec", or a security module refuses';
  return undefined;
}

/**
 * When spawn() throws, execa assigns placeholder streams to the failed process. On Bun those members are getters
 * without a setter, and the TypeError of the assignment would hide the kernel's reason.
 */
function letExecaReportSpawnErrors(): void {
  for (const name of ['stdin', 'stdout', 'stderr', 'stdio']) {
    const member = Object.getOwnPropertyDescriptor(ChildProcess.prototype, name);
    if (member?.get === undefined || member.set !== undefined) continue;
    Object.defineProperty(ChildProcess.prototype, name, {
      ...member,
      set(value) {
        Object.defineProperty(this, name, { value, writable: true, configurable: true });
      },
    });
  }
}

/** A file just written may still be open for writing, in a process forked at the same time: execve(2) fails with ETXTBSY. */
const RETRY_MS = [10, 50, 100, 250, 500, 1000, 1000];

/**
 * Runs an executable, again while it is busy.
 * @param attempt runs it once, within what is left of the deadline
 * @returns the last outcome, with the time since the first attempt
 */
export async function retryWhileBusy<T extends { readonly spawnError?: string }>(
  attempt: (leftMs: number) => Promise<T>,
  deadlineMs: number,
): Promise<T & { readonly durationMs: number }> {
  const started = performance.now();
  const elapsed = () => performance.now() - started;
  for (const waitMs of RETRY_MS) {
    const outcome = await attempt(deadlineMs - elapsed());
    const isBusy = outcome.spawnError?.startsWith('ETXTBSY') ?? false;
    if (!isBusy || elapsed() + waitMs > deadlineMs) return { ...outcome, durationMs: elapsed() };
    await pause(waitMs);
  }
  return { ...(await attempt(deadlineMs - elapsed())), durationMs: elapsed() };
}

/** Bytes of standard output; more ends the plugin. */
const MAX_STDOUT_BYTES = 16 * 1024 * 1024;
/** After the process has ended, a grandchild may hold its pipes open: stop waiting after this much silence ... */
const QUIET_MS = 250;
/** ... and after this time in any case, even if the grandchild still prints. */
const DRAIN_MS = 1_000;

/** One stream of a process while it is read: keeps its head and reports an overflow; without an overflow handler, keeps its tail. */
class Output {
  readonly closed: Promise<void>;
  readonly #limit: number;
  readonly #onOverflow: (() => void) | undefined;
  #chunks: Uint8Array[] = [];
  #size = 0;
  #received = 0;

  constructor(stream: NodeJS.ReadableStream, limit: number, onOverflow?: () => void) {
    this.#limit = limit;
    this.#onOverflow = onOverflow;
    stream.on('data', (chunk: Buffer) => this.#push(chunk));
    this.closed = new Promise(resolve => {
      for (const end of ['end', 'close', 'error']) stream.on(end, () => resolve());
    });
  }

  get received(): number {
    return this.#received;
  }

  #push(chunk: Uint8Array): void {
    const limit = this.#limit;
    this.#received += chunk.length;
    if (this.#size > limit && this.#onOverflow) return;
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    if (this.#size > limit && this.#onOverflow) this.#onOverflow();
    else if (this.#size > 2 * limit) {
      this.#chunks = [Buffer.concat(this.#chunks).subarray(-limit)];
      this.#size = limit;
    }
  }

  text(): string {
    const all = Buffer.concat(this.#chunks);
    return (this.#onOverflow ? all.subarray(0, this.#limit) : all.subarray(-this.#limit)).toString();
  }
}

/** Waits until all streams of an ended process are closed, but not for a grandchild that holds them open silently. */
async function drain(outputs: readonly Output[]): Promise<void> {
  let open = true;
  const closed = Promise.all(outputs.map(output => output.closed)).then(() => {
    open = false;
  });
  // Usually they are already closed, and the event loop only has to report it.
  await turnOfEvents();
  const until = performance.now() + DRAIN_MS;
  for (let before = -1; open && performance.now() < until; ) {
    const received = outputs.reduce((sum, output) => sum + output.received, 0);
    if (received === before) break;
    before = received;
    await quietOr(closed);
    // If this process was busy, the timer fires before the pipes have been read.
    if (open) await turnOfEvents();
  }
}

function turnOfEvents(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve));
}

/** A race with a timer. node:timers/promises would be one more module to load for every chain. */
async function quietOr(closed: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const quiet = new Promise<void>(resolve => {
    timer = setTimeout(resolve, QUIET_MS);
  });
  await Promise.race([closed, quiet]);
  clearTimeout(timer);
}
