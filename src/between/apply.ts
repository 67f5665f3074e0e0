// How does the kernel get what is planned, and lose it, which devices of this node may lead to other nodes, and how does traffic between them keep its source address?
import { type Cidr, FAMILIES, netmaskOf, renderCidr, renderIp, sameIp } from '../net/ip.ts';
import type { Request } from '../netlink/codec.ts';
import { addElements, deleteElements, type Element, listElements } from '../netlink/nft/element.ts';
import { commitAfterReading, type Table } from '../netlink/nft/message.ts';
import { type Skeleton, skeletonChanges, skeletonProblems } from '../netlink/nft/skeleton.ts';
import {
  addTable,
  deleteTable,
  hasTable,
  listSets,
  NF_IP_PRI_NAT_SRC,
  type NftSet,
  renderFields,
} from '../netlink/nft/table.ts';
import {
  addAddressRequest,
  listAddresses,
  RT_SCOPE_UNIVERSE,
  removeAddressRequest,
} from '../netlink/rtnl/addr.ts';
import {
  createLink,
  findLinks,
  getLink,
  IFF_LOOPBACK,
  IFF_UP,
  type Link,
  removeLinks,
  setLink,
  vxlanOf,
} from '../netlink/rtnl/link.ts';
import {
  listForwarding,
  listPermanentNeighbours,
  type Neighbour,
  removeForwardingRequest,
  removeNeighbourRequest,
  setForwardingRequest,
  setNeighbourRequest,
} from '../netlink/rtnl/neighbour.ts';
import {
  listOriginRoutes,
  type OriginRoute,
  originRouteRequest,
  RT_TABLE_MAIN,
  removeOriginRouteRequest,
} from '../netlink/rtnl/route.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkError, type NetlinkSocket } from '../netlink/socket.ts';
import { askHere, type Tables } from '../netlink/tables.ts';
import { Errno } from '../sys/errno.ts';
import { put } from './claims.ts';
import { EXPORT_TABLE, LAST_METRIC, METRIC, PROTOCOL, TUNNEL_ALIAS, TUNNELS } from './names.ts';
import { readNote } from './note.ts';
import { type HostLink, planWays, type TunnelPlan, type WaysPlan } from './plan.ts';

/** What was done, and what the kernel refused; both human-readable. */
export interface Applied {
  readonly changed: readonly string[];
  readonly problems: readonly string[];
}

const NOTHING: WaysPlan = { tunnels: [], ways: [], own: [], others: [], problems: [] };

/** What is to be deleted does not exist: a route, an entry, a device, an address. */
const GONE: readonly number[] = [Errno.ESRCH, Errno.ENOENT, Errno.ENODEV, Errno.EADDRNOTAVAIL];

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
  askHere(NETLINK_ROUTE, socket => {
    const { ours, foreign } = findTunnels(socket);
    const indexes = new Map<string, number>();
    for (const tunnel of plan.tunnels) {
      attempt(() => {
        if (foreign.some(({ name }) => name === tunnel.name)) {
          throw new Error(
            `device "${tunnel.name}" belongs to another program: no tunnel is made until it is renamed or deleted`,
          );
        }
        const link = ours.find(({ name }) => name === tunnel.name);
        const { index, changed: done } = applyTunnel(socket, tunnel, link);
        indexes.set(tunnel.name, index);
        return done;
      });
    }
    attempt(() =>
      sendAll(
        socket,
        entryChanges(socket, plan, name => indexes.get(name)),
        problems,
      ),
    );
    const unwanted = ours.filter(({ name }) => plan.tunnels.every(tunnel => tunnel.name !== name));
    const indexesOfUnwanted = unwanted.map(({ index }) => index);
    attempt(() => {
      removeLinks(socket, indexesOfUnwanted);
      return unwanted.map(({ name }) => `delete device "${name}"`);
    });
  });
  attempt(() => askHere(NETLINK_NETFILTER, socket => applySpare(socket, plan)));
  return { changed, problems };
}

/** Removes everything of ours: devices, routes and the table. */
export function removeWays(): Applied {
  return applyWays(NOTHING);
}

