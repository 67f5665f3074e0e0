// How does a caller run links without our starting processes?
import type { ExecOutcome, StartPlugin } from './exec-plugin.ts';

/** One call of a link, everything it gets included. */
export interface ExecCall {
  /** The executable that was found. */
  readonly path: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Standard input. */
  readonly request: string;
  /** Milliseconds it may take. Who runs it elsewhere keeps to that, and to the signal. */
  readonly deadlineMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** How the call went; what is left out is exit code 0 and no output. */
export type ExecReply = Partial<Pick<ExecOutcome, 'exitCode' | 'signal' | 'stdout' | 'stderr' | 'ended'>>;

/** Runs one link; a rejection means that it could not be started. */
export type Exec = (call: ExecCall) => ExecReply | Promise<ExecReply>;

/** Starts links by calling a function once their request is there. */
export function startThrough(exec: Exec): StartPlugin {
  return invocation => ({
    async send(request) {
      const started = performance.now();
      const elapsed = () => performance.now() - started;
      try {
        const reply = await exec({ ...invocation, request });
        const ended = reply.exitCode === undefined && reply.signal === undefined ? { exitCode: 0 } : {};
        return { ...ended, stdout: '', stderr: '', ...reply, durationMs: elapsed() };
      } catch (error) {
        const spawnError = error instanceof Error ? error.message : String(error);
        return { spawnError, stdout: '', stderr: '', durationMs: elapsed() };
      }
    },
    discard() {},
  });
}
