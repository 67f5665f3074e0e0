// What exists at one moment in a namespace and among the lab's files, and how is each object described?

import { createHash } from 'node:crypto';
import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { attempt } from '../cni/errors.ts';
import { renderCidr, renderIp, subnetOf } from '../net/ip.ts';
import { decodeFields, renderFields, type TypeNames, typeLength, typeNamesOf } from '../netlink/nft/table.ts';
import { RT_SCOPE_LINK } from '../netlink/rtnl/addr.ts';
import { listIngressFilters } from '../netlink/rtnl/filter.ts';
import { IFF_ALLMULTI, IFF_PROMISC, IFF_UP, type Link } from '../netlink/rtnl/link.ts';
import { type Route, RT_TABLE_MAIN } from '../netlink/rtnl/route.ts';
import { renderRule } from '../netlink/rtnl/rule.ts';
import { NETLINK_ROUTE } from '../netlink/socket.ts';
import { askOn, keyOf, Tables } from '../netlink/tables.ts';
import { inNetns, type Netns } from '../sys/netns.ts';
import { findSysctl } from '../sys/sysctl.ts';
import { type KernelState, type State, type StateObject, stateOf } from './diff.ts';
import type { Namespace } from './host.ts';
import { renderRate } from './words.ts';

export type NameOf = (index: number) => string;

/** Names of the devices of a namespace, for describing what is attached to them. */
export function namesIn({ links }: Tables): NameOf {
  const names = new Map(links.map(link => [link.index, link.name]));
  return index => names.get(index) ?? `device ${index}`;
}

/** Devices and what belongs to them, without what the kernel makes itself; and the policy rules. */
function describeDevices(tables: Tables): StateObject[] {
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
  const configured = tables.qdiscs.filter(({ handle }) => handle !== 0);
  return configured.flatMap(({ index, kind, parent: at, tbf }) => {
    const device = nameOf(index);
    const parent = deviceKey(device);
    const limited = tbf === undefined ? kind : `${kind} ${renderRate(tbf.rateBytes * 8)}`;
    const words = `${limited} on ${device}`;
    const filters =
      kind === 'ingress' || kind === 'clsact'
        ? tables.ask(NETLINK_ROUTE, socket => listIngressFilters(socket, index))
        : [];
    return [
      { key: `qdisc ${device} ${at}`, words, parent, shape: `qdisc of kind ${kind}` },
      ...filters.map((filter, i) => {
        const { preference, redirectAllTo: to } = filter;
        const does = to === undefined ? `filter ${filter.kind}` : `redirect to ${nameOf(to)}`;
        const key = `filter ${device} ${preference} ${i}`;
        return { key, words: `${does} on ${device}`, parent, shape: `filter of kind ${filter.kind}` };
      }),
    ];
  });
}

/** linux/netfilter/nf_tables.h, enum nft_set_flags: sets that are constants of one rule. */
const NFT_SET_ANONYMOUS = 0x1;

/** Tables, and sets and maps with their elements: what compares without an order. */
export function describeUnordered(tables: Tables): StateObject[] {
  return [...describeTables(tables), ...describeSets(tables)];
}

function describeTables({ nftTables }: Tables): StateObject[] {
  return nftTables.map(table => {
    const words = `table ${keyOf(table)}`;
    return { key: words, words, shape: words };
  });
}

function describeChains({ nftChains }: Tables): StateObject[] {
  return nftChains.map(({ table, attrs: { name = '' } }) => {
    const parent = `table ${keyOf(table)}`;
    return {
      key: `chain ${parent} ${name}`,
      words: `chain ${name} in ${parent}`,
      parent,
      counted: ['chain', 'chains'],
      shape: `chain ${collapse(name)} in ${parent}`,
    };
  });
}

function describeRules({ nftRules }: Tables): StateObject[] {
  return nftRules.map(({ table, attrs: { chain = '', handle, comment, expressions = [] } }) => {
    const parent = `table ${keyOf(table)}`;
    const target = findChain(expressions);
    const leads = target === undefined ? '' : ` jumps to ${collapse(target)}`;
    return {
      key: `rule ${parent} ${chain} ${handle}`,
      words: `rule in chain ${chain} of ${parent}${comment === undefined ? '' : ` "${comment}"`}`,
      parent,
      counted: ['rule', 'rules'],
      shape: `rule in chain ${collapse(chain)} of ${parent}${leads}`,
    };
  });
}

function describeSets(tables: Tables): StateObject[] {
  return tables.nftSets.flatMap(({ table, attrs }) => {
    const { name = '', flags = 0, keyType = 0, keyLength = 0, dataType, dataLength = 0 } = attrs;
    if (flags & NFT_SET_ANONYMOUS) return [];
    const parent = `table ${keyOf(table)}`;
    const set: StateObject = {
      key: `set ${parent} ${name}`,
      words: `${dataType === undefined ? 'set' : 'map'} ${name} in ${parent}`,
      parent,
      counted: ['set', 'sets'],
      shape: `set ${name} in ${parent}`,
    };
    const keyTypes = typesOf(keyType, keyLength);
    const dataTypes = dataType === undefined ? undefined : typesOf(dataType, dataLength);
    const elements = (tables.contentsOf(table, name) ?? []).map((element): StateObject => {
      const key = renderValue(keyTypes, element.key);
      const data = element.verdict?.chain ?? renderValue(dataTypes, element.value);
      const own = data === '' ? key : `${key} → ${data}`;
      const comment = element.comment === undefined ? '' : ` "${element.comment}"`;
      return {
        key: `element ${keyOf(table)} ${name} ${key}`,
        words: `${own} in ${name}`,
        parent,
        counted: ['element', 'elements'],
        shape: `element in ${keyOf(table)} ${name}`,
        state: { element: `${own}${comment}` },
      };
    });
    return [set, ...elements];
  });
}