/** What is missing or too much, human-readable; empty if the kernel's state is as planned. Changes nothing. */
export function findDifferences(plan: WaysPlan): string[] {
  const differences = askHere(NETLINK_ROUTE, socket => {
    const { ours } = findTunnels(socket);
    const linkOf = (name: string) => ours.find(link => link.name === name);
    const devices = plan.tunnels.flatMap(tunnel => {
      const link = linkOf(tunnel.name);
      if (link === undefined) return `device "${tunnel.name}" is missing`;
      const found = tunnelProblems(tunnel, link);
      return found.length ? `device "${tunnel.name}": ${found.join(', ')}` : [];
    });
    const { add, remove } = entryChanges(socket, plan, name => linkOf(name)?.index);
    return [
      ...devices,
      ...add.map(({ op }) => `missing: ${op.replace(/^(add|set) /, '')}`),
      ...remove.map(({ op }) => `too much: ${op.replace(/^delete /, '')}`),
    ];
  });
  return [...differences, ...askHere(NETLINK_NETFILTER, socket => spareProblems(socket, plan))];
}

/**
 * Plans as the daemon does, from the nodes that it was told last, and compares. Undefined if no daemon keeps routes to other nodes.
 * @throws Error without the right to look
 */
export function viewWays(runDir: string, kernel: Tables) {
  const note = readNote(runDir);
  if (note === undefined) return undefined;
  const { own, nodes } = note;
  const plan = planWays(nodes, hostLinksOf(kernel), note);
  const others = nodes.filter(({ name }) => name !== own).length;
  if (plan === undefined) {
    const problems = [`this node, "${own}", is not among the ${nodes.length} nodes`];
    return { nodes: others, routes: 0, problems, differences: [] };
  }
  const { ways, problems } = plan;
  return { nodes: others, routes: ways.length, problems, differences: findDifferences(plan) };
}

/** Removes the routes alone; devices and tables are removed with the others of ours. @returns them, human-readable */
export function removeOwnRoutes(dryRun: boolean): string[] {
  return askHere(NETLINK_ROUTE, socket => {
    const routes = readOwnRoutes(socket);
    if (!dryRun) socket.attemptAll(routes.map(removeOriginRouteRequest));
    return routes.map(({ dst, table }) => `route to ${renderCidr(dst)} in table ${table}`);
  });
}

