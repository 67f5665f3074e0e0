// Where do checks get their facts on a real node?
import { accessSync, constants, statfsSync } from 'node:fs';
import { namesIn, tryRead } from '../../files/read-file.ts';
import { findUse } from '../../ipam/holders.ts';
import { isForwarding } from '../../netlink/tables.ts';
import { readHost, readHostRoutes } from '../devices.ts';
import { findTraced } from '../garbage/find-traced.ts';
import { viewBetween } from './between-view.ts';
import { currentUser, type NodeView } from './finding.ts';

/** What the caller chooses. */
export type Places = Pick<
  NodeView,
  | 'facts'
  | 'confDir'
  | 'pluginDirs'
  | 'cacheDir'
  | 'stateDir'
  | 'runDir'
  | 'daemon'
  | 'findAbout'
  | 'ownNames'
  | 'installedRuntimes'
>;

/** This node, as seen from the namespace of this process. */
export function viewNode(places: Places): NodeView {
  const { kernel } = places.facts;
  // Every namespace of the machine is visited, once for all networks.
  let use: { readonly found: ReturnType<typeof findUse> } | undefined;
  const useOnce = () => {
    use ??= { found: findUse() };
    return use.found;
  };
  return {
    ...places,
    user: currentUser(),
    read: tryRead,
    list: namesIn,
    findStorageProblem,
    filter: () => kernel.filter.filter(one => isForwarding(one) || one.table.family === 'bridge'),
    held: (list, known) =>
      findTraced(list, known, {
        runDir: places.runDir,
        find: places.findAbout,
        tables: kernel,
        findUse: useOnce,
      }),
    policyRules: () => kernel.policyRules,
    between: () => viewBetween(places.runDir, kernel),
    devices: [...readHost(kernel).byIndex.values()],
    routes: readHostRoutes(kernel),
  };
}

function findStorageProblem(dir: string): string | undefined {
  try {
    accessSync(dir, constants.W_OK | constants.X_OK);
    const { bavail, files, ffree } = statfsSync(dir);
    if (bavail === 0) return 'its file system is full';
    // Some file systems do not count inodes.
    return files > 0 && ffree === 0 ? 'its file system has no room for another file' : undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? undefined : (error as Error).message;
  }
}
