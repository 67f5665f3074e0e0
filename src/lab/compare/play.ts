// How does one twin play a scene, and what can be observed in its namespaces, under names that do not depend on any order?
import { readFileSync } from 'node:fs';
import type { Conflist } from '../../chain/config/conflist.ts';
import type { Attachment, Runtime } from '../../chain/run/runtime.ts';
import type { CniArgs } from '../../cni/env.ts';
import { attempt, toCniError } from '../../cni/errors.ts';
import { defined, type JsonObject } from '../../cni/json.ts';
import { type Ip, isLinkLocal, renderCidr, renderIp } from '../../net/ip.ts';
import { getProgram, runProgram } from '../../netlink/iptables/program.ts';
import type { Table } from '../../netlink/nft/message.ts';
import {
  IFA_F_PERMANENT,
  IFA_F_TENTATIVE,
  listAddresses,
  RT_SCOPE_LINK,
  removeAddress,
} from '../../netlink/rtnl/addr.ts';
import { listFilters } from '../../netlink/rtnl/filter.ts';
import { findLink, type Link } from '../../netlink/rtnl/link.ts';
import { listClasses } from '../../netlink/rtnl/qdisc.ts';
import { type Route, RT_TABLE_MAIN } from '../../netlink/rtnl/route.ts';
import { renderRule } from '../../netlink/rtnl/rule.ts';
import { NETLINK_ROUTE } from '../../netlink/socket.ts';
import { askOn, keyOf, Tables } from '../../netlink/tables.ts';
import { inNetns, type Netns } from '../../sys/netns.ts';
import { findSysctl } from '../../sys/sysctl.ts';
import { forNeighbour } from '../configured.ts';
import {
  createLab,
  createNamespace,
  FRESH_DIRS,
  type Namespace,
  notOfPlugins,
  removeContainer,
  removeNamespace,
} from '../host.ts';
import { play, runChain } from '../play.ts';
import { contentOf, describeUnordered, filesBelow, type NameOf, namesIn, stateOfDevice } from '../state.ts';
import {
  type Moment,
  type Observation,
  type Observed,
  type Scene,
  type SceneRecord,
  type Side,
  type Sight,
  type Step,
  type StepReply,
  toText,
} from './scene.ts';

interface Twin {
  readonly list: Conflist;
  readonly side: Side;
  /** How each side's executables are run. */
  readonly runtimes: Readonly<Record<Side, Pick<Runtime, 'pluginDirs' | 'env' | 'exec'>>>;
  readonly ifname: string;
  readonly args: CniArgs;
  readonly capabilities: JsonObject;
  /** Paths in the fresh directories that were not created by plugins. */
  readonly shown: readonly string[];
}

const OF_THE_RUNNER = ['/var/lib/cni/results', '/var/lib/catena'];
const DIGEST_ABOVE_BYTES = 16_384;
/** A busy machine destroys namespaces one after another. */
const GONE_WITHIN_MS = 60_000;
const NAMES = { 1: 'container', 2: 'second container' } as const;

/** Plays a scene in the calling process's namespaces, which must be new and not shared. */
export async function playScene(scene: Scene, twin: Twin): Promise<SceneRecord> {
  const { list, side, runtimes, ifname } = twin;
  const { host } = createLab();
  const containers = new Map<string, Namespace>([
    [NAMES[1], createNamespace('one')],
    [NAMES[2], createNamespace('two')],
  ]);
  const ofEach = <T>(look: (place: Namespace) => T) =>
    Object.fromEntries([['host', host] as const, ...containers].map(([name, place]) => [name, look(place)]));
  const look = (): Sight => ({ places: ofEach(observeNetns), files: readContents(twin.shown) });
  const perform = async (step: Step, runtime: Runtime): Promise<unknown> => {
    const who = NAMES[step.who ?? 1];
    if (step.verb !== 'damage' && step.verb !== 'remove namespace')
      return await runChain(step.verb, list, attachmentTo(who, step, twin), runtime);
    const place = containers.get(who);
    if (place === undefined) return undefined;
    if (step.verb === 'damage') return damage(place, ifname);
    containers.delete(who);
    return await removeContainer(host, place, () => removeNamespace(place), GONE_WITHIN_MS);
  };
  const namespaces = ofEach(({ netns }) => String(netns.ino));
  const [began, before] = [Date.now(), look()];
  const moments: Moment[] = [];
  for (const step of scene.steps) {
    const { verb, name = verb, by = side } = step;
    const played = await play(hook => perform(step, { ...runtimes[by], ...hook }), look);
    const { plugins, error, durationMs, sight } = played;
    const ofPlugins = plugins.map(({ event, ...seen }) => {
      const { verb: own, index, durationMs: took } = event;
      return { step: name, verb: own, index, answer: replyOf(event), durationMs: took, ...seen };
    });
    moments.push(...ofPlugins, { step: name, verb, answer: replyOf({ error }), durationMs, sight });
  }
  return { namespaces, began, ended: Date.now(), before, moments };
}

