// Will a chain need a worker, before its configuration has been read?
import { isOwnExecutable } from '../chain/config/find-plugin.ts';
import { WorkerProcess } from './process.ts';

/**
 * Starts a worker if our own executable is in one of the plugin directories: then the worker will most likely
 * serve some of the chain. It starts while this process still loads its modules and reads configurations, which takes
 * as long (4 ms on a second core).
 * @param path list of directories, as in `CNI_PATH`
 */
export function startEarly(path: string, name: string): WorkerProcess | undefined {
  const own = path.split(':').map(dir => `${dir}/${name}`);
  const found = own.find(path => isOwnExecutable(path));
  return found === undefined ? undefined : new WorkerProcess(found, process.env);
}

/** The plugin directories of a command line, as in `CNI_PATH`. */
export function binDirsOf(args: readonly string[], fallback: string): string {
  const dirs = args.flatMap((arg, i) => {
    if (arg === '--bin-dir') return args[i + 1] ?? [];
    return arg.startsWith('--bin-dir=') ? arg.slice('--bin-dir='.length) : [];
  });
  return dirs.length ? dirs.join(':') : fallback;
}
