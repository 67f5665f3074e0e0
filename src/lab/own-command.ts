// How does a command run another command of ours in a process of its own?
import { GRACE_MS, signalGroup } from '../chain/run/process-group.ts';
import { defined } from '../cni/defined.ts';
import { executableLine, RIGHTS_VARIABLE } from './reexec.ts';

/** The outcome of the command and its output. */
export interface OwnCommand {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Where it runs, and when to stop it. */
export interface OwnCommandOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Undefined when the directory no longer has a path: the command then inherits this process's directory. */
  readonly cwd: string | undefined;
  readonly signal: AbortSignal;
}

/**
 * Runs a command line of this executable. When the signal fires, or after ten minutes, the command and everything it started
 * are terminated.
 * @throws Error when it was terminated in this way
 */
export async function runOwnCommand(
  args: readonly string[],
  options: OwnCommandOptions,
): Promise<OwnCommand> {
  const { signal, cwd, env } = options;
  const child = Bun.spawn([...executableLine(), ...args], {
    // The command creates namespaces of its own, so it must not believe that it already has them.
    env: { ...env, [RIGHTS_VARIABLE]: undefined },
    ...defined({ cwd }),
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  let ended = '';
  let kill: NodeJS.Timeout | undefined;
  const end = (why: string) => {
    ended ||= why;
    signalGroup(child.pid, 'SIGTERM');
    kill ??= setTimeout(() => signalGroup(child.pid, 'SIGKILL'), GRACE_MS);
  };
  const late = setTimeout(() => end(`it took longer than ${DEADLINE_MS / 60_000} minutes`), DEADLINE_MS);
  const onAbort = () => end('the command was killed');
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text()]);
    const exitCode = await child.exited;
    if (ended) throw new Error(`Cannot finish "catena ${args[0]}": ${ended}`);
    return { exitCode, stdout, stderr };
  } finally {
    clearTimeout(late);
    clearTimeout(kill);
    signal.removeEventListener('abort', onAbort);
  }
}

/** Longer than any examination in a lab takes. */
const DEADLINE_MS = 600_000;
