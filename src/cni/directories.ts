// What are our programs called, and where does Catena keep its files by default?

/** Name of the Bun program, which stands beside the fronts (plugins/front) and runs what they do not. */
export const CORE_NAME = 'catena-core';

/** Name of the command: a front, or the Bun program itself if it was built without a compiler. */
export const COMMAND_NAME = 'catena';

/** Appended to the path of the Bun program: the file that makes calls start a daemon if none runs (src/daemon/on-demand.ts). */
export const ON_DEMAND_SUFFIX = '.on-demand';

/** Where runtimes look for plugins by default. */
export const DEFAULT_BIN_DIR = '/opt/cni/bin';

/** Where runtimes look for network configurations by default. */
export const DEFAULT_CONF_DIR = '/etc/cni/net.d';

/**
 * The directory that relative paths are resolved against. Undefined when it no longer has a path (it was deleted or
 * unmounted), or when its path is longer than the kernel reports.
 */
export function workingDirectory(): string | undefined {
  try {
    return process.cwd();
  } catch {
    return undefined;
  }
}

type Environment = Readonly<Record<string, string | undefined>>;

/** The default of {@link runDir}, and the variable that changes it. */
export const RUN_DIR = '/run/catena';
export const RUN_DIR_VARIABLE = 'CATENA_RUN_DIR';

/** Sockets, locks and other state that need not survive a reboot. */
export function runDir(env: Environment = process.env): string {
  return env[RUN_DIR_VARIABLE] || RUN_DIR;
}

/** Below the run directory: the generation notes of attachments, GC's notes while it runs, and the locks of attachments. */
export function notesDirs(dir: string): {
  readonly generations: string;
  readonly gc: string;
  readonly locks: string;
} {
  return { generations: `${dir}/generations`, gc: `${dir}/gc`, locks: `${dir}/locks` };
}

/** State that survives a reboot and belongs to Catena alone. */
export function stateDir(env: Environment = process.env): string {
  return env.CATENA_STATE_DIR || '/var/lib/catena';
}

/** The journals of the delegate runner below the state directory: of pods, and of their delegates. */
export function runnerJournals(dir: string): { readonly pods: string; readonly delegates: string } {
  return { pods: `${dir}/pods`, delegates: `${dir}/delegates` };
}

/**
 * Whose attachments the locks of a journal are about: a delegate may be named like the list that names its runner, and must not wait for
 * its own caller.
 */
export function lockScopeOf(stateDir: string): 'own' | 'pods' | 'delegates' {
  const last = stateDir.replace(/\/+$/, '').split('/').at(-1);
  return last === 'pods' || last === 'delegates' ? last : 'own';
}

/** The directory shared with libcni; the cached results are in `results` below it. */
export function cniCacheDir(env: Environment = process.env): string {
  return env.CATENA_CNI_CACHE_DIR || '/var/lib/cni';
}

/** The one that a caller has given, else the same. */
export function cacheDirOf({
  cacheDir,
  env,
}: {
  readonly cacheDir?: string | undefined;
  readonly env?: Environment | undefined;
}): string {
  return cacheDir || cniCacheDir(env);
}
