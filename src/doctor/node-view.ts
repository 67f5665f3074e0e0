// Where do checks get what they look at, on a real node?
import { readdirSync, readFileSync } from 'node:fs';
import { renderCidr } from '../net/cidr.ts';
import { listLinks } from '../netlink/rtnl/link.ts';
import { listRoutes } from '../netlink/rtnl/route.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { factsIn } from './facts.ts';
import type { NodeView } from './finding.ts';

/** Directories that the caller decides. */
export type Places = Pick<NodeView, 'confDir' | 'pluginDirs' | 'cacheDir' | 'runDir'> & {
  readonly stateDir: string;
};

/** This node, in the namespace of this process. */
export function viewNode(places: Places): NodeView {
  const socket = new NetlinkSocket(NETLINK_ROUTE);
  try {
    const devices = listLinks(socket);
    const nameOf = new Map(devices.map(({ index, name }) => [index, name]));
    return {
      ...places,
      facts: factsIn(places),
      read,
      list,
      devices: devices.map(({ name, kind, mtu }) => ({ name, kind, mtu })),
      routes: listRoutes(socket)
        .filter(({ table = MAIN_TABLE }) => table === MAIN_TABLE)
        .map(({ dst, oif }) => ({ destination: renderCidr(dst), device: nameOf.get(oif) ?? '' })),
    };
  } finally {
    socket.close();
  }
}

/** linux/rtnetlink.h: RT_TABLE_MAIN; routes to own addresses are elsewhere. */
const MAIN_TABLE = 254;

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

function list(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