function attachmentTo(who: string, { withoutNetns }: Step, { ifname, args, capabilities }: Twin): Attachment {
  const isFirst = who === NAMES[1];
  const name = isFirst ? 'one' : 'two';
  const given = { args, capabilityArgs: capabilities };
  return {
    containerId: `catena-compare-${name}`,
    netns: withoutNetns ? '' : `/run/netns/${name}`,
    ifname,
    ...(isFirst ? given : forNeighbour(given)),
  };
}

/** Removes the addresses, as a process in the container might do. */
function damage({ route }: Namespace, ifname: string): void {
  const link = findLink(route, ifname);
  if (link === undefined) return;
  for (const { cidr } of listAddresses(route, link.index)) removeAddress(route, link.index, cidr);
}

function replyOf({ result, error }: { readonly result?: unknown; readonly error?: unknown }): StepReply {
  if (error === undefined) return { failed: false, ...defined({ result }) };
  const { code, message } = toCniError(error);
  return { failed: true, code, message };
}

/** Every file that plugins wrote, with its content. */
function readContents(shown: readonly string[]): Record<string, string> {
  const skip = [...OF_THE_RUNNER, ...notOfPlugins(shown)];
  const paths = FRESH_DIRS.flatMap(dir => filesBelow(dir, skip));
  return Object.fromEntries(paths.map(path => [path, textOf(path)]));
}

function textOf(path: string): string {
  try {
    const bytes = contentOf(path);
    if (typeof bytes === 'string') return bytes;
    if (bytes.length <= DIGEST_ABOVE_BYTES && !bytes.includes(0)) return bytes.toString();
    return `${bytes.length} bytes, ${new Bun.CryptoHasher('sha256').update(bytes).digest('hex')}`;
  } catch (thrown) {
    return `unreadable: ${(thrown as NodeJS.ErrnoException).code}`;
  }
}

/** Everything in a namespace except transient state: counters, dynamic neighbours, duplicate address detection. */
function observeNetns(place: Namespace): Observation {
  const tables = new Tables(askOn(place));
  const nameOf = namesIn(tables);
  const links = tables.links.map(link => {
    const { name, kind, attrs, mac } = link;
    const { master = 'none', ...state } = stateOfDevice(link, nameOf);
    const alias = attrs.alias ? { alias: attrs.alias } : {};
    const object = { kind: kind || 'device', ...state, ...optionsOf(link), ...(mac ? { mac } : {}), master };
    return [name, { ...object, ...alias }] as const;
  });
  const iptables = observeIptables(place.netns, tables);
  return {
    link: numbered(links),
    address: numbered(observeAddresses(tables, nameOf)),
    route: numbered(tables.routes.flatMap(one => observeRoute(one, nameOf))),
    rule: numbered(tables.policyRules.map(rule => [`IPv${rule.family} ${renderRule(rule)}`, {}] as const)),
    neighbour: numbered(
      tables.neighbours
        .filter(({ ip }) => !isMulticast(ip))
        .map(({ index, ip, mac = 'none' }) => [`${renderIp(ip)} on ${nameOf(index)}`, { mac }] as const),
    ),
    'traffic control': numbered(observeTrafficControl(tables, nameOf)),
    nftables: numbered(observeNft(tables, iptables.tables)),
    iptables: numbered(iptables.rules),
    sysctl: observeSysctls(place.netns),
  };
}

/** Options of its kind: the mode of a macvlan, the id of a VLAN. Those of a bridge that have no name here are timers as well. */
function optionsOf({ attrs: { linkinfo } }: Link): Observed {
  const { data = {} } = linkinfo ?? {};
  return data instanceof Uint8Array ? {} : flatten({ ...data, unknown: undefined });
}

/** Maps names to objects; repeated names get a number. */
function numbered(named: readonly (readonly [string, Observed])[]): Record<string, Observed> {
  const all: Record<string, Observed> = {};
  for (const [name, object] of named) {
    let unique = name;
    for (let n = 2; unique in all; n++) unique = `${name} #${n}`;
    all[unique] = object;
  }
  return all;
}

