// What does sbr do for each verb?

import { hostsOf } from '../../src/attach/addressing.ts';
import { reachingGateway, sameGateway } from '../../src/attach/container.ts';
import {
  bySubnet,
  type Cidr,
  findCidr,
  hostCidr,
  type Ip,
  renderCidr,
  renderIp,
  sameSubnet,
} from '../../src/net/ip.ts';
import { listAddresses } from '../../src/netlink/rtnl/addr.ts';
import { findLink, getLink, kindDataOf, type Link, listLinks } from '../../src/netlink/rtnl/link.ts';
import {
  inOrder,
  listRefusingRoutes,
  listRoutes,
  listRoutesByDevice,
  type Route,
  RT_TABLE_MAIN,
  removeRoute,
  replaceRoute,
  restoreRoutes,
} from '../../src/netlink/rtnl/route.ts';
import { addRule, listRules, removeRule } from '../../src/netlink/rtnl/rule.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, definePlugin, nothingToDo } from '../../src/plugin/define.ts';
import { withContainerLock } from '../../src/plugin/lock.ts';
import { confirm, mend, requireReadiness, requireResult } from '../../src/plugin/steps.ts';
import { parseSbrConf, SbrConf } from './config.ts';
import {
  expectMoved,
  isSourceRule,
  OWN_PROTOCOL,
  type Present,
  planSbr,
  type SbrPlan,
  type Source,
  sourceRules,
  sourcesOf,
} from './plan.ts';

/** Sends packets from an address of the pod through the interface that has the address. */
export const plugin = definePlugin({
  name: 'sbr',
  config: SbrConf,
  netns: 'required',

  add(call) {
    const sources = sourcesOfCall(call);
    if (sources.length > 0) {
      withContainerLock(call, () => {
        applySbr(call, planOf(call, sources, getLink(call.container, call.env.ifname)));
      });
    }
    return call.prevResult ?? {};
  },

  check(call) {
    const sources = sourcesOfCall(call);
    if (sources.length === 0) return;
    const link = getLink(call.container, call.env.ifname);
    const present = readPresent(call.container, link);
    const options = parseSbrConf(call.conf);
    const plan = planSbr(sources, options, present);
    checkSbr(link, expectMoved(plan, sources, options, { result: call.prevResult ?? {}, present }), present);
  },

  repair(call) {
    const sources = sourcesOfCall(call);
    const link = findLink(call.container, call.env.ifname);
    if (sources.length === 0 || link === undefined) return;
    withContainerLock(call, () => {
      const plan = planOf(call, sources, link);
      mend(
        () => checkSbr(link, plan, readPresent(call.container, link)),
        () => applySbr(call, plan),
      );
    });
  },

  del(call) {
    // Rules and routes are deleted with the namespace.
    if (call.findContainerNetns() === undefined) return;
    withContainerLock(call, () => {
      // Another container may have been attached in the namespace during the wait.
      if (call.findContainerNetns(true) === undefined) return;
      const link = findLink(call.container, call.env.ifname);
      const reported = (call.prevResult?.ips ?? []).flatMap(({ address, interface: index }) => {
        const own = index === undefined ? undefined : call.prevResult?.interfaces?.[index];
        return own && own.name !== call.env.ifname ? [] : (findCidr(address)?.ip ?? []);
      });
      removeSbr(call.container, link, reported, call.conf.table || undefined);
    });
  },

  gc: nothingToDo('the kernel deletes rules and routes with the namespace'),

  status(call) {
    parseSbrConf(call.conf);
    return requireReadiness(() => requirePolicyRouting(call.host), 'route by source');
  },
});

function sourcesOfCall(call: Call<SbrConf>): Source[] {
  const options = parseSbrConf(call.conf);
  const prevResult = requireResult(
    call,
    'Cannot route by source: the request has no "prevResult"; place this plugin after one that assigns addresses to the pod',
  );
  return sourcesOf(prevResult, call.env.ifname, options);
}

function planOf(call: Call<SbrConf>, sources: readonly Source[], link: Link): SbrPlan {
  return planSbr(sources, parseSbrConf(call.conf), readPresent(call.container, link));
}

/** linux/rtnetlink.h, near RT_TABLE_MAX: a table that is unlikely to be in use */
const UNUSED_TABLE = 0x7ffffffe;
/** RFC 5737, TEST-NET-1: an address that is not in use */
const UNUSED_SOURCE: Cidr = { ip: { family: 4, value: 0xc0000201n }, prefix: 32 };

function readPresent(socket: NetlinkSocket, link: Link): Present {
  return {
    ...{ index: link.index, rules: listRules(socket), routes: listRoutesByDevice(socket) },
    otherTables: () => [
      ...listLinks(socket).flatMap(one => kindDataOf(one, 'vrf')?.table ?? []),
      ...listRefusingRoutes(socket).map(({ table }) => table),
    ],
  };
}

/**
 * Adds the routes first, then the rules that refer to them, then removes routes from the main table; a failed ADD undoes all of
 * it.
 */
