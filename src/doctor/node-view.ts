// Where do checks get their facts on a real node?
import { accessSync, constants, statfsSync } from 'node:fs';
import { namesIn } from '../files/names-in.ts';
import { tryRead } from '../files/read-file.ts';
import { renderCidr } from '../net/cidr.ts';
import { renderIp } from '../net/ip.ts';
import { RT_SCOPE_UNIVERSE } from '../netlink/rtnl/addr.ts';
import { RT_TABLE_MAIN } from '../netlink/rtnl/route.ts';
import { isForwarding, Tables } from '../netlink/tables.ts';
import { viewBetween } from './between-view.ts';
import { factsIn } from './facts.ts';
import type { NodeView } from './finding.ts';
import { currentUser } from './user.ts';

/** What the caller chooses. */
export type Places = Pick<
  NodeView,
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
  const kernel = new Tables();
  const addresses = kernel.addresses.filter(({ scope }) => scope === RT_SCOPE_UNIVERSE);
  const nameOf = new Map(kernel.links.map(({ index, name }) => [index, name]));
  return {
    ...places,
    facts: factsIn(places),
    user: currentUser(),
    read: tryRead,
    list: namesIn,
    findStorageProblem,
    filter: () => kernel.filter.filter(one => isForwarding(one) || one.table.family === 'bridge'),
    policyRules: () => kernel.policyRules,
    between: () => viewBetween(places.runDir, kernel),
    devices: kernel.links.map(({ index, name, kind, mtu, master }) => {
      const own = addresses.filter(one => one.index === index);
      return {
        name,
        kind,
        mtu,
        master: nameOf.get(master),
        addresses: own.map(({ cidr }) => renderIp(cidr.ip)),
      };
    }),
    routes: kernel.routes
      .filter(({ table = RT_TABLE_MAIN }) => table === RT_TABLE_MAIN)
      .map(({ dst, oif }) => ({ destination: renderCidr(dst), device: nameOf.get(oif) ?? '' })),
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
