// How does one command have another one do a part of its work, in a process of its own?
import { GRACE_MS, signalGroup } from '../chain/process-group.ts';
import { executableLine, RIGHTS_VARIABLE } from './reexec.ts';

/** How the command ended, and what it wrote. */
export interface OwnCommand {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Where it runs, and until when. */
export interface OwnCommandOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly signal: AbortSignal;
}

/**
 * Runs a command line of this very executable. When the signal fires, or after ten minutes, it ends with all that it started.
 * @throws Error when it was ended so
 */
export async function runOwnCommand(
  args: readonly string[],
  options: OwnCommandOptions,
): Promise<OwnCommand> {
  const { signal, cwd, env } = options;
  const child = Bun.spawn([...executableLine(), ...args], {
    // What makes namespaces of its own is not to believe that it has them.
    env: { ...env, [RIGHTS_VARIABLE]: undefined },
    cwd,
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
  const onAbort = () => end('the command was ended');
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
