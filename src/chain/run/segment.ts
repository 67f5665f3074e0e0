// In which units does a runner pass plugins to the host that runs them?
//
// A segment is a maximal run of consecutive plugins with one host: our own plugins in one worker, or one foreign executable.
// A runner sends one request per segment and reads a stream of outcomes, one per plugin.
import type { Invocation } from '../../cni/invocation.ts';
import { type FoundPlugin, type isOwnExecutable, ownExecutables } from '../config/find-plugin.ts';
import type { ExecOutcome, PluginProcess, StartPlugin } from './exec-plugin.ts';

export interface PluginCall extends Invocation {
  /** The executable that was found. */
  readonly path: string;
}

/** A request to a {@link SegmentRunner}. */
export interface Segment {
  /** At least one. */
  readonly calls: readonly PluginCall[];
  /** Each call after the first gets the result of the one before as `prevResult` (ADD). */
  readonly threadsResult: boolean;
  /** No call follows a failed one (every verb except DEL and GC). */
  readonly stopsAtFailure: boolean;
  /** Milliseconds that each plugin may take. */
  readonly deadlineMs: number;
  /** When it fires, the running plugin is ended and no other is called. */
  readonly signal?: AbortSignal | undefined;
  /** Outcomes include what plugins did in the kernel, if the runner can tell. */
  readonly tracesKernel?: boolean | undefined;
}

/** Runs segments by processes, by workers, or by a function of the caller. */
export interface SegmentRunner {
  /** Whether neighbours for which both this is true may be in one segment. */
  joins(path: string, stat?: FoundPlugin['stat']): boolean;
  /**
   * Yields one outcome for each call, in order, and at least one. It ends early if a call failed in a segment that stops
   * at failures, or if the host of the segment died; the remaining calls were not begun. A caller that leaves the iteration
   * early waits until none of the segment's plugins is running.
   */
  run(segment: Segment): AsyncIterable<ExecOutcome>;
  /**
   * Does what the plugins run so far have deferred to the end of the chain (devices that are deleted together).
   * Undefined if there was nothing; else it counts like a plugin's outcome.
   */
  finish?(): Promise<Omit<ExecOutcome, 'durationMs'> | undefined>;
}

/** Adds the previous plugin's result to a request. Both are JSON objects as text; the request is not empty. */
export function withPrevResult(request: string, result: string): string {
  return `${request.slice(0, -1)},"prevResult":${result}}`;
}

/**
 * Starts an executable as a separate process: {@link startProcess} of exec-plugin.ts, behind an `import()`. Loading
 * execa takes as long as a plugin does (5 ms), and a chain that is served by a worker does not need it.
 */
export const startPlugin: StartPlugin = invocation => {
  const starting = import('./exec-plugin.ts').then(({ startProcess }) => startProcess(invocation));
  return {
    send: async request => (await starting).send(request),
    discard: () => void starting.then(process => process.discard()),
  } satisfies PluginProcess;
};

/**
 * Runs each plugin as a process. Our own next plugin starts while the one before it works. A foreign executable starts only in
 * its turn, because it might act before it has read its request. Starting one process ahead takes a fifth off a chain of five
 * on two cores (42 to 34 ms); starting two or all of them ahead gains nothing more.
 * @param isOwn whether an executable does nothing before it has read its request
 */
export function processSegments(
  start: StartPlugin,
  isOwn: typeof isOwnExecutable = ownExecutables(),
): SegmentRunner {
  return { joins: isOwn, run: segment => runProcesses(start, segment) };
}

async function* runProcesses(start: StartPlugin, segment: Segment): AsyncGenerator<ExecOutcome> {
  const { calls, threadsResult, stopsAtFailure, deadlineMs, signal } = segment;
  const launch = ({ path, env }: PluginCall): PluginProcess => start({ path, env, deadlineMs, signal });
  let ahead: PluginProcess | undefined;
  let result: string | undefined;
  try {
    for (const [position, call] of calls.entries()) {
      const process = ahead ?? launch(call);
      ahead = undefined;
      const sent = process.send(result === undefined ? call.stdin : withPrevResult(call.stdin, result));
      const next = calls[position + 1];
      // Not in this turn of the event loop: starting a process takes milliseconds, and the request is still in our buffer.
      const starting =
        next &&
        setImmediate(() => {
          ahead = launch(next);
        });
      const outcome = await sent;
      if (starting) clearImmediate(starting);
      yield outcome;
      if (outcome.exitCode !== 0 && stopsAtFailure) return;
      if (threadsResult) result = outcome.stdout;
    }
  } finally {
    // Safe: it has read nothing.
    ahead?.discard();
  }
}

/** One call of a plugin, with all its inputs. A caller that runs it elsewhere must honour its deadline, in milliseconds, and the signal. */
export interface ExecCall extends Pick<PluginCall, 'path' | 'env'>, Pick<Segment, 'deadlineMs' | 'signal'> {
  /** Standard input. */
  readonly request: string;
}

/** How the call went; the default is exit code 0 and no output. */
export type ExecReply = Partial<Pick<ExecOutcome, 'exitCode' | 'signal' | 'stdout' | 'stderr' | 'ended'>>;

/** Runs one plugin; a rejection means that it could not be started. */
export type Exec = (call: ExecCall) => ExecReply | Promise<ExecReply>;

/** Runs each plugin by a function, as its own segment. */
export function execSegments(exec: Exec): SegmentRunner {
  return {
    joins: () => false,
    async *run(segment) {
      yield callOnce(exec, segment.calls[0] as PluginCall, segment);
    },
  };
}

async function callOnce(
  exec: Exec,
  { path, env, stdin }: PluginCall,
  { deadlineMs, signal }: Segment,
): Promise<ExecOutcome> {
  const started = performance.now();
  const elapsed = () => performance.now() - started;
  try {
    const reply = await exec({ path, env, request: stdin, deadlineMs, signal });
    const ended = reply.exitCode === undefined && reply.signal === undefined ? { exitCode: 0 } : {};
    return { ...ended, stdout: '', stderr: '', ...reply, durationMs: elapsed() };
  } catch (error) {
    const spawnError = error instanceof Error ? error.message : String(error);
    return { spawnError, stdout: '', stderr: '', durationMs: elapsed() };
  }
}
