// What does vrf do for each verb?

import { type PlannedRoute, reportedRoutes } from '../../src/attach/addressing.ts';
import { addRoutes, checkRoutes, repairRoutes } from '../../src/attach/container.ts';
import { checkAddresses, stateOf } from '../../src/attach/device.ts';
import { awaitTraffic, type Stage } from '../../src/attach/ready.ts';
import { describeError, invalidConfig } from '../../src/cni/errors.ts';
import { ipsFor, type Result } from '../../src/cni/result.ts';
import { type Cidr, FAMILIES, parseCidr, renderCidr, sameSubnet, subnetKey } from '../../src/net/ip.ts';
import {
  type Address,
  listAddresses,
  RT_SCOPE_UNIVERSE,
  restoreAddress,
} from '../../src/netlink/rtnl/addr.ts';
import { requireLinkKind } from '../../src/netlink/rtnl/kinds.ts';
import {
  findHostEnd,
  findLink,
  getLink,
  kindDataOf,
  type Link,
  listLinks,
  makeLink,
  removeLink,
  setLink,
} from '../../src/netlink/rtnl/link.ts';
import {
  addUnreachableDefault,
  inOrder,
  listRefusingRoutes,
  listRoutes,
  listUnreachableDefaults,
  RESERVED_TABLES,
  type Route,
  RT_TABLE_LOCAL,
  RT_TABLE_MAIN,
  RTPROT_KERNEL,
  removeRoute,
  removeUnreachableDefault,
  routeThrough,
} from '../../src/netlink/rtnl/route.ts';
import { addL3mdevRule, listRules, type Rule } from '../../src/netlink/rtnl/rule.ts';
import { NetlinkError, type NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, definePlugin, nothingToDo } from '../../src/plugin/define.ts';
import { withContainerLock } from '../../src/plugin/lock.ts';
import { confirm, requireReadiness, requireResult } from '../../src/plugin/steps.ts';
import { inNetns } from '../../src/sys/netns.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import { parseVrfConf, VrfConf, type VrfOptions } from './config.ts';

const NO_RESULT =
  'Cannot use a VRF: the request has no "prevResult"; place this plugin after one that makes the interface';

/** Moves the container's interface, with its routes, into a routing table of its own. */
export const plugin = definePlugin({
  name: 'vrf',
  config: VrfConf,
  netns: 'required',
  since: '0.3.1',

  async add(call) {
    const options = parseVrfConf(call.conf);
    const result = requireResult(call, NO_RESULT);
    const link = withContainerLock(call, () => {
      const own = getLink(call.container, call.env.ifname);
      join(call, own, ensureVrf(call, options));
      return own;
    });
    await awaitTraffic(call.log, stagesOf(call, link));
    return result;
  },

  check(call) {
    const options = parseVrfConf(call.conf);
    checkMember(call, options.name, options.table, requireResult(call, NO_RESULT));
  },

  repair(call) {
    const options = parseVrfConf(call.conf);
    const result = requireResult(call, NO_RESULT);
    const link = findLink(call.container, call.env.ifname);
    if (link === undefined) return;
    withContainerLock(call, () => {
      const own = ensureVrf(call, options);
      join(call, link, own);
      repairRoutes(call.container, link, routesIn(own.table, result));
    });
  },

  del(call) {
    // The kernel deletes the VRF with the namespace.
    if (call.findContainerNetns() === undefined) return;
    withContainerLock(call, () => {
      // Another container may have been attached in the namespace during the wait.
      if (call.findContainerNetns(true) === undefined) return;
      const { container, conf } = call;
      const link = findLink(container, call.env.ifname);
      const member = link && vrfOf(container, link);
      // Without a usable name, the VRF is the one that the interface is in.
      const own = conf.vrfname ? findNamed(call, conf.vrfname) : member;
      if (own === undefined) return;
      if (link && member?.link.index === own.link.index) leave(call, link, own);
      removeUnusedVrf(container, own);
    });
  },

  gc: nothingToDo('the kernel deletes VRFs with the namespace'),

  status(call) {
    parseVrfConf(call.conf);
    return requireReadiness(() => requireLinkKind(call.host, 'vrf'), 'use VRFs');
  },
});

/** A device of another kind is not ours: DEL has nothing to do. */
function findNamed({ container, log }: Call, name: string): ReturnType<typeof findVrf> {
  try {
    return findVrf(container, name);
  } catch (thrown) {
    log.warn(`Cannot remove VRF "${name}": ${describeError(thrown)}`);
    return undefined;
  }
}