function readOwnRoutes(socket: NetlinkSocket): OriginRoute[] {
  return FAMILIES.flatMap(family => listOriginRoutes(socket, family, PROTOCOL));
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

/** Aliases of the devices that we made: bridges, ends of pairs, tunnels. */
const OUR_ALIAS = /^catena\b/;

/** Devices with addresses, without loopback and those of pods. */
export function hostLinksOf(kernel: Tables): HostLink[] {
  const addresses = new Map<number, Cidr[]>();
  for (const { index, cidr, scope } of kernel.addresses)
    if (scope === RT_SCOPE_UNIVERSE) put(addresses, index, cidr);
  return kernel.links.flatMap(({ index, name, mtu, flags, attrs }) => {
    const own = addresses.get(index);
    if (own === undefined || flags & IFF_LOOPBACK || OUR_ALIAS.test(attrs.alias ?? '')) return [];
    return { index, name, mtu, isUp: (flags & IFF_UP) !== 0, addresses: own };
  });
}

/** Requests that make the kernel's state the planned one: all of `add` before all of `remove`. */
interface EntryChanges {
  readonly add: readonly Request[];
  readonly remove: readonly Request[];
}

/** What is missing, and what is too much: of the tunnels' own entries, and of routes with our protocol number in every table. */
function entryChanges(
  socket: NetlinkSocket,
  plan: WaysPlan,
  indexOf: (tunnel: string) => number | undefined,
): EntryChanges {
  const parts = plan.tunnels.flatMap(tunnel => {
    const index = indexOf(tunnel.name);
    return index === undefined ? [] : tunnelChanges(socket, tunnel, index);
  });
  const routes = routeChanges(socket, wantedRoutes(plan, indexOf));
  return {
    add: [...parts.flatMap(({ add }) => add), ...routes.add],
    // Nothing may lead to a neighbour that is gone.
    remove: [...routes.remove, ...parts.flatMap(({ remove }) => remove)],
  };
}

/** Routes to other nodes in the main table; own blocks refuse what no pod has there, and are listed in the table for export. */
function wantedRoutes(
  { ways, own }: Pick<WaysPlan, 'ways' | 'own'>,
  indexOf: (tunnel: string) => number | undefined,
): OriginRoute[] {
  const protocol = PROTOCOL;
  const main = { table: RT_TABLE_MAIN, protocol };
  return [
    ...ways.flatMap(({ dst, gateway, through }) => {
      const onlink = 'tunnel' in through && gateway.family === 4;
      const oif = 'tunnel' in through ? indexOf(through.tunnel) : through.index;
      return oif === undefined ? [] : { ...main, dst, priority: METRIC, via: { oif, gateway, onlink } };
    }),
    ...own.flatMap(dst => [
      { ...main, dst, priority: LAST_METRIC, via: undefined },
      { dst, table: EXPORT_TABLE, protocol, priority: METRIC, via: undefined },
    ]),
  ];
}

function tunnelChanges(socket: NetlinkSocket, plan: TunnelPlan, index: number): EntryChanges {
  const present = listAddresses(socket, index).filter(({ scope }) => scope === RT_SCOPE_UNIVERSE);
  const cidrs = present.map(({ cidr }) => cidr);
  const addresses = difference(plan.addresses, cidrs, renderCidr);
  const neighbours = difference<Pick<Neighbour, 'ip' | 'mac'>, TunnelPlan['neighbours'][number]>(
    plan.neighbours,
    listPermanentNeighbours(socket, index).filter(isNeighbour),
    ({ ip, mac }) => `${renderIp(ip)} ${mac}`,
    ({ ip }) => renderIp(ip),
  );
  const forwarding = difference(
    plan.forwarding,
    listForwarding(socket, index),
    ({ mac, to }) => `${mac} ${renderIp(to)}`,
    ({ mac }) => mac,
  );
  return {
    add: [
      ...addresses.missing.map(cidr => addAddressRequest(index, cidr, { nodad: true })),
      ...forwarding.missing.map(one => setForwardingRequest(index, one)),
      ...neighbours.missing.map(({ ip, mac }) => setNeighbourRequest(index, ip, mac)),
    ],
    remove: [
      ...neighbours.stale.map(({ ip }) => removeNeighbourRequest(index, ip)),
      ...forwarding.stale.map(one => removeForwardingRequest(index, one)),
      ...addresses.stale.map(cidr => removeAddressRequest(index, cidr)),
    ],
  };
}

/**
 * What is wanted and not there, and what is there and not wanted.
 * @param textOf what tells one from another
 * @param keyOf what only one can have: to set the one that is missing replaces the one that has it, which is not stale then
 */
function difference<P, W extends P>(
  wanted: readonly W[],
  present: readonly P[],
  textOf: (one: P) => string,
  keyOf = textOf,
): { readonly missing: W[]; readonly stale: P[] } {
  const [asked, there] = [new Set(wanted.map(textOf)), new Set(present.map(textOf))];
  const missing = wanted.filter(one => !there.has(textOf(one)));
  const replaced = new Set(missing.map(keyOf));
  const isStale = (one: P) => !asked.has(textOf(one)) && !replaced.has(keyOf(one));
  return { missing, stale: present.filter(isStale) };
}

/** Those of multicast addresses are the kernel's own. */
function isNeighbour({ ip }: { readonly ip: Cidr['ip'] }): boolean {
  return ip.family === 4 ? ip.value >> 28n !== 0xen : ip.value >> 120n !== 0xffn;
}

function routeChanges(socket: NetlinkSocket, wanted: readonly OriginRoute[]): EntryChanges {
  const present = readOwnRoutes(socket);
  const { missing, stale } = difference(wanted, present, textOfRoute, keyOf);
  const taken = new Set(present.map(keyOf));
  return {
    add: missing.map(route => originRouteRequest(route, taken.has(keyOf(route)))),
    remove: stale.map(removeOriginRouteRequest),
  };
}

function keyOf({ dst, table, priority }: OriginRoute): string {
  return `${renderCidr(dst)} ${table} ${priority}`;
}

function textOfRoute(route: OriginRoute): string {
  const { oif, gateway, onlink } = route.via ?? {};
  return [keyOf(route), oif, gateway && renderIp(gateway), onlink].join(' ');
}

/** Devices with the names of tunnels, ours and others. One that we were about to name when we were killed has no alias yet. */
export function findTunnels(socket: NetlinkSocket) {
  const found = findLinks(socket, Object.values(TUNNELS)).filter(link => link !== undefined);
  const isOurs = ({ kind, attrs: { alias } }: Link) =>
    kind === 'vxlan' && (alias === undefined || alias === '' || alias === TUNNEL_ALIAS);
  return { ours: found.filter(isOurs), foreign: found.filter(link => !isOurs(link)) };
}

/** What is wrong with a device that is ours, human-readable. */
function tunnelProblems(plan: TunnelPlan, link: Link): readonly string[] {
  return [
    ...(isSameTunnel(plan, link) ? [] : ['it has other ends, or learns']),
    ...(link.mac === plan.mac ? [] : [`its hardware address is ${link.mac}`]),
    ...(link.mtu === plan.mtu ? [] : [`its MTU is ${link.mtu}`]),
    ...(link.flags & IFF_UP ? [] : ['it is down']),
    ...(link.attrs.alias === TUNNEL_ALIAS ? [] : ['it has no alias']),
  ];
}

/**
 * Makes a device as planned.
 * @param link the device, if there is one of ours
 * @returns what was changed, human-readable, and the device's index
 * @throws NetlinkError when the kernel refuses
 */
function applyTunnel(
  socket: NetlinkSocket,
  plan: TunnelPlan,
  link: Link | undefined,
): { readonly index: number; readonly changed: readonly string[] } {
  const { name, mac, mtu, vni: id, local, port } = plan;
  if (link && isSameTunnel(plan, link)) {
    const problems = tunnelProblems(plan, link);
    if (problems.length === 0) return { index: link.index, changed: [] };
    setLink(socket, link.index, { mac, mtu, alias: TUNNEL_ALIAS, up: true });
    return { index: link.index, changed: [`set device "${name}": ${problems.join(', ')}`] };
  }
  if (link) removeLinks(socket, [link.index]);
  createLink(socket, { name, kind: 'vxlan', mac, mtu, vxlan: { id, local, port } });
  const { index } = getLink(socket, name);
  setLink(socket, index, { alias: TUNNEL_ALIAS, up: true });
  return { index, changed: [`${link ? 'make again' : 'make'} device "${name}"`] };
}

function isSameTunnel({ vni, local, port }: TunnelPlan, link: Link): boolean {
  const found = vxlanOf(link);
  return found?.id === vni && found.port === port && sameIp(found.local, local) && !found.learning;
}

/**
 * Our table, which contains everything below. The kernel asks the chains of address translation in the order of their priorities until one
 * has decided about a connection: a chain before those of our plugins, of the reference's, of Docker and of iptables decides that the
 * source stays what it is.
 */
export const SPARE_TABLE: Table = { family: 'inet', name: 'catena_between' };

const TYPES = { 4: 'ipv4_addr', 6: 'ipv6_addr' } as const;
const PREFIXES = { 4: 'ip', 6: 'ip6' } as const;

/** The table as planned: what it consists of, and the contents of its sets. Undefined if no traffic has to be spared. */
interface SparePlan {
  readonly skeleton: Skeleton;
  readonly contents: readonly { readonly set: NftSet; readonly keys: readonly Element['key'][] }[];
}

/** What is wrong with the table, human-readable. Changes nothing. */
function spareProblems(socket: NetlinkSocket, plan: Pick<WaysPlan, 'own' | 'others'>): string[] {
  const spare = planSpare(plan);
  if (spare === undefined) return [];
  return [
    ...skeletonProblems(socket, spare.skeleton),
    ...elementChanges(socket, spare).map(({ op }) => `cannot yet ${op}`),
  ];
}

/**
 * Makes the table as planned, in one transaction; deletes it if no traffic has to be spared.
 * @returns what was changed, human-readable
 * @throws NetlinkError when the kernel refuses
 */
function applySpare(socket: NetlinkSocket, plan: Pick<WaysPlan, 'own' | 'others'>): string[] {
  const spare = planSpare(plan);
  let changed: string[] = [];
  commitAfterReading(socket, () => {
    changed = [];
    const isThere = hasTable(socket, SPARE_TABLE);
    if (spare === undefined) {
      if (isThere) changed = [`delete table "${SPARE_TABLE.name}"`];
      return isThere ? [deleteTable(SPARE_TABLE)] : [];
    }
    const { skeleton, contents } = spare;
    const names = new Set(skeleton.sets.map(({ name }) => name));
    const hasOthers = () => listSets(socket, SPARE_TABLE).some(name => !names.has(name));
    if (isThere && !hasOthers() && skeletonProblems(socket, skeleton).length === 0) {
      const changes = elementChanges(socket, spare);
      changed = changes.map(({ op }) => op);
      return changes;
    }
    changed = [`make table "${SPARE_TABLE.name}"`];
    return [
      addTable(SPARE_TABLE),
      deleteTable(SPARE_TABLE),
      ...skeletonChanges(skeleton),
      ...contents.flatMap(({ set, keys }) =>
        addElements(
          set,
          keys.map(key => ({ key })),
        ),
      ),
    ];
  });
  return changed;
}

function elementChanges(socket: NetlinkSocket, { contents }: SparePlan): Request[] {
  return contents.flatMap(({ set, keys }) => {
    const present = listElements(socket, set).map(({ key }) => key);
    const { missing, stale } = difference(keys, present, renderFields);
    const elements = missing.map(key => ({ key }));
    return [...addElements(set, elements), ...deleteElements(set, stale)];
  });
}

/** From own blocks to those of others: one rule for each pair of prefix lengths. A pod that reaches itself by a Service is not concerned. */
function planSpare({ own, others }: Pick<WaysPlan, 'own' | 'others'>): SparePlan | undefined {
  const parts = FAMILIES.flatMap(family => {
    const from = byPrefix(family, 'own', own);
    const to = byPrefix(family, 'others', others);
    if (from.length === 0 || to.length === 0) return [];
    const word = PREFIXES[family];
    const rules = from.flatMap(({ set: a, mask: m }) =>
      to.map(
        ({ set: b, mask: n }) =>
          `${word} saddr & ${m} @${a.name} ${word} daddr & ${n} @${b.name} snat ${word} to ${word} saddr`,
      ),
    );
    return { sets: [...from, ...to], rules };
  });
  if (parts.length === 0) return undefined;
  const contents = parts.flatMap(({ sets }) => sets.map(({ set, keys }) => ({ set, keys })));
  const base = { type: 'nat', hook: 'postrouting', priority: NF_IP_PRI_NAT_SRC - 10 } as const;
  const skeleton: Skeleton = {
    table: SPARE_TABLE,
    comment: 'catena: what pods send to pods of other nodes keeps its source',
    sets: contents.map(({ set }) => set),
    chains: [{ name: 'postrouting', base, rules: parts.flatMap(({ rules }) => rules) }],
  };
  return { skeleton, contents };
}

function byPrefix(family: 4 | 6, which: string, cidrs: readonly Cidr[]) {
  const some = cidrs.filter(({ ip }) => ip.family === family);
  return [...new Set(some.map(({ prefix }) => prefix))]
    .sort((a, b) => b - a)
    .map(prefix => {
      const those = some.filter(one => one.prefix === prefix);
      const set: NftSet = { table: SPARE_TABLE, name: `${which}${family}_${prefix}`, key: [TYPES[family]] };
      const mask = renderIp(netmaskOf({ ip: { family, value: 0n }, prefix }));
      return { set, mask, keys: those.map(({ ip }) => [ip]) };
    });
}