/** Undefined for types of other programs, whose values are shown as bytes. */
function typesOf(id: number, length: number): TypeNames | undefined {
  const types = typeNamesOf(id);
  return types && typeLength(types) === length ? types : undefined;
}

function renderValue(types: TypeNames | undefined, value: Uint8Array | undefined): string {
  if (value === undefined) return '';
  return types ? renderFields(decodeFields(types, value)) : value.toHex();
}

/** The chain named by a verdict anywhere in a rule. */
function findChain(value: unknown): string | undefined {
  if (value === null || typeof value !== 'object' || value instanceof Uint8Array) return undefined;
  if ('chain' in value && typeof value.chain === 'string') return value.chain;
  for (const member of Object.values(value)) {
    const found = findChain(member);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Chains that exist once per container have its digest in their name. */
function collapse(name: string): string {
  return name.replace(/[0-9a-f]*\d[0-9a-f]*/gi, '#');
}

/**
 * All files in the directories that were empty when the lab began.
 * @param skip paths that belong to the lab itself, or show the machine's files
 */
export function readFiles(dirs: readonly string[], skip: readonly string[]): StateObject[] {
  return dirs.flatMap(dir => filesBelow(dir, skip)).map(describeFile);
}

/** Paths of the files below a directory; one that has been deleted since has none. @param skip paths that are left out, with all below them */
export function filesBelow(dir: string, skip: readonly string[]): string[] {
  const entries = attempt(() => readdirSync(dir, { withFileTypes: true })) ?? [];
  return entries.flatMap(entry => {
    const path = join(dir, entry.name);
    if (skip.includes(path)) return [];
    return entry.isDirectory() ? filesBelow(path, skip) : [path];
  });
}

function describeFile(path: string): StateObject {
  return {
    key: `file ${path}`,
    words: `file ${path}`,
    parent: dirname(path),
    counted: ['file', 'files'],
    // Files that exist once per container have an address or an id in their name.
    shape: `file ${path.replace(/[^/]*$/, shapeOfName)}`,
  };
}

/** `10.1.0.2` and `fd00::2` become `#`, `last_reserved_ip.0` becomes `last_reserved_ip.#`. */
function shapeOfName(name: string): string {
  return name.replace(/[0-9a-f]*\d[0-9a-f]*/gi, '#').replace(/#([.:-]+#)*/g, '#');
}

/** Forwarding is what turns a host into a router. */
const WATCHED = ['net/ipv4/ip_forward', 'net/ipv6/conf/all/forwarding', 'net/ipv4/conf/all/route_localnet'];

/** Values of the parameters that every lab watches and of those that the configuration names. */
function readSysctls(netns: Netns, more: readonly string[]): StateObject[] {
  return inNetns(netns, () =>
    [...new Set([...WATCHED, ...more])].flatMap(path => {
      const value = findSysctl(path);
      if (value === undefined) return [];
      const state = { [path]: value.replace(/\s+/g, ' ') };
      // Never judged: they belong to the whole host, or end with their namespace.
      return { key: `sysctl ${path}`, words: `${path} = ${value}`, state };
    }),
  );
}

/** Everything in one namespace; takes a few milliseconds. @param sysctls to include, besides those that turn a host into a router */
export function readNetnsState(tables: Tables, netns: Netns, sysctls: readonly string[]): State {
  // Same as: `nft list ruleset`, one line per object
  const describeNft = [describeTables, describeChains, describeSets, describeRules];
  const rules = describeNft.flatMap(describe => describe(tables));
  return stateOf([...describeDevices(tables), ...rules, ...readSysctls(netns, sysctls)]);
}

/** The same of a namespace of the lab. */
export function readNamespace(place: Namespace, sysctls: readonly string[]): State {
  return readNetnsState(new Tables(askOn(place)), place.netns, sysctls);
}

/** What a state includes or skips besides namespaces and the directory of its host. */
export interface Watch {
  readonly dirs?: readonly string[];
  readonly skip?: readonly string[];
  readonly sysctls?: readonly string[];
}

/** The state of namespaces by name, and of files with a digest of their contents. */
export function readPlaces(
  places: readonly (readonly [name: string, place: Namespace])[],
  { dirs, skip, sysctls }: Required<Watch>,
): KernelState {
  const states = places.map(([name, place]) => {
    const state = [...readNamespace(place, sysctls)].filter(([key]) => !OF_LOOPBACK.test(key));
    return [name, new Map(state)] as const;
  });
  return new Map([...states, ['files', stateOf(readFiles(dirs, skip).map(withDigest))]]);
}

/** Addresses that the loopback device gets when it first comes up and then keeps. */
const OF_LOOPBACK = /^address (127\.0\.0\.1\/8|::1\/128) on lo$/;

function withDigest(file: StateObject): StateObject {
  const found = attempt(() => contentOf(file.key.replace(/^file /, ''))) ?? 'unreadable';
  const content =
    typeof found === 'string' ? found : createHash('sha256').update(found).digest('hex').slice(0, 8);
  return { ...file, state: { content } };
}

/**
 * The bytes of a file, or what it is instead: reading a pipe would wait for a writer, and a device may have no end.
 * @throws Error of the file system
 */
export function contentOf(path: string): Buffer | string {
  const stat = lstatSync(path);
  if (stat.isSymbolicLink()) return `link to ${readlinkSync(path)}`;
  if (stat.isFile()) return readFileSync(path);
  return stat.isFIFO() ? 'pipe' : stat.isSocket() ? 'socket' : 'device';
}