function observeAddresses({ addresses }: Tables, nameOf: NameOf) {
  return addresses
    .filter(({ cidr, scope }) => !(cidr.ip.family === 6 && scope === RT_SCOPE_LINK))
    .map(({ cidr, index, scope, flags, broadcast, label }) => {
      const steady = flags & ~(IFA_F_PERMANENT | IFA_F_TENTATIVE);
      const object = { scope, flags: steady, broadcast: broadcast && renderIp(broadcast), label };
      return [`${renderCidr(cidr)} on ${nameOf(index)}`, flatten(object)] as const;
    });
}

function observeRoute(route: Route, nameOf: NameOf): (readonly [string, Observed])[] {
  const { dst, oif, gateway, ways, source, table = RT_TABLE_MAIN, scope, priority, mtu, advmss } = route;
  const { tos, onlink, from } = route;
  if (dst.ip.family === 6 && (isLinkLocal(dst.ip) || isMulticast(dst.ip))) return [];
  const where = dst.prefix === 0 ? `default IPv${dst.ip.family}` : renderCidr(dst);
  const name = `${where} on ${nameOf(oif)}${table === RT_TABLE_MAIN ? '' : ` in table ${table}`}`;
  const nexthops = ways?.map(
    way => `${way.gateway ? renderIp(way.gateway) : 'direct'} on ${nameOf(way.oif)}`,
  );
  const object = {
    via: gateway ? renderIp(gateway) : (nexthops?.join(', ') ?? 'none'),
    source: source && renderIp(source),
    scope: scope ?? 0,
    metric: priority ?? 0,
    mtu: mtu || undefined,
    advmss: advmss || undefined,
    tos: tos || undefined,
    onlink: onlink || undefined,
    from: from && renderCidr(from),
  };
  return [[name, flatten(object)]];
}

/** The kernel adds these entries itself. */
function isMulticast({ family, value }: Ip): boolean {
  return family === 6 ? value >> 120n === 0xffn : value >> 28n === 0xen;
}

/**
 * Tables, chains, rules, sets and elements.
 * @param hidden tables that are observed in another way: `ip nat`
 */
function observeNft(tables: Tables, hidden: ReadonlySet<string>): (readonly [string, Observed])[] {
  const isShown = ({ table }: { readonly table: Table }) => !hidden.has(keyOf(table));
  const objects = describeUnordered(tables).flatMap(({ key, words, state, parent }) => {
    if (hidden.has((parent ?? key).replace(/^table /, ''))) return [];
    return [[`${words}${key.startsWith('element') ? ` of ${parent}` : ''}`, state ?? {}] as const];
  });
  const chains = tables.nftChains.filter(isShown).map(({ table, attrs }) => {
    const { name = '', table: _, unknown: __, ...more } = attrs;
    const shown = Object.entries(more).filter(([key]) => !VOLATILE.includes(key));
    const texts = Object.fromEntries(shown.map(([key, value]) => [key, toText(value)]));
    return [`chain ${name} in table ${keyOf(table)}`, texts] as const;
  });
  const places = new Map<string, number>();
  const rules = tables.nftRules.filter(isShown).map(({ table, attrs }) => {
    const { chain = '', comment, expressions = [] } = attrs;
    const chainName = `chain ${chain} in table ${keyOf(table)}`;
    const place = (places.get(chainName) ?? 0) + 1;
    places.set(chainName, place);
    const steps = expressions.filter(({ name }) => name !== 'counter').map(toText);
    const object = { steps: steps.join(' '), ...(comment ? { comment } : {}) };
    return [`rule ${place} of ${chainName}`, object] as const;
  });
  return [...objects, ...chains, ...rules];
}

/** Numbers that the kernel assigns or counts. */
const VOLATILE = ['handle', 'use', 'counters', 'id'];

/** Configured objects only; the kernel's default qdiscs have no handle. */
function observeTrafficControl(tables: Tables, nameOf: NameOf): (readonly [string, Observed])[] {
  return tables.qdiscs
    .filter(({ handle }) => handle !== 0)
    .flatMap(({ index, handle, parent, kind, ...options }) => {
      const device = nameOf(index);
      const filters = tables.ask(NETLINK_ROUTE, socket =>
        listFilters(socket, index, handle).filter(({ matches }) => matches),
      );
      const classes = kind === 'htb' ? tables.ask(NETLINK_ROUTE, socket => listClasses(socket, index)) : [];
      return [
        [`qdisc ${hex(handle)} at ${hex(parent)} of ${device}`, { kind, ...flatten(options) }] as const,
        ...classes.map(one => [`class ${hex(one.handle)} of ${device}`, flatten(one.htb)] as const),
        ...filters.map(filter => {
          const { classid, redirectAllTo, selector } = filter;
          const object = {
            kind: filter.kind,
            protocol: hex(filter.protocol),
            class: hex(classid),
            redirect: redirectAllTo === undefined ? undefined : nameOf(redirectAllTo),
            selector: selector && toText(selector),
          };
          return [`filter of preference ${filter.preference} on ${device}`, flatten(object)] as const;
        }),
      ];
    });
}

