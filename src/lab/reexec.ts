// How does a program get namespaces of its own, when it has threads already?
//
// unshare(2) refuses a user namespace to a process with more than one thread. So the program is started a second time,
// by unshare(1) of util-linux, which makes the namespaces first.

/** Whose rights stand behind the namespaces. */
export type Rights = 'root' | 'user';

/** How the second run ended. */
export interface Rerun {
  readonly exitCode: number;
  readonly stderr: string;
}

/** What the second run finds in its environment under this name: whose rights it has. */
export const RIGHTS_VARIABLE = 'CATENA_TRY_RIGHTS';

/**
 * Runs this very command line again, in network and mount namespaces of its own: with the rights of root, or where
 * there are none, with those that a user namespace gives anybody. Standard output is shared.
 * @throws Error when neither is allowed here
 */
export function rerunInNamespaces(env: Environment): Rerun {
  const refusals: string[] = [];
  for (const rights of rightsToTry()) {
    const { exitCode, stderr, signalCode } = Bun.spawnSync(argvFor(rights, env), {
      env: { ...env, [RIGHTS_VARIABLE]: rights },
      stdio: ['ignore', 'inherit', 'pipe'],
    });
    const said = stderr.toString();
    if (signalCode) return { exitCode: 1, stderr: `${said}ended by ${signalCode}\n` };
    if (!isRefusal(exitCode, said)) return { exitCode, stderr: said };
    refusals.push(said.trim());
  }
  throw refused(refusals);
}

/**
 * As {@link rerunInNamespaces}, with standard output for the caller alone, who may go on meanwhile.
 * @throws Error when there may be no namespaces here
 */
export async function runInNamespaces(env: Environment): Promise<Rerun & { readonly stdout: string }> {
  const refusals: string[] = [];
  for (const rights of rightsToTry()) {
    const child = Bun.spawn(argvFor(rights, env), {
      env: { ...env, [RIGHTS_VARIABLE]: rights },
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

/** Longer than any chain in a lab takes whose links keep to their own deadlines. */
const DEADLINE_MS = 600_000;

function rightsToTry(): readonly Rights[] {
  return process.getuid?.() === 0 ? ['root', 'user'] : ['user'];
}

function argvFor(rights: Rights, env: Environment): string[] {
  const unshare = Bun.which('unshare', { PATH: `${env.PATH ?? ''}:/usr/bin:/bin` });
  if (unshare === null) {
    throw new Error('Cannot make a fake host: "unshare" of util-linux is not installed');
  }
  const own = rights === 'root' ? [] : ['--user', '--map-root-user'];
  return [unshare, '--net', '--mount', ...own, '--', ...executableLine(), ...process.argv.slice(2)];
}

function isRefusal(exitCode: number, said: string): boolean {
  return exitCode !== 0 && said.startsWith('unshare: ');
}

function refused(refusals: readonly string[]): Error {
  return new Error(
    `Cannot make a fake host: ${refusals.join('; ')}. Run as root, or allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)`,
  );
}

/** The executable, and the script where it is not compiled. */
export function executableLine(): string[] {
  const [, script = ''] = process.argv;
  // Compiled programs carry their script in a file system of their own.
  return [process.execPath, ...(script.startsWith('/$bunfs/') ? [] : [script])];
}
