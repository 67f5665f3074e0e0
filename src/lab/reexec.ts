// How does a program get namespaces of its own when it already has threads?
//
// unshare(2) refuses to create a user namespace for a process with more than one thread. So the program is started a second
// time by unshare(1) of util-linux, which creates the namespaces first.

import { WITHOUT_HELPER_THREADS } from '../sys/helper-threads.ts';

/** The privileges behind the namespaces: root's, or those of a user namespace. */
export type Rights = 'root' | 'user';

/** The outcome of the second run. */
export interface Rerun {
  readonly exitCode: number;
  readonly stderr: string;
}

/** The first descriptor after the standard ones. */
export const TERMINAL_FD = 3;

/** Environment variable that tells the second run its privileges. */
export const RIGHTS_VARIABLE = 'CATENA_TRY_RIGHTS';

/**
 * Runs this command line again in network and mount namespaces of its own: with root's privileges, or without root, with
 * those of an unprivileged user namespace. Standard output is shared.
 * @param terminal descriptor that the second run finds as its descriptor {@link TERMINAL_FD}, to show progress on
 * @throws Error when neither is permitted here
 */
export function rerunInNamespaces(env: Environment, terminal?: number): Rerun {
  const refusals: string[] = [];
  for (const rights of rightsToTry()) {
    const { exitCode, stderr, signalCode } = Bun.spawnSync(argvFor(rights, env), {
      env: { ...env, ...WITHOUT_HELPER_THREADS, [RIGHTS_VARIABLE]: rights },
      stdio: ['ignore', 'inherit', 'pipe', ...(terminal === undefined ? [] : [terminal])],
    });
    const said = stderr.toString();
    if (signalCode) return { exitCode: 1, stderr: `${said}ended by ${signalCode}\n` };
    if (!isRefusal(exitCode, said)) return { exitCode, stderr: said };
    refusals.push(said.trim());
  }
  throw refused(refusals);
}

/**
 * Like {@link rerunInNamespaces}, but captures standard output and runs asynchronously.
 * @throws Error when namespaces are not permitted here
 */
export async function runInNamespaces(env: Environment): Promise<Rerun & { readonly stdout: string }> {
  const refusals: string[] = [];
  for (const rights of rightsToTry()) {
    const child = Bun.spawn(argvFor(rights, env), {
      env: { ...env, ...WITHOUT_HELPER_THREADS, [RIGHTS_VARIABLE]: rights },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: DEADLINE_MS,
      killSignal: 'SIGKILL',
    });
    const [stdout, stderr] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    const exitCode = await child.exited;
    if (child.signalCode) return { exitCode: 1, stdout, stderr: `${stderr}ended by ${child.signalCode}\n` };
    if (!isRefusal(exitCode, stderr)) return { exitCode, stdout, stderr };
    refusals.push(stderr.trim());
  }
  throw refused(refusals);
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Longer than any chain in a lab takes if its plugins meet their own deadlines. */
const DEADLINE_MS = 600_000;

function rightsToTry(): readonly Rights[] {
  return process.getuid?.() === 0 ? ['root', 'user'] : ['user'];
}

function argvFor(rights: Rights, env: Environment): string[] {
  const unshare = Bun.which('unshare', { PATH: `${env.PATH ?? ''}:/usr/bin:/bin` });
  if (unshare === null) {
    throw new Error('Cannot create a fake host: "unshare" of util-linux is not installed');
  }
  const own = rights === 'root' ? [] : ['--user', '--map-root-user'];
  return [unshare, '--net', '--mount', ...own, '--', ...executableLine(), ...process.argv.slice(2)];
}

function isRefusal(exitCode: number, said: string): boolean {
  return exitCode !== 0 && said.startsWith('unshare: ');
}

function refused(refusals: readonly string[]): Error {
  return new Error(
    `Cannot create a fake host: ${refusals.join('; ')}. Run as root, or allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)`,
  );
}

/** The executable, and its script unless it is compiled in. */
export function executableLine(): string[] {
  const [, script = ''] = process.argv;
  // Compiled programs carry their script in a file system of their own.
  return [process.execPath, ...(script.startsWith('/$bunfs/') ? [] : [script])];
}
