// Where does Catena keep files, unless told otherwise?

/** Where runtimes look for plugins, unless told otherwise. */
export const DEFAULT_BIN_DIR = '/opt/cni/bin';

type Environment = Readonly<Record<string, string | undefined>>;

/** Sockets, locks and other state that a reboot may take. */
export function runDir(env: Environment = process.env): string {
  return env.CATENA_RUN_DIR || '/run/catena';
}

/** State that survives a reboot and is ours alone. */
export function stateDir(env: Environment = process.env): string {
  return env.CATENA_STATE_DIR || '/var/lib/catena';
}

/** The journals of the delegate runner below the state directory: of pods, and of the networks that they got. */
export function runnerJournals(dir: string): { readonly pods: string; readonly delegates: string } {
  return { pods: `${dir}/pods`, delegates: `${dir}/delegates` };
}

/** What we share with libcni: the result cache lies in `results` below it. */
export function cniCacheDir(env: Environment = process.env): string {
  return env.CATENA_CNI_CACHE_DIR || '/var/lib/cni';
}