/** Flattens nested properties under joined names: `{tbf: {rateBytes: 5}}` becomes `{'tbf rateBytes': '5'}`. */
function flatten(value: unknown, name: readonly string[] = []): Observed {
  if (value === undefined) return {};
  if (value === null || typeof value !== 'object' || value instanceof Uint8Array)
    return { [name.join(' ')]: toText(value) };
  return Object.assign({}, ...Object.entries(value).map(([key, member]) => flatten(member, [...name, key])));
}

function hex(value: number): string {
  return `0x${value.toString(16)}`;
}

/** Programs that print rules, their table family, and for the legacy packet filter the kernel's list of tables. */
const SAVERS = [
  { family: 'ip', program: 'iptables-nft-save', older: undefined },
  { family: 'ip6', program: 'ip6tables-nft-save', older: undefined },
  { family: 'ip', program: 'iptables-legacy-save', older: '/proc/thread-self/net/ip_tables_names' },
  { family: 'ip6', program: 'ip6tables-legacy-save', older: '/proc/thread-self/net/ip6_tables_names' },
] as const;

/** Rules, and the nf_tables tables that contain them. */
interface Iptables {
  readonly rules: readonly (readonly [string, Observed])[];
  /** For example `ip nat`: nf_tables would show the same rules there in an unreadable form. */
  readonly tables: ReadonlySet<string>;
}

/** Tables that iptables creates in nf_tables. */
const OWN_TABLES = /^ip6? (filter|nat|mangle|raw|security)$/;

/** Runs the installed programs, but only where such rules exist. */
function observeIptables(netns: Netns, tables: Tables): Iptables {
  const present = tables.nftTables.map(keyOf);
  const rules: (readonly [string, Observed])[] = [];
  const shown = new Set<string>();
  for (const { family, program, older } of SAVERS) {
    // Running a program costs more than the rest of an observation.
    if (older === undefined && !present.some(name => OWN_TABLES.test(name) && name.startsWith(`${family} `)))
      continue;
    const text = inNetns(netns, () => save(program, older));
    let table = '';
    for (const line of text.split('\n')) {
      if (line.startsWith('*')) {
        table = line.slice(1);
        if (older === undefined) shown.add(`${family} ${table}`);
      } else if (line.startsWith(':')) {
        // Packet and byte counts follow in brackets.
        const [chain = '', policy = ''] = line.slice(1).split(' ');
        // A built-in chain that accepts everything is equivalent to none.
        if (policy !== 'ACCEPT') rules.push([`${family} ${table}: chain ${chain}`, { policy }]);
      } else if (line.startsWith('-')) rules.push([`${family} ${table}: ${line}`, {}]);
    }
  }
  return { rules, tables: shown };
}

/** Running a legacy program would create its tables, so first read from the kernel whether there are any. */
function save(name: string, older: string | undefined): string {
  const saved = attempt(() => {
    if (older !== undefined && readFileSync(older, 'utf8').trim() === '') return '';
    return runProgram(`list rules with "${name}"`, [getProgram([name])]);
  });
  // A program that is not installed or not permitted has made no rules here.
  return saved ?? '';
}

const ROOT = '/proc/sys/net';
/** Tables of neighbours have hundreds of parameters, which no plugin sets. */
const LEFT_OUT = [4, 6].map(family => `${ROOT}/ipv${family}/neigh`);
/** Counters, secrets, and values that the kernel derives from the available memory. */
const UNSTEADY =
  /^netfilter\/nf_conntrack_(count|max|buckets|expect_max)$|_usage$|stable_secret$|^ipv4\/(tcp|udp)_r?mem$|_mem$/;

/** Everything below /proc/sys/net of the namespace, by path; unreadable parameters are omitted. */
function observeSysctls(netns: Netns): Readonly<Record<string, Observed>> {
  return inNetns(netns, () => {
    const paths = filesBelow(ROOT, LEFT_OUT).map(path => path.slice(ROOT.length + 1));
    const found = paths.flatMap(path => {
      const value = UNSTEADY.test(path) ? undefined : findSysctl(`net/${path}`);
      return value === undefined ? [] : [[path, { value: value.trim().replace(/\s+/g, ' ') }] as const];
    });
    return Object.fromEntries(found);
  });
}
