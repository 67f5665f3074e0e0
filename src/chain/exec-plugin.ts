// How does one plugin process start, get its request, and end?
//
// This is the command's and the library's way, under Node as well: execa starts each link. An executable that a runtime
// starts anew for every verb has no time to load it (5 ms, as long as two links of the reference take): its way is
// plugin/foreign.ts. Both share what is read, waited for and ended, and one suite of tests.
import { ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { execa, type ResultPromise } from 'execa';
import type { Outcome } from '../cni/reply.ts';
import { GRACE_MS, signalGroup } from './process-group.ts';
import { drain, MAX_STDERR_BYTES, MAX_STDOUT_BYTES, type Output, OutputBuffer } from './process-output.ts';

/** What to start. */
export interface Invocation {
  readonly path: string;
  /** The complete environment. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Time from {@link PluginProcess.send} until the process group is ended. */
  readonly deadlineMs: number;
  /** Ends the process group when it fires. */
  readonly signal?: AbortSignal | undefined;
  /** Have the outcome say what the plugin did in the kernel, where whoever runs it can tell. */
  readonly noted?: boolean | undefined;
}

/** One exchange of a link with the kernel. */
export interface KernelTransaction {
  /** `rtnetlink`, `netfilter`; `iptables` for its programs. */
  readonly family: string;
  /** What was asked, in words. */
  readonly what: string;
  /** Milliseconds after the call's start. */
  readonly startMs: number;
  readonly durationMs: number;
  /** Why the kernel refused, which the link may well have counted on: `ENODEV`. */
  readonly error?: string;
}

/** How an invocation went. One of `exitCode`, `signal` and `spawnError` is set. */
export interface ExecOutcome extends Outcome {
  readonly durationMs: number;
  /** The process did not start: the kernel's reason, for example `EACCES: permission denied`. */
  readonly spawnError?: string;
  /** We ended the process, and why. */
  readonly ended?: 'deadline' | 'output' | 'interrupt';
  /** What failed is a process that serves links, not the link: the call may well succeed when it is made again. */
  readonly again?: boolean;
  /** The link was not called, because the one before it failed. */
  readonly skipped?: boolean;
  /** What it did in the kernel, when that was asked for and is known. */
  readonly transactions?: readonly KernelTransaction[];
}

/** A started plugin that has not been asked anything yet. */
export interface PluginProcess {
  /** Names the call to the one that follows it, where requests are served in order. */
  readonly id?: number;
  /**
   * Hands over the request and waits for the process to end; never rejects. Call it once.
   * @param follows the call whose result becomes `prevResult`; where that fails, this one is not made. Only for what serves
   *   requests in order
   */
  send(request: string, follows?: number): Promise<ExecOutcome>;
  /** Ends the process, which has read nothing. */
  discard(): void;
}

/** Starts a plugin: the seam at which tests and other ways of running a link come in. */
export type StartPlugin = (invocation: Invocation) => PluginProcess;

/** A file just written may be open for writing in a process forked meanwhile, for a moment. */
const BUSY_RETRY_MS = [10, 50, 100, 250, 500, 1000, 1000];

/**
 * Starts an executable as leader of a process group of its own, so that whatever it starts can be ended with it.
 * Standard output holds at most 16 MiB, more ends the plugin; of standard error the last 1 MiB is kept.
 */
export function startProcess({ path, env, deadlineMs, signal }: Invocation): PluginProcess {
  let child = spawn(path, env);
  return {
    async send(request) {
      const started = performance.now();
      const elapsed = () => performance.now() - started;
      for (const pause of [...BUSY_RETRY_MS, undefined]) {
        const outcome = await converse(child, request, deadlineMs - elapsed(), signal);
        const busy = outcome.spawnError?.startsWith('ETXTBSY') ?? false;
        if (!busy || pause === undefined || elapsed() + pause > deadlineMs) {
          return { ...outcome, durationMs: elapsed() };
        }
        await sleep(pause);
        child = spawn(path, env);
      }
      throw new Error('unreachable');
    },
    discard: () => signalGroup(child.running.pid, 'SIGKILL'),
  };
}

type Running = ResultPromise<typeof EXECA_OPTIONS>;

const EXECA_OPTIONS = {
  detached: true,
  // A runtime that goes away must not take half a chain with it.
  cleanup: false,
  extendEnv: false,
  reject: false,
  buffer: false,
  stdin: 'pipe',
  stdout: 'pipe',
  stderr: 'pipe',
} as const;

/** A process whose output is read from the start: what nobody listens to when a process ends is thrown away. */
interface Child {
  readonly running: Running;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly ended: ExecOutcome['ended'];
  /** Ends the process group: SIGTERM now, SIGKILL a little later. */
  end(reason: NonNullable<ExecOutcome['ended']>): void;
}

function spawn(path: string, env: Invocation['env']): Child {
  letExecaReportSpawnErrors();
  const running = execa(path, [], { ...EXECA_OPTIONS, env: env as Record<string, string> }) as Running;
  // A plugin need not read its request: a broken pipe is no error.
  running.stdin.on('error', () => {});
  let ended: ExecOutcome['ended'];
  const end: Child['end'] = reason => {
    if (ended !== undefined) return;
    ended = reason;
    signalGroup(running.pid, 'SIGTERM');
    const kill = setTimeout(() => signalGroup(running.pid, 'SIGKILL'), GRACE_MS);
    running.once('exit', () => clearTimeout(kill));
  };
  return {
    running,
    stdout: collect(running.stdout, MAX_STDOUT_BYTES, () => end('output')),
    stderr: collect(running.stderr, MAX_STDERR_BYTES),
    get ended() {
      return ended;
    },
    end,
  };
}

async function converse(
  child: Child,
  request: string,
  deadlineMs: number,
  abort: AbortSignal | undefined,
): Promise<Omit<ExecOutcome, 'durationMs'>> {
  const { running, stdout, stderr } = child;
  if (running.pid === undefined) return { stdout: '', stderr: '', spawnError: await spawnErrorOf(running) };
  const deadline = setTimeout(() => child.end('deadline'), Math.max(deadlineMs, 0));
  const interrupt = () => child.end('interrupt');
  abort?.addEventListener('abort', interrupt);
  running.stdin.end(request);

  const [exitCode, signal] = await exitOf(running);
  clearTimeout(deadline);
  abort?.removeEventListener('abort', interrupt);
  const { ended } = child;
  // Children that ignored SIGTERM must not outlive the plugin we ended.
  if (ended !== undefined) signalGroup(running.pid, 'SIGKILL');
  await drain([stdout, stderr]);
  for (const stream of [running.stdin, running.stdout, running.stderr]) stream.destroy();
  return {
    ...(exitCode === null ? {} : { exitCode }),
    ...(signal === null ? {} : { signal }),
    ...(ended === undefined ? {} : { ended }),
    stdout: stdout.text(),
    stderr: stderr.text(),
  };
}

function collect(stream: NodeJS.ReadableStream, limit: number, onOverflow?: () => void): Output {
  const buffer = new OutputBuffer(limit, onOverflow);
  stream.on('data', (chunk: Buffer) => buffer.push(chunk));
  const closed = new Promise<void>(resolve => {
    stream.on('end', resolve);
    stream.on('close', resolve);
    stream.on('error', () => resolve());
  });
  return {
    closed,
    get received() {
      return buffer.received;
    },
    text: () => buffer.text(),
  };
}

function exitOf(running: Running): Promise<[exitCode: number | null, signal: NodeJS.Signals | null]> {
  return new Promise(resolve => {
    if (running.exitCode !== null || running.signalCode !== null) {
      return resolve([running.exitCode, running.signalCode]);
    }
    running.once('exit', (exitCode, signal) => resolve([exitCode, signal]));
  });
}

async function spawnErrorOf(running: Running): Promise<string> {
  const result = await running;
  const cause = result.cause instanceof Error ? result.cause.message : String(result.shortMessage);
  const code = result.code ?? '';
  return cause.startsWith(code) ? cause : `${code}: ${cause}`;
}

/**
 * When spawn() throws, execa hangs placeholder streams on the failed process. On Bun those members are getters
 * without setter, and the TypeError of the assignment would hide the kernel's reason.
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
