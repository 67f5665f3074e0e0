// How does a caller run plugins without Catena starting processes?
import type { ExecOutcome } from './exec-plugin.ts';
import type { PluginCall, Segment, SegmentRunner } from './segment.ts';

/** One call of a plugin, with all its inputs. */
export interface ExecCall {
  /** The executable that was found. */
  readonly path: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Standard input. */
  readonly request: string;
  /** Milliseconds it may take. A caller that runs it elsewhere must honour this and the signal. */
  readonly deadlineMs: number;
  readonly signal?: AbortSignal | undefined;
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
      segment.onBegin?.(0);
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
