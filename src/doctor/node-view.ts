// Where do checks get their facts on a real node?
import { accessSync, constants, statfsSync } from 'node:fs';
import { namesIn } from '../files/names-in.ts';
import { tryRead } from '../files/read-file.ts';
import { renderCidr } from '../net/cidr.ts';
import { renderIp } from '../net/ip.ts';
import { listAddresses, RT_SCOPE_UNIVERSE } from '../netlink/rtnl/addr.ts';
import { listLinks } from '../netlink/rtnl/link.ts';
import { listRoutes, RT_TABLE_MAIN } from '../netlink/rtnl/route.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { viewBetween } from './between-view.ts';
import { factsIn } from './facts.ts';
import { readRuleset } from './filter/ruleset.ts';
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
  const socket = new NetlinkSocket(NETLINK_ROUTE);
  try {
    const devices = listLinks(socket);
    const addresses = listAddresses(socket).filter(({ scope }) => scope === RT_SCOPE_UNIVERSE);
    const addressesOf = (index: number) =>
      addresses.filter(one => one.index === index).map(({ cidr }) => renderIp(cidr.ip));
    const nameOf = new Map(devices.map(({ index, name }) => [index, name]));
    return {
      ...places,
      facts: factsIn(places),
      user: currentUser(),
      read: tryRead,
      list: namesIn,
      findStorageProblem,
      openRuleset: readRuleset,
      between: () => viewBetween(places.runDir),
      devices: devices.map(({ index, name, kind, mtu }) => ({
        name,
        kind,
        mtu,
        addresses: addressesOf(index),
      })),
      routes: listRoutes(socket)
        .filter(({ table = RT_TABLE_MAIN }) => table === RT_TABLE_MAIN)
        .map(({ dst, oif }) => ({ destination: renderCidr(dst), device: nameOf.get(oif) ?? '' })),
    };
  } finally {
    socket.close();
  }
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