function checkMember(call: Call, name: string, table: number | undefined, result: Result): void {
  const { container, env } = call;
  const own = findVrf(container, name);
  if (own === undefined) throw new Error(`Cannot confirm VRF "${name}": it is gone`);
  if (table !== undefined) confirm(`table of VRF "${name}"`, table, own.table);
  confirm(`state of VRF "${name}"`, 'up', stateOf(own.link));
  const link = findLink(container, env.ifname);
  if (link === undefined) throw new Error(`Cannot confirm interface "${env.ifname}": it is gone`);
  confirm(`VRF of "${link.name}"`, name, vrfOf(container, link)?.link.name);
  checkAddresses(
    container,
    link,
    ipsFor(result, env.ifname).map(({ address }) => parseCidr(address)),
  );
  checkRoutes(container, link, routesIn(own.table, result));
  checkVrf(container, own);
}

/** The interface, and the other end of a veth pair: both were down for a moment. */
function stagesOf(call: Call, link: Link): Stage[] {
  const outside = findHostEnd(call, link);
  return [
    { socket: call.container, link, ips: [] },
    ...(outside ? [{ socket: call.host, link: outside, ips: [] }] : []),
  ];
}

/** Alias of a VRF whose table ends with a refusing route. One that the reference has made lacks both, and is intact nevertheless. */
const ALIAS = 'catena: VRF';
/** Attempts to get a table that no other program takes at the same moment. */
const TABLE_ATTEMPTS = 10;

/** A VRF and the routing table of its members. */
interface Vrf {
  readonly link: Link;
  readonly table: number;
}

/**
 * The VRF of that name, if there is one.
 * @throws CniError 7 when a device of another kind has the name
 */
function findVrf(socket: NetlinkSocket, name: string): Vrf | undefined {
  const link = findLink(socket, name);
  if (link === undefined) return undefined;
  const vrf = asVrf(link);
  if (vrf) return vrf;
  throw invalidConfig(
    `Cannot use "${name}" as VRF: a device of that name exists and is ${link.kind ? `of kind "${link.kind}"` : 'not a VRF'}`,
  );
}

/** The VRF that an interface is a member of. */
function vrfOf(socket: NetlinkSocket, { master }: Link): Vrf | undefined {
  const link = master === 0 ? undefined : findLink(socket, master);
  return link && asVrf(link);
}

function asVrf(link: Link): Vrf | undefined {
  const table = kindDataOf(link, 'vrf')?.table;
  return table === undefined ? undefined : { link, table };
}

/**
 * Returns the VRF, up, with the rule that leads to its table and a last route there that refuses what no other takes. A missing one is
 * created. Registers its own undo steps. Call under the namespace's lock.
 * @throws CniError 7 when the name or the table belongs to another device
 */
function ensureVrf(call: Call, { name, table }: VrfOptions): Vrf {
  const { container } = call;
  const vrf = findVrf(container, name) ?? createVrf(call, name, table);
  if (table !== undefined && table !== vrf.table) {
    throw invalidConfig(`Cannot use VRF "${name}" with table ${table}: it exists with table ${vrf.table}`);
  }
  completeVrf(call, vrf);
  return vrf;
}

function completeVrf(call: Call, { link, table }: Vrf): void {
  const { container } = call;
  const { alias } = link.attrs;
  setLink(container, link.index, { up: true, ...(alias ? {} : { alias: ALIAS }) });
  if (!alias) call.onFailure('remove an alias', () => setLink(container, link.index, { alias: '' }));
  const rules = listRules(container);
  for (const family of familiesOf(rules)) {
    if (!rules.some(rule => rule.isL3mdev && rule.family === family)) addL3mdevRule(container, family);
    if (listUnreachableDefaults(container, family).includes(table)) continue;
    addUnreachableDefault(container, family, table);
    call.onFailure('remove a refusing route', () => removeUnreachableDefault(container, family, table));
  }
}

/** @throws Error naming what is missing of what {@link ensureVrf} completed, if it did */
function checkVrf(socket: NetlinkSocket, { link, table }: Vrf): void {
  const rules = listRules(socket);
  for (const family of familiesOf(rules)) {
    const led = rules.some(rule => rule.isL3mdev && rule.family === family);
    confirm(`IPv${family} rule for VRFs`, true, led);
    if (link.attrs.alias !== ALIAS) continue;
    const refusing = listUnreachableDefaults(socket, family).includes(table);
    confirm(`unreachable IPv${family} default route in table ${table} of "${link.name}"`, true, refusing);
  }
}

