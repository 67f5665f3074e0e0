// Which list does an argument mean that may be a file or the name of a network?
import { existsSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { Conflist } from '../chain/config/conflist.ts';
import { loadFile, loadNetwork } from '../chain/config/load.ts';
import { parseCniArgs } from '../cni/env.ts';
import { absolutePath } from '../files/read-file.ts';
import type { CommandCall } from './command.ts';
import { confDirOf } from './target.ts';

export interface NamedList {
  readonly list: Conflist;
  readonly dir: string;
  /** Undefined if it was found by the network's name. */
  readonly file?: string;
}

/**
 * A file if there is one of that name, else a network of the configuration directory. What looks like a path is never the name of a
 * network.
 * @throws CniError 7 for a network that is not configured, with the name that may have been meant; else as loadFile()
 */
export function findList(call: CommandCall, given: string): NamedList {
  const path = absolutePath(given, call.cwd);
  if (existsSync(path) || given.includes('/') || /\.(conflist|conf|json)$/.test(given))
    return { list: loadFile(path), dir: dirname(path), file: basename(path) };
  const dir = confDirOf(call);
  return { list: loadNetwork(dir, given), dir };
}

/** What a command runs in namespaces of its own: a list, by which executables, for which interface. */
export function chainOf(call: CommandCall) {
  const [given = ''] = call.positionals;
  const dirs = call.texts('bin-dir');
  return {
    list: findList(call, given).list,
    pluginDirs: (dirs.length ? dirs : [dirname(process.execPath)]).map(dir => absolutePath(dir)),
    ifname: call.text('ifname') || 'eth0',
    args: parseCniArgs(call.text('args') ?? ''),
  };
}
