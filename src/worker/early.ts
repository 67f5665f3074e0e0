// Will a chain need a worker, before anyone has read its configuration?
import { isOwnExecutable } from '../chain/find-plugin.ts';
import { WorkerProcess } from './process.ts';

/**
 * Starts a worker when our own executable is in one of the directories that links are looked for in: then it most likely
 * serves some of the chain. It starts while this process still loads its modules and reads configurations, which takes
 * as long (4 ms on a second core).
 * @param path of `CNI_PATH`'s kind
 */
export function startEarly(path: string, name: string): WorkerProcess | undefined {
  const own = path.split(':').map(dir => `${dir}/${name}`);
  const found = own.find(isOwnExecutable);
  return found === undefined ? undefined : new WorkerProcess(found, process.env);
}

/** The directories that a command line names, as `CNI_PATH` has them; undefined when none is to be started early. */
export function binDirsOf(args: readonly string[], fallback: string): string | undefined {
  if (args.includes('--separate')) return undefined;
  const dirs = args.flatMap((arg, i) => {
    if (arg === '--bin-dir') return args[i + 1] ?? [];
    return arg.startsWith('--bin-dir=') ? arg.slice('--bin-dir='.length) : [];
  });
  return dirs.length ? dirs.join(':') : fallback;
}
