// How does the kernel get what is planned, and lose it?

import { FAMILIES, renderCidr } from '../net/ip.ts';
import type { Request } from '../netlink/codec.ts';
import { removeLinks } from '../netlink/rtnl/link.ts';
import { listOriginRoutes, removeOriginRouteRequest } from '../netlink/rtnl/route.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkError, NetlinkSocket } from '../netlink/socket.ts';
import { Errno } from '../sys/errno.ts';
import { type EntryChanges, entryChanges } from './entries.ts';
import { PROTOCOL } from './names.ts';
import type { WaysPlan } from './plan.ts';
import { applySpare, spareProblems } from './spare.ts';
import { applyTunnel, findTunnels, tunnelProblems } from './tunnels.ts';

/** What was done, and what the kernel refused; both human-readable. */
export interface Applied {
  readonly changed: readonly string[];
  readonly problems: readonly string[];
}

const NOTHING: WaysPlan = { tunnels: [], ways: [], own: [], others: [], problems: [] };

/** linux/rtnetlink.h: a route that is to be deleted does not exist. */
const ESRCH = 3;
const GONE: readonly number[] = [ESRCH, Errno.ENOENT, Errno.ENODEV, Errno.EADDRNOTAVAIL];

/**
 * Makes devices, entries, routes and the table as planned. Only differences are sent: nothing, if there are none. What the kernel refuses does
 * not keep the rest from being made. Devices of other programs, and routes of other origins, are never changed.
 */
export function applyWays(plan: WaysPlan): Applied {
  const changed: string[] = [];
  const problems: string[] = [];
  const attempt = (work: () => readonly string[]): void => {
    try {
      changed.push(...work());
    } catch (error) {
      problems.push((error as Error).message);
    }
  };
  within(NETLINK_ROUTE, socket => {
    const { ours, foreign } = findTunnels(socket);
    const indexes = new Map<string, number>();
    for (const tunnel of plan.tunnels) {
      const other = foreign.find(({ name }) => name === tunnel.name);
      if (other) {
        problems.push(
          `device "${other.name}" belongs to another program: no tunnel is made until it is renamed or deleted`,
        );
        continue;
      }
      attempt(() => {
        const link = ours.find(({ name }) => name === tunnel.name);
        const { index, changed: done } = applyTunnel(socket, tunnel, link);
        indexes.set(tunnel.name, index);
        return done;
      });
    }
    attempt(() => {
      const changes = entryChanges(socket, plan, name => indexes.get(name));
      return sendAll(socket, changes, problems);
    });
    const unwanted = ours.filter(({ name }) => plan.tunnels.every(tunnel => tunnel.name !== name));
    attempt(() => {
      removeLinks(
        socket,
        unwanted.map(({ index }) => index),
      );
      return unwanted.map(({ name }) => `delete device "${name}"`);
    });
  });
  attempt(() => within(NETLINK_NETFILTER, socket => applySpare(socket, plan)));
  return { changed, problems };
}

/** Removes everything of ours: devices, routes and the table. */
export function removeWays(): Applied {
  return applyWays(NOTHING);
}

/** What is missing or too much, human-readable; empty if the kernel's state is as planned. Changes nothing. */
export function findDifferences(plan: WaysPlan): string[] {
  const differences = within(NETLINK_ROUTE, socket => {
    const { ours } = findTunnels(socket);
    const linkOf = (name: string) => ours.find(link => link.name === name);
    const devices = plan.tunnels.flatMap(tunnel => {
      const found = tunnelProblems(tunnel, linkOf(tunnel.name));
      if (found === undefined) return `device "${tunnel.name}" is missing`;
      return found.length ? `device "${tunnel.name}": ${found.join(', ')}` : [];
    });
    const { add, remove } = entryChanges(socket, plan, name => linkOf(name)?.index);
    return [
      ...devices,
      ...add.map(({ op }) => `missing: ${op.replace(/^(add|set) /, '')}`),
      ...remove.map(({ op }) => `too much: ${op.replace(/^delete /, '')}`),
    ];
  });
  return [...differences, ...within(NETLINK_NETFILTER, socket => spareProblems(socket, plan))];
}

/** Routes of ours that the kernel has, human-readable. */
export function listOwnRoutes(): string[] {
  return within(NETLINK_ROUTE, socket =>
    FAMILIES.flatMap(family =>
      listOriginRoutes(socket, family, PROTOCOL).map(
        ({ dst, table }) => `route to ${renderCidr(dst)} in table ${table}`,
      ),
    ),
  );
}

/** Removes the routes alone; devices and tables are removed with the others of ours. */
export function removeOwnRoutes(): void {
  within(NETLINK_ROUTE, socket => {
    const routes = FAMILIES.flatMap(family => listOriginRoutes(socket, family, PROTOCOL));
    socket.attemptAll(routes.map(removeOriginRouteRequest));
  });
}

/** Sends additions, then removals. @returns what was done; what was refused goes to the problems */
function sendAll(socket: NetlinkSocket, { add, remove }: EntryChanges, problems: string[]): string[] {
  const send = (requests: readonly Request[], ignored: readonly number[]): string[] => {
    const outcomes = socket.attemptAll(requests);
    return requests.flatMap(({ op }, i) => {
      const outcome = outcomes[i];
      if (!(outcome instanceof NetlinkError)) return op;
      if (outcome.errno === Errno.EEXIST)
        problems.push(`cannot ${op}: another program has one with its metric`);
      else if (!ignored.includes(outcome.errno)) problems.push(outcome.message);
      return [];
    });
  };
  return [...send(add, []), ...send(remove, GONE)];
}

function within<T>(protocol: number, work: (socket: NetlinkSocket) => T): T {
  const socket = new NetlinkSocket(protocol);
  try {
    return work(socket);
  } finally {
    socket.close();
  }
}
