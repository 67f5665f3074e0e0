// On which device of the host is the container's device made?
import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { Result, ResultInterface } from '../../cni/result.ts';
import { findIfnameProblem } from '../../net/ifname.ts';
import { findLink, type Link } from '../../netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../netlink/socket.ts';
import type { Call } from '../../plugin/define.ts';
import { listDefaultRoutes } from '../mtu.ts';

/** The keys of a configuration that name the master. */
export interface MasterConf {
  /** Empty or absent: the interface of the default route. */
  readonly master?: string | undefined;
  /** Look for the master in the container. */
  readonly linkInContainer: boolean;
}

/** The lower device, and the socket of its namespace. */
export interface Master {
  readonly link: Link;
  readonly socket: NetlinkSocket;
}

/**
 * Finds the configured master, or the interface of the default route.
 * @param chained name of an interface that an earlier plugin of the chain made, to be used unless a master is configured
 * @throws CniError 7 when there is none
 */
export function findMaster(call: Call<MasterConf>, chained?: string): Master {
  const { conf } = call;
  const socket = conf.linkInContainer ? call.container : call.host;
  const name = conf.master || chained;
  const link = name ? findLink(socket, name) : findDefaultInterface(socket);
  if (link) return { link, socket };
  const where = conf.linkInContainer ? ' in the container' : '';
  throw new CniError(
    ErrorCode.invalidConfig,
    name
      ? `Cannot find master interface "${name}"${where}; create it, or correct "master"`
      : `Cannot find a master interface: there is no default route${where}; set "master"`,
  );
}

/** The interface of the first default route of the main table, of IPv4 if both families have one. */
export function findDefaultInterface(socket: NetlinkSocket): Link | undefined {
  const first = listDefaultRoutes(socket).find(({ oif }) => oif > 0);
  return first && findLink(socket, first.oif);
}

/** The only interface in the result of the plugin before; undefined if it has none, several, or one without a name. */
export function loneInterface(prevResult: Result | undefined): ResultInterface | undefined {
  const [one, ...more] = prevResult?.interfaces ?? [];
  return one?.name && more.length === 0 ? one : undefined;
}

/** What is wrong with `master`, in human-readable form. */
export function findMasterProblem(master: string | undefined): string | undefined {
  const problem = master ? findIfnameProblem(master) : undefined;
  return problem && `"master" is "${master}": ${problem}`;
}

/**
 * Refuses an MTU that the master cannot carry. 0 means the master's own.
 * @throws CniError 7
 */
export function requireMtu(mtu: number, { link }: Pick<Master, 'link'>): void {
  if (mtu <= link.mtu) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot use "mtu" ${mtu}: master interface "${link.name}" carries at most ${link.mtu}; use 0 for that`,
  );
}
