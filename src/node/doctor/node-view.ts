// Where do checks get their facts on a real node, and what do all of them find?
import { accessSync, constants, statfsSync } from 'node:fs';
import { noteFileOf } from '../../between/names.ts';
import { defined } from '../../cni/json.ts';
import { fileExists, namesIn, tryRead } from '../../files/read-file.ts';
import { findUse } from '../../ipam/holders.ts';
import { findIp } from '../../net/ip.ts';
import type { Tables } from '../../netlink/tables.ts';
import { readHost, readHostRoutes } from '../devices.ts';
import { findTraced } from '../garbage/find-traced.ts';
import type { NodeAttachment, NodeModel } from '../model.ts';
import { isBelow } from '../words.ts';
import { between, mtu, needed, pools, subnets } from './checks/addresses.ts';
import {
  broken,
  executables,
  permissions,
  shadowed,
  tooNew,
  unlisted,
  unready,
} from './checks/configuration.ts';
import {
  bridgeNetfilter,
  executableMemory,
  firewallManagers,
  foreignRules,
  forwarding,
  packetFilters,
  routingRules,
  sysctlFiles,
} from './checks/kernel.ts';
import { abandoned, daemon, damaged, garbage, locks, storage, unsettled } from './checks/state.ts';
import {
  type BetweenView,
  currentUser,
  type Finding,
  isDenied,
  type NodeView,
  ROOT,
  type RoutedPod,
  SEVERITIES,
  type Seen,
} from './finding.ts';

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
  | 'askStatus'
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
  const where = { runDir: places.runDir, find: places.findAbout, tables: kernel, findUse: useOnce };
  return {
    ...places,
    user: currentUser(),
    read: tryRead,
    list: namesIn,
    findStorageProblem,
    filter: () => kernel.filter,
    held: (list, known) => findTraced(list, known, where),
    policyRules: () => kernel.policyRules,
    refusals: () => kernel.refusingRoutes,
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

/** @throws Error without the right to look */
async function viewBetween(runDir: string, kernel: Tables): Promise<BetweenView | undefined> {
  // The note of a daemon with the setting "nodes", which few nodes have.
  if (!fileExists(noteFileOf(runDir))) return undefined;
  const { viewWays } = await import('../../between/apply.ts');
  return viewWays(runDir, kernel);
}

/**
 * The addresses to which the node's own route leads through a device of the attachment. A bridge without an address and a macvlan
 * connect containers to a network that others route for.
 * @returns undefined if this user may not look into the containers, so that their devices are unknown
 */
export function routedPods(
  { attachments }: Pick<NodeModel, 'attachments'>,
  { routes, user = ROOT }: Pick<NodeView, 'routes' | 'user'>,
): RoutedPod[] | undefined {
  const standing = attachments.filter(({ state }) => state === 'attached');
  const isLimited = user.id !== 0 || user.unknown !== undefined;
  if (isLimited && standing.some(({ device }) => device === undefined)) return undefined;
  // What is on the link of a device is reached over that link, not by way of this node.
  return standing.filter(one => !isBelow(one)).flatMap(one => podsOf(one, routes));
}

function podsOf(
  { network, containerId, ifname, addresses, ports, hostDevice, device: inside }: NodeAttachment,
  routes: NodeView['routes'],
): RoutedPod[] {
  const own = [hostDevice?.name, hostDevice?.master];
  return addresses.flatMap((text): RoutedPod[] => {
    const [address = ''] = text.split('/');
    const ip = findIp(address);
    const device = ip && routes.find(ip)?.device;
    if (device === undefined || !own.includes(device)) return [];
    const family = address.includes(':') ? 6 : 4;
    const port = hostDevice?.name === device ? undefined : hostDevice?.name;
    const place = { network, containerId, ifname, family, address, device } as const;
    return [{ ...place, ports, ...defined({ port, mtu: inside?.mtu }) }];
  });
}

/** Every check by its id, in the order of the report; ids are stable. */
export const CHECKS: Readonly<Record<string, (node: NodeView) => Promise<Seen> | Seen>> = {
  'configuration.broken': broken,
  'configuration.shadowed': shadowed,
  'configuration.too-new': tooNew,
  'configuration.unlisted': unlisted,
  executables,
  permissions,
  'state.storage': storage,
  'state.damaged': damaged,
  'state.unsettled': unsettled,
  'state.abandoned': abandoned,
  'state.garbage': garbage,
  'state.locks': locks,
  'ipam.pools': pools,
  daemon,
  'network.device': needed,
  'network.subnet-overlap': subnets,
  'network.mtu': mtu,
  'network.nodes': between,
  'kernel.forwarding': forwarding,
  'kernel.sysctl-files': sysctlFiles,
  'kernel.executable-memory': executableMemory,
  'kernel.bridge-nf': bridgeNetfilter,
  'kernel.routing-rules': routingRules,
  'kernel.foreign-rules': foreignRules,
  'kernel.packet-filters': packetFilters,
  'kernel.firewall-managers': firewallManagers,
};

/**
 * Runs every check of the node, then CHECK of its attachments and STATUS of its networks, which take time. One that fails is reported
 * and does not stop the others. The worst findings come first.
 */
export async function findProblems(
  node: NodeView,
  checkAttachments: () => Promise<Seen> | Seen = () => [],
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const slow = { attachments: checkAttachments, 'network.status': () => unready(node, findings) };
  const checks: typeof CHECKS = { ...CHECKS, ...slow };
  for (const [id, check] of Object.entries(checks)) {
    try {
      const seen = await check(node);
      if (typeof seen === 'string') findings.push({ id, severity: 'ok', found: seen });
      else findings.push(...seen.map(one => ({ id, ...one })));
    } catch (error) {
      const { message } = error as Error;
      if (isDenied(message)) findings.push({ id, severity: 'unexamined', found: message });
      else findings.push({ id, severity: 'warning', found: `cannot run this check: ${message}` });
    }
  }
  const rank = ({ severity }: Finding): number => SEVERITIES.indexOf(severity);
  return findings.sort((a, b) => rank(a) - rank(b));
}
