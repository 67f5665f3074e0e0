// How does a program get namespaces of its own when it already has threads, and run another command of ours?
//
// unshare(2) refuses to create a user namespace for a process with more than one thread. So the program is started a second
// time by unshare(1) of util-linux, which creates the namespaces first.

import { constants } from 'node:os';
import { attempt } from '../cni/errors.ts';
import { defined, isObject, tryParse } from '../cni/json.ts';
import {
  childrenOf,
  environmentOf,
  processIds,
  processOf,
  readProcessStat,
  signalGroup,
} from '../files/process-stat.ts';
import { WITHOUT_HELPER_THREADS } from '../sys/helper-threads.ts';
import { GRACE_MS } from '../wait.ts';

/** The privileges behind the namespaces: root's, or those of a user namespace. */
export type Rights = 'root' | 'user';

/** The first descriptor after the standard ones. */
export const TERMINAL_FD = 3;

/** Environment variable that tells the second run its privileges. */
export const RIGHTS_VARIABLE = 'CATENA_TRY_RIGHTS';

/** Variables that would lead plugins out of the lab, or tell them of another call. */
const NOT_FOR_PLUGINS = /^(CNI_.*|CATENA_((RUN|STATE|CNI_CACHE)_DIR|TRY_RIGHTS|COMPARE_TWIN))$/;

/** Marks a plugin, and whatever it starts, with the lab in which it runs. */
const LAB_VARIABLE = 'CATENA_LAB';

export function envOfPlugins(env: OwnCommandOptions['env']): OwnCommandOptions['env'] {
  const kept = Object.entries(env).filter(([name]) => !NOT_FOR_PLUGINS.test(name));
  return { ...Object.fromEntries(kept), [LAB_VARIABLE]: processOf() };
}

function processesOfLab(): number[] {
  const mark = `${LAB_VARIABLE}=${processOf()}`;
  return processIds().filter(pid => environmentOf(pid).includes(mark));
}

/** Those that plugins have left behind: what is called at present, and a worker, are children of this process. */
export function strayProcesses(): number[] {
  return processesOfLab().filter(pid => readProcessStat(pid)?.parent !== process.pid);
}

/**
 * Runs this command line again in network and mount namespaces of its own: with root's privileges, or without root, with
 * those of an unprivileged user namespace.
 * @param captured whether its standard output is returned; else it is that of this process
 * @param terminal descriptor that the second run finds as its descriptor {@link TERMINAL_FD}, to show progress on
 * @throws Error when neither is permitted here
 */
export async function rerunInNamespaces(
  env: OwnCommandOptions['env'],
  {
    captured = false,
    terminal,
  }: { readonly captured?: boolean; readonly terminal?: number | undefined } = {},
) {
  const refusals: string[] = [];
  for (const rights of process.getuid?.() === 0 ? (['root', 'user'] as const) : (['user'] as const)) {
    const child = Bun.spawn(argvFor(rights, env), {
      env: { ...env, ...WITHOUT_HELPER_THREADS, [RIGHTS_VARIABLE]: rights },
      stdio: [
        'ignore',
        captured ? 'pipe' : 'inherit',
        'pipe',
        ...(terminal === undefined ? [] : [terminal]),
      ] as ['ignore', 'pipe', 'pipe'],
      // What a terminal shows, its user ends.
      ...(captured ? { timeout: DEADLINE_MS, killSignal: 'SIGKILL' } : {}),
    });
    // A signal may be for this process alone.
    const pass = (signal: NodeJS.Signals) => child.kill(signal);
    for (const signal of ENDING) process.on(signal, pass);
    const [stdout, stderr] = await Promise.all([captured ? child.stdout.text() : '', child.stderr.text()]);
    const exitCode = await child.exited;
    for (const signal of ENDING) process.off(signal, pass);
    if (child.signalCode) return { exitCode: 1, stdout, stderr: `${stderr}ended by ${child.signalCode}\n` };
    if (exitCode === 0 || !stderr.startsWith('unshare: ')) return { exitCode, stdout, stderr };
    refusals.push(stderr.trim());
  }
  throw new Error(
    `Cannot create a fake host: ${refusals.join('; ')}. Run as root, or allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)`,
  );
}

/** Longer than any chain or examination in a lab takes if its plugins meet their own deadlines. */
const DEADLINE_MS = 600_000;

function argvFor(rights: Rights, env: OwnCommandOptions['env']): string[] {
  const unshare = Bun.which('unshare', { PATH: `${env.PATH ?? ''}:/usr/bin:/bin` });
  if (unshare === null) {
    throw new Error('Cannot create a fake host: "unshare" of util-linux is not installed');
  }
  const own = rights === 'root' ? [] : ['--user', '--map-root-user'];
  return [unshare, '--net', '--mount', ...own, '--', ...executableLine(), ...process.argv.slice(2)];
}

/** The executable, and its script unless it is compiled in. */
function executableLine(): string[] {
  const [, script = ''] = process.argv;
  // Compiled programs carry their script in a file system of their own.
  return [process.execPath, ...(script.startsWith('/$bunfs/') ? [] : [script])];
}

const ENDING = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/**
 * Has this second run, however it ends, end the plugins that it has started and what they have left behind: a signal does not reach them, and
 * one that hangs would keep the namespaces for ever.
 */
export function endWithPlugins(): void {
  process.on('exit', () => {
    for (const plugin of childrenOf(process.pid)) signalGroup(plugin, 'SIGKILL');
    for (const pid of processesOfLab()) attempt(() => process.kill(pid, 'SIGKILL'));
  });
  for (const signal of ENDING) process.once(signal, () => process.exit(128 + constants.signals[signal]));
}

interface OwnCommandOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Undefined when the directory no longer has a path: the command then inherits this process's directory. */
  readonly cwd: string | undefined;
  readonly signal: AbortSignal;
}

/** What a command says of its failure; with `--json` that is an error object. */
function problemIn(stderr: string): string {
  const said = tryParse(stderr);
  return isObject(said) && typeof said.msg === 'string' ? said.msg : stderr.trim();
}

/**
 * Runs a command line of this executable. When the signal fires, or after ten minutes, the command and everything it started
 * are terminated.
 * @throws Error when it was terminated in this way
 */
export async function runOwnCommand(args: readonly string[], options: OwnCommandOptions) {
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
    return { exitCode, stdout, problem: problemIn(stderr) || `exit code ${exitCode}` };
  } finally {
    clearTimeout(late);
    clearTimeout(kill);
    signal.removeEventListener('abort', onAbort);
  }
}