/** Removes a VRF without members, as the reference does, even one that others made. Call under the namespace's lock. */
function removeUnusedVrf(socket: NetlinkSocket, { link, table }: Vrf): void {
  const links = listLinks(socket);
  const isGone = !links.some(({ index }) => index === link.index);
  if (isGone || links.some(({ master }) => master === link.index)) return;
  // They name no device, so the kernel leaves them.
  for (const family of familiesOf(listRules(socket))) removeUnreachableDefault(socket, family, table);
  removeLink(socket, link.index);
}

/** Those that the kernel has, which may be without IPv6: a namespace is born with rules of each. */
function familiesOf(rules: readonly Rule[]): readonly (4 | 6)[] {
  return FAMILIES.filter(family => rules.some(rule => rule.family === family));
}

function createVrf(call: Call, name: string, wanted: number | undefined): Vrf {
  const { container } = call;
  for (let attempt = 1; ; attempt++) {
    const before = listVrfs(container);
    const holder = before.find(({ table }) => table === wanted);
    if (holder) {
      throw invalidConfig(
        `Cannot create VRF "${name}" with table ${wanted}: VRF "${holder.link.name}" has that table`,
      );
    }
    const table = wanted ?? chooseTable(container, before);
    const link = makeLink(container, { name, kind: 'vrf', vrfTable: table });
    const raced = link ? undefined : findVrf(container, name);
    if (raced) return raced;
    if (link === undefined) continue;
    const vrf = { link, table };
    call.onFailure(`remove VRF "${name}"`, () => removeUnusedVrf(container, vrf));
    // The lock keeps our own plugins apart. Another program may have chosen the same table: the older device keeps it.
    const rival = listVrfs(container).find(one => one.table === table && one.link.index < link.index);
    if (rival === undefined || wanted !== undefined || attempt === TABLE_ATTEMPTS) return vrf;
    removeLink(container, link.index);
  }
}

function chooseTable(socket: NetlinkSocket, present: readonly Vrf[]): number {
  return freeTable({
    vrfs: present.map(({ table }) => table),
    rules: listRules(socket),
    routes: [...listRoutes(socket), ...listRefusingRoutes(socket)],
  });
}

function listVrfs(socket: NetlinkSocket): Vrf[] {
  return listLinks(socket).flatMap(link => asVrf(link) ?? []);
}

// The kernel takes an interface down and up again when its VRF changes (cycle_netdev in drivers/net/vrf.c). That deletes all its
// routes, in every table, and without keep_addr_on_down its IPv6 addresses. Those that the kernel makes for addresses return in the
// table of the VRF; the others are put there.

/**
 * Makes the interface a member. Does nothing if it is one already. Registers its own undo step.
 * @throws CniError 7 when it belongs to another device
 */
function join(call: Call, link: Link, vrf: Vrf): void {
  const { container } = call;
  if (link.master === vrf.link.index) return;
  if (link.master !== 0) {
    const master = findLink(container, link.master)?.name ?? `device ${link.master}`;
    throw invalidConfig(`Cannot add "${link.name}" to VRF "${vrf.link.name}": it belongs to "${master}"`);
  }
  const before = readBelongings(container, link, RT_TABLE_MAIN);
  call.onFailure(`take "${link.name}" out of VRF "${vrf.link.name}"`, () => {
    move(call, link, before, { master: 0, from: RT_TABLE_MAIN, to: RT_TABLE_MAIN });
  });
  move(call, link, before, { master: vrf.link.index, from: RT_TABLE_MAIN, to: vrf.table });
}

/** Takes the interface out of the VRF; its routes return to the main table. */
function leave(call: Call, link: Link, vrf: Vrf): void {
  const before = readBelongings(call.container, link, vrf.table);
  move(call, link, before, { master: 0, from: vrf.table, to: RT_TABLE_MAIN });
}

interface Move {
  /** Index of the VRF, 0 for none. */
  readonly master: number;
  readonly from: number;
  readonly to: number;
}