function applySbr(call: Call, plan: SbrPlan): void {
  const socket = call.container;
  for (const { rule, known, routes } of plan.sources) {
    for (const route of routes) {
      call.onFailure('remove a route', () => removeRoute(socket, route));
      for (const way of reachingGateway(socket, route, () => replaceRoute(socket, route)))
        call.onFailure('remove the route to a gateway', () => removeRoute(socket, way));
    }
    if (known) continue;
    addRule(socket, rule);
    call.onFailure('remove a rule', () => removeRule(socket, rule));
  }
  for (const route of plan.hinted) hint(socket, route);
  // Undo steps run in reverse order.
  for (const route of inOrder(plan.leaving).reverse()) {
    removeRoute(socket, route);
    call.onFailure('restore a route', () => putBack(socket, route));
  }
}

/** Gives the interface its route to a subnet, to which another interface of the pod may have one, too. */
function hint(socket: NetlinkSocket, wanted: Route): void {
  const present = listRoutes(socket).filter(
    ({ table, dst }) => table === RT_TABLE_MAIN && sameSubnet(dst, wanted.dst),
  );
  if (present.every(({ oif }) => oif === wanted.oif)) {
    replaceRoute(socket, wanted);
    return;
  }
  for (const route of present) if (route.oif === wanted.oif) removeRoute(socket, route);
  putBack(socket, wanted);
}

/** Another interface may have a route to the same place, with which IPv6 merges it. @throws NetlinkError */
function putBack(socket: NetlinkSocket, route: Route): void {
  const [refused] = restoreRoutes(socket, [route]);
  if (refused) throw refused;
}

/** @throws Error naming the first rule or route that differs from what ADD made */
function checkSbr(link: Link, plan: SbrPlan, present: Present): void {
  for (const { rule, known, routes } of plan.sources) {
    const from = renderCidr(rule.from);
    if (!known) confirm(`rule for packets from ${from}`, `from ${from} lookup ${rule.table}`, undefined);
    const own = present.routes.filter(({ table, oif }) => table === rule.table && oif === link.index);
    const presentTo = bySubnet(own);
    for (const wanted of routes) {
      if (presentTo(wanted.dst).some(({ gateway }) => sameGateway(gateway, wanted.gateway))) continue;
      confirm(`routes in table ${rule.table} for packets from ${from}`, render(wanted), own.map(render));
    }
  }
  confirm(
    `routes of "${link.name}" that belong in the tables of its addresses, in the main table`,
    [],
    plan.leaving.map(render),
  );
  confirm(
    `routes of "${link.name}" that the main table lacks, with an address of it as source`,
    [],
    plan.hinted.map(render),
  );
}

/**
 * Removes the rules of the addresses, and moves the interface's routes in their tables back to the main table, unless the table
 * was configured. Missing ones are ignored.
 * @param link undefined when the interface no longer exists: its routes were deleted with it
 * @param reported addresses of the interface in the result, in addition to those that it has
 */
function removeSbr(
  socket: NetlinkSocket,
  link: Link | undefined,
  reported: readonly Ip[],
  table: number | undefined,
): void {
  const routes = listRoutes(socket);
  const addresses = listAddresses(socket);
  const own = [...hostsOf(addresses.filter(({ index }) => index === link?.index)), ...reported].map(hostCidr);
  const present = hostsOf(addresses).map(hostCidr);
  const all = listRules(socket);
  const ofAddresses = new Set(own.flatMap(from => sourceRules(all, from, table)));
  const rules = all.filter(rule => {
    const isFrom = (from: Cidr) => isSourceRule(rule, from, table);
    if (ofAddresses.has(rule)) return true;
    // With the interface, or by hand, its address may have gone that no result tells, as after the cached one was lost.
    if (rule.protocol !== OWN_PROTOCOL || !rule.from || !isFrom(rule.from) || present.some(isFrom))
      return false;
    return routes.every(route => route.table !== rule.table || route.oif === link?.index);
  });
  for (const { from, table: led, priority } of rules) {
    if (from) removeRule(socket, { from, table: led, priority });
  }
  if (link === undefined || table !== undefined) return;
  const tables = new Set(rules.map(rule => rule.table));
  const moved = routes.filter(route => tables.has(route.table ?? 0) && route.oif === link.index);
  for (const route of inOrder(moved)) {
    // The main table may still have the route, and an interface that is down cannot have any.
    if (route.protocol !== OWN_PROTOCOL) restoreRoutes(socket, [{ ...route, table: undefined }]);
    removeRoute(socket, route);
  }
}

/**
 * Checks that the kernel supports policy routing, and that we may change rules.
 * @throws NetlinkError
 */
function requirePolicyRouting(socket: NetlinkSocket): void {
  listRules(socket);
  // The rule does not exist. The kernel checks permissions before it looks for the rule, so missing rights still show.
  removeRule(socket, { from: UNUSED_SOURCE, table: UNUSED_TABLE });
}

function render({ dst, gateway }: Route): string {
  return `${renderCidr(dst)}${gateway ? ` via ${renderIp(gateway)}` : ''}`;
}
