// Which devices exist in a namespace, and which addresses, routes, policy rules and queues?
import { renderCidr, subnetOf } from '../../net/cidr.ts';
import { renderIp } from '../../net/ip.ts';
import { RT_SCOPE_LINK } from '../../netlink/rtnl/addr.ts';
import { type Filter, listIngressFilters } from '../../netlink/rtnl/filter.ts';
import type { Link } from '../../netlink/rtnl/link.ts';
import { IFF_ALLMULTI, IFF_PROMISC, IFF_UP } from '../../netlink/rtnl/link-header.ts';
import type { Qdisc } from '../../netlink/rtnl/qdisc.ts';
import { type Route, RT_TABLE_MAIN } from '../../netlink/rtnl/route.ts';
import { renderRule } from '../../netlink/rtnl/rule.ts';
import { NETLINK_ROUTE } from '../../netlink/socket.ts';
import type { Tables } from '../../netlink/tables.ts';
import { renderRate } from '../words.ts';
import type { StateObject } from './object.ts';

type NameOf = (index: number) => string;

/** Names of the devices of a namespace, for describing what is attached to them. */
export function namesIn({ links }: Tables): NameOf {
  const names = new Map(links.map(link => [link.index, link.name]));
  return index => names.get(index) ?? `device ${index}`;
}

/** Devices and what belongs to them, without what the kernel makes itself; and the policy rules. */
export function describeDevices(tables: Tables): StateObject[] {
  const nameOf = namesIn(tables);
  return [
    ...tables.links.map(link => describeDevice(link, nameOf)),
    ...describeAddresses(tables, nameOf),
    ...describeRoutes(tables, nameOf),
    ...tables.policyRules.map(rule => {
      const words = `IPv${rule.family} rule ${renderRule(rule)}`;
      return { key: words, words, shape: `IPv${rule.family} rule` };
    }),
    ...describeTrafficControl(tables, nameOf),
  ];
}

function deviceKey(name: string): string {
  return `link ${name}`;
}

function describeDevice(link: Link, nameOf: NameOf): StateObject {
  const { name, kind, master } = link;
  const state = stateOfDevice(link, nameOf);
  const under = master === 0 ? '' : ` in ${nameOf(master)}${state.hairpin === 'on' ? ', hairpin' : ''}`;
  return {
    key: deviceKey(name),
    words: `${kind === '' ? 'device' : kind} ${name}${under}`,
    // A bridge belongs to its network. Every other kind of device belongs to one container.
    shape: kind === 'bridge' ? 'bridge' : `device of kind ${kind}`,
    state,
  };
}

/** What plugins may change about a device. */
export function stateOfDevice(link: Link, nameOf: NameOf): Readonly<Record<string, string>> {
  const { flags, mtu, mac, kind, attrs, master } = link;
  return {
    state: flags & IFF_UP ? 'up' : 'down',
    mtu: String(mtu),
    // A bridge without a configured address takes a port's address, which no plugin decides.
    ...(kind === 'bridge' || mac === undefined ? {} : { mac }),
    promisc: onOff(flags & IFF_PROMISC),
    allmulti: onOff(flags & IFF_ALLMULTI),
    txqlen: String(attrs.txqlen ?? 0),
    master: master === 0 ? 'none' : nameOf(master),
    ...portStateOf(attrs.linkinfo?.portData),
  };
}

function portStateOf(port: unknown): Record<string, string> {
  if (port === null || typeof port !== 'object' || port instanceof Uint8Array) return {};
  const { hairpin, isolated } = port as { hairpin?: number; isolated?: number };
  return { hairpin: onOff(hairpin ?? 0), isolated: onOff(isolated ?? 0) };
}

function onOff(value: number): string {
  return value ? 'on' : 'off';
}

/** Without IPv6 link-local addresses, which the kernel adds and removes with their device. */
function describeAddresses({ addresses }: Tables, nameOf: NameOf): StateObject[] {
  return addresses
    .filter(({ cidr, scope }) => cidr.ip.family === 4 || scope !== RT_SCOPE_LINK)
    .map(({ cidr, index }) => {
      const words = `${renderCidr(cidr)} on ${nameOf(index)}`;
      return {
        key: `address ${words}`,
        words,
        parent: deviceKey(nameOf(index)),
        // A loopback device that has been up keeps 127.0.0.1, which the kernel assigned.
        ...(nameOf(index) === 'lo' ? {} : { shape: `IPv${cidr.ip.family} address` }),
      };
    });
}

/** Unicast routes of all tables, without those that the kernel adds for every address. */
function describeRoutes({ addresses, routes }: Tables, nameOf: NameOf): StateObject[] {
  const connected = new Set(addresses.map(({ cidr, index }) => `${renderCidr(subnetOf(cidr))} ${index}`));
  return routes
    .filter(route => route.gateway !== undefined || !connected.has(`${renderCidr(route.dst)} ${route.oif}`))
    .filter(route => !isLinkLocal(route))
    .map(route => {
      const words = renderRoute(route, nameOf);
      const shape = `IPv${route.dst.ip.family} route`;
      return { key: words, words, parent: deviceKey(nameOf(route.oif)), shape };
    });
}

function renderRoute(route: Route, nameOf: NameOf): string {
  const { dst, gateway, oif, table = RT_TABLE_MAIN, priority } = route;
  const parts = [
    `route ${dst.prefix === 0 && gateway ? 'default' : renderCidr(dst)}`,
    ...(gateway === undefined ? [] : [`via ${renderIp(gateway)}`]),
    `on ${nameOf(oif)}`,
    ...(table === RT_TABLE_MAIN ? [] : [`in table ${table}`]),
    // 1024 is the kernel's default for IPv6.
    ...(priority === undefined || priority === 1024 ? [] : [`metric ${priority}`]),
  ];
  return parts.join(' ');
}

/** fe80::/64 and multicast: created for every device that comes up. */
function isLinkLocal({ dst, gateway }: Route): boolean {
  if (dst.ip.family !== 6 || gateway !== undefined) return false;
  const text = renderCidr(dst);
  return text === 'fe80::/64' || text.startsWith('ff00::');
}

/** Configured qdiscs, and the filters of those for incoming packets. */
function describeTrafficControl(tables: Tables, nameOf: NameOf): StateObject[] {
  // The kernel's default qdiscs have no handle.
  return tables.qdiscs
    .filter(qdisc => qdisc.handle !== 0)
    .flatMap(qdisc => {
      const device = nameOf(qdisc.index);
      const parent = deviceKey(device);
      const filters =
        qdisc.kind === 'ingress' || qdisc.kind === 'clsact'
          ? tables.ask(NETLINK_ROUTE, socket => listIngressFilters(socket, qdisc.index))
          : [];
      return [
        {
          key: `qdisc ${device} ${qdisc.parent}`,
          words: `${describeQdisc(qdisc)} on ${device}`,
          parent,
          shape: `qdisc of kind ${qdisc.kind}`,
        },
        ...filters.map((filter, i) => ({
          key: `filter ${device} ${filter.preference} ${i}`,
          words: `${describeFilter(filter, nameOf)} on ${device}`,
          parent,
          shape: `filter of kind ${filter.kind}`,
        })),
      ];
    });
}

function describeQdisc({ kind, tbf }: Qdisc): string {
  return tbf === undefined ? kind : `${kind} ${renderRate(tbf.rateBytes * 8)}`;
}

function describeFilter({ kind, redirectAllTo }: Filter, nameOf: NameOf): string {
  return redirectAllTo === undefined ? `filter ${kind}` : `redirect to ${nameOf(redirectAllTo)}`;
}