function move(call: Call, link: Link, before: Belongings, { master, from, to }: Move): void {
  const { container, containerNetns } = call;
  // Other plugins set it as well; without it the kernel would delete the addresses.
  inNetns(containerNetns, () => trySysctl(`net/ipv6/conf/${link.name}/keep_addr_on_down`, '1'));
  setLink(container, link.index, { master });
  const present = new Set(listAddresses(container, link.index).map(({ cidr }) => renderCidr(cidr)));
  for (const address of before.addresses) {
    if (!present.has(renderCidr(address.cidr))) restoreAddress(container, address);
  }
  for (const route of needlessRoutes(link.index, to, listRoutes(container), before))
    removeRoute(container, route);
  if (from !== to) releaseNexthops(container, link, from);
  const moved = movedRoutes(before, from, to);
  addRoutes(
    container,
    link,
    moved.filter(({ table }) => table === to),
  );
  // A preferred source is valid in these only while its own table is consulted for it.
  for (const route of moved.filter(({ table }) => table !== to)) {
    try {
      addRoutes(container, link, [route]);
    } catch (thrown) {
      if (!(thrown instanceof NetlinkError)) throw thrown;
      addRoutes(container, link, [{ ...route, source: undefined }]);
    }
  }
}

/**
 * Of a route that IPv6 combined, the kernel keeps the next hop of an interface that was down for a moment: the old table would still send
 * packets there.
 */
function releaseNexthops(socket: NetlinkSocket, { index }: Link, table: number): void {
  for (const route of belongingsOf(index, table, [], listRoutes(socket)).routes) {
    if (route.dst.ip.family === 6 && route.table === table) removeRoute(socket, route);
  }
}

function readBelongings(socket: NetlinkSocket, { index }: Link, from: number): Belongings {
  return belongingsOf(index, from, listAddresses(socket, index), listRoutes(socket));
}

const LINK_LOCAL = parseCidr('fe80::/64');

interface TableUse {
  /** Tables of its VRFs. */
  readonly vrfs: readonly number[];
  readonly rules: readonly Pick<Rule, 'table'>[];
  readonly routes: readonly Pick<Route, 'table'>[];
}

/** The lowest table that no VRF, rule or route of either family mentions, and that is not one of the kernel's. */
export function freeTable({ vrfs, rules, routes }: TableUse): number {
  const used = new Set([...RESERVED_TABLES, ...vrfs, ...[...rules, ...routes].map(({ table = 0 }) => table)]);
  let table = 1;
  while (used.has(table)) table++;
  return table;
}

/** What the kernel deletes when an interface joins or leaves a VRF. */
interface Belongings {
  /** Global addresses; the kernel makes the link-local one again. */
  readonly addresses: readonly Address[];
  /** The interface's own part of its routes, in the order in which they can be added. */
  readonly routes: readonly Route[];
  /** Destinations of the routes that the kernel had made for its addresses. */
  readonly onLink: readonly Cidr[];
}

/**
 * Collects what belongs to an interface.
 * @param index the interface
 * @param from the table that it is in
 */
export function belongingsOf(
  index: number,
  from: number,
  addresses: readonly Address[],
  routes: readonly Route[],
): Belongings {
  const own = routes
    .flatMap(route => routeThrough(route, index) ?? [])
    .filter(({ table }) => table !== RT_TABLE_LOCAL);
  const isMade = (route: Route) => (route.table ?? RT_TABLE_MAIN) === from && isKernels(route);
  return {
    addresses: addresses.filter(({ scope }) => scope === RT_SCOPE_UNIVERSE),
    routes: inOrder(own.filter(route => !isMade(route))),
    onLink: own.filter(isMade).map(({ dst }) => dst),
  };
}

/** The routes as they are to be in the new table; those of other tables stay in these. */
export function movedRoutes(
  { routes }: Pick<Belongings, 'routes'>,
  from: number,
  to: number,
): PlannedRoute[] {
  return routes.map(route => ({
    ...route,
    table: (route.table ?? RT_TABLE_MAIN) === from ? to : route.table,
  }));
}

/** Routes that the kernel made in the table although a plugin had removed them: ptp's pods reach their subnet through the gateway. */
export function needlessRoutes(
  index: number,
  table: number,
  present: readonly Route[],
  { onLink }: Belongings,
): Route[] {
  const known = new Set(onLink.map(subnetKey));
  return present.filter(route => {
    const isMade = route.oif === index && route.table === table && isKernels(route);
    return isMade && !known.has(subnetKey(route.dst)) && !sameSubnet(route.dst, LINK_LOCAL);
  });
}

/** The routes of the interface that an earlier plugin reported, as they are to be in the VRF's table. */
function routesIn(table: number, result: Result): PlannedRoute[] {
  return reportedRoutes(result).map(route => ({ ...route, table }));
}

function isKernels({ protocol }: Route): boolean {
  return protocol === RTPROT_KERNEL;
}
