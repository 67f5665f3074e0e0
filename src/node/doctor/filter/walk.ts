// Which way does a packet take through a base chain, as far as its rules can be judged, and do they let a container's packets through?
import { defined } from '../../../cni/json.ts';
import { asWord } from '../../../net/interface.ts';
import {
  type Expression,
  META,
  NF_ACCEPT,
  NF_DROP,
  NFT_GOTO,
  NFT_JUMP,
  NFT_RETURN,
} from '../../../netlink/nft/expr.ts';
import type { Chain, Rule } from '../../../netlink/nft/table.ts';
import type { FilterTable } from '../../../netlink/tables.ts';
import { groupBy, type NodeView, type RoutedPod } from '../finding.ts';
import {
  type Byte,
  eitherOf,
  markOf,
  metaBytes,
  NO_LABELS,
  type Packet,
  PROTOCOLS,
  payloadBytes,
  unknown,
} from './packet.ts';
import { type Action, judgeRule } from './rule.ts';

/** Whether the packet comes so far. */
type Arrival = 'surely' | 'perhaps' | 'never';

interface RulePlace {
  readonly chain: string;
  readonly handle: bigint;
}

/** A rule, or without a handle the policy of a chain, that takes a packet away from its container, or replaces its source. */
export interface Fate {
  readonly table: FilterTable['table'];
  /** The chain in which the packet entered the table. */
  readonly base: string;
  readonly chain: string;
  readonly handle: bigint | undefined;
  /** False if a rule on the way cannot be judged. */
  readonly isSure: boolean;
  /** That rule, if it is not sure. */
  readonly doubt?: RulePlace | undefined;
  /** `translate`: to another address than that of the container. */
  readonly what: 'drop' | 'translate' | 'source';
  readonly to?: string | undefined;
  readonly toPort?: number | undefined;
  /** What the rule made the labels of the connection. */
  readonly labels?: readonly Byte[] | undefined;
}

/** The command that deletes the rule of a fate that is no policy's. */
export function ruleRemoval(fate: Fate): string {
  return `nft delete rule ${inNft(fate.table, fate.chain)} handle ${fate.handle}`;
}

/** A chain, or with no name of one a table, as the command line of nft names it. */
export function inNft({ family, name }: Fate['table'], ...chain: string[]): string {
  return [family, name, ...chain].map(asWord).join(' ');
}

/** The kernel allows chains as many jumps in each other (NFT_JUMP_STACK_SIZE). */
const MOST_JUMPS = 16;

/** Ways through the chains of a base chain, by the mark of the packet: behind as many, its mark is not followed. */
const MOST_WAYS = 1_000;

interface Walked {
  /** None if it passes. */
  readonly fates: Fate[];
  /** The mark of the packet behind it. */
  readonly mark: readonly Byte[];
}

/** @param target the address to which a translation is right */
export function walk(table: FilterTable, base: Chain, packet: Packet, target?: string): Walked {
  const way = new Way(table, base, packet, target);
  const end = way.through(base.name, 'surely', 0);
  if (base.drops && end !== 'never') way.note(base.name, undefined, end, { what: 'drop' });
  return { fates: way.fates, mark: markOf(way.packet) };
}

interface End {
  readonly arrival: Arrival;
  readonly packet: Packet;
}

/** One packet in one base chain and those that it jumps to. */
class Way {
  readonly fates: Fate[] = [];
  /** With its mark as rules have made it. */
  packet: Packet;
  readonly #table: FilterTable;
  readonly #base: string;
  readonly #target: string | undefined;
  readonly #ends = new Map<string, End>();
  /** The first rule that cannot be judged. */
  #doubt: RulePlace | undefined;

  constructor(table: FilterTable, { name }: Chain, packet: Packet, target: string | undefined) {
    this.#table = table;
    this.#base = name;
    this.packet = packet;
    this.#target = target;
  }

  note(
    chain: string,
    handle: bigint | undefined,
    arrival: Arrival,
    fate: Pick<Fate, 'what' | 'to' | 'toPort' | 'labels'>,
  ): void {
    const place = { table: this.#table.table, base: this.#base, chain, handle };
    const isSure = arrival === 'surely';
    this.fates.push({ ...place, isSure, ...fate, ...(isSure ? {} : defined({ doubt: this.#doubt })) });
  }

  /**
   * Each chain is walked at most once per kind of arrival and mark: what it does to the packet is the same each time, and a few jumps in each of a
   * few chains, which a container with NET_ADMIN may make, would be millions of ways.
   * @returns whether the packet comes to the end of the chain, or returns from it
   */
  through(chain: string, arrival: Arrival, depth: number): Arrival {
    if (depth > MOST_JUMPS || this.#ends.size > MOST_WAYS) this.packet = { ...this.packet, mark: unknown(4) };
    if (depth > MOST_JUMPS) return 'perhaps';
    const way = `${arrival} ${chain} ${markOf(this.packet)}`;
    const known = this.#ends.get(way);
    if (known) {
      this.packet = known.packet;
      return known.arrival;
    }
    const end = this.#throughRules(chain, arrival, depth);
    this.#ends.set(way, { arrival: end, packet: this.packet });
    return end;
  }

  #throughRules(chain: string, arrival: Arrival, depth: number): Arrival {
    const { rules, contents } = this.#table;
    let here = arrival;
    let returned: Arrival = 'never';
    for (const rule of candidatesOf(rules.get(chain) ?? [], this.packet)) {
      if (here === 'never') break;
      // Of the reference's bridge: drops what a container sends under another hardware address than its own, which no packet here has.
      if (rule.comment?.startsWith('macspoofchk-')) continue;
      const { packet } = this;
      const { matches, action, behind } = judgeRule(rule, packet, contents);
      if (behind !== packet)
        this.packet =
          here === 'surely' ? behind : { ...packet, mark: eitherOf(markOf(packet), markOf(behind)) };
      if (matches === false || action === undefined) continue;
      const { handle } = rule;
      if (matches === undefined || action.kind === 'unknown') this.#doubt ??= { chain, handle };
      const taken: Arrival = matches && here === 'surely' ? 'surely' : 'perhaps';
      const { after, back } = this.#act(action, taken, { chain, handle }, depth);
      returned = either(returned, back);
      // What may not have matched goes on to the next rule.
      here = matches ? after : 'perhaps';
    }
    return either(here, returned);
  }

  /** @returns whether the packet comes to the next rule, and whether it returns to the chain before */
  #act(
    action: Action,
    taken: Arrival,
    { chain, handle }: RulePlace,
    depth: number,
  ): { readonly after: Arrival; readonly back: Arrival } {
    const note = (fate: Parameters<Way['note']>[3], arrival = taken) => {
      this.note(chain, handle, arrival, fate);
      return ENDED;
    };
    switch (action.kind) {
      case 'unknown':
        note({ what: 'drop' }, 'perhaps');
        return { after: 'perhaps', back: 'never' };
      case 'drop':
        return note({ what: 'drop' });
      case 'translate': {
        const { to, port: toPort, labels } = action;
        const isRight = to !== undefined && to === this.#target;
        return isRight ? ENDED : note({ what: 'translate', to, toPort, labels });
      }
      case 'source':
        return note({ what: 'source', to: action.to });
    }
    const { code, chain: next = '' } = action.verdict;
    if (code === NF_DROP) return note({ what: 'drop' });
    if (code === NF_ACCEPT) return ENDED;
    if (code === NFT_RETURN) return { after: 'never', back: taken };
    if (code === NFT_JUMP) return { after: this.through(next, taken, depth + 1), back: 'never' };
    if (code === NFT_GOTO) return { after: 'never', back: this.through(next, taken, depth + 1) };
    // NFT_CONTINUE, and NF_QUEUE, which leaves the decision to a process.
    return { after: taken, back: 'never' };
  }
}

const ENDED = { after: 'never', back: 'never' } as const;

function either(a: Arrival, b: Arrival): Arrival {
  if (a === 'surely' || b === 'surely') return 'surely';
  return a === 'perhaps' || b === 'perhaps' ? 'perhaps' : 'never';
}

// A node has tens of thousands of rules, most of which want one address and port, and hundreds of attachments: looked at rule by rule, each
// packet would cost all rules.

/** An expression that loads what the next one compares with a value. Unless they are equal, the rule does not match. */
interface Condition {
  readonly name: string;
  readonly value: Uint8Array;
  load(packet: Packet): readonly Byte[];
}

/** Rules with the same conditions and different values. */
interface Group {
  readonly conditions: readonly Condition[];
  /** By position in the chain. */
  readonly values: Map<number, readonly string[]>;
  /** Positions by the values of those conditions that can be judged for a packet; by which these are. */
  readonly indexes: Map<string, ReadonlyMap<string, readonly number[]>>;
}

interface ChainIndex {
  readonly groups: readonly Group[];
  /** Positions of rules without such a condition. */
  readonly others: readonly number[];
}

const chainIndexes = new WeakMap<readonly Rule[], ChainIndex>();

/** The rules that may match, in order: all that do, and those of which it cannot be told so. */
export function candidatesOf(rules: readonly Rule[], packet: Packet): Rule[] {
  let index = chainIndexes.get(rules);
  if (index === undefined) {
    index = indexOf(rules);
    chainIndexes.set(rules, index);
  }
  const positions = [...index.others, ...index.groups.flatMap(group => findIn(group, packet))];
  return positions.sort((a, b) => a - b).flatMap(position => rules[position] ?? []);
}

function indexOf(rules: readonly Rule[]): ChainIndex {
  const groups = new Map<string, Group>();
  const others: number[] = [];
  for (const [position, rule] of rules.entries()) {
    const conditions = conditionsOf(rule.expressions as readonly Expression[]);
    if (conditions.length === 0) {
      others.push(position);
      continue;
    }
    const name = conditions.map(one => one.name).join();
    const group = groups.get(name) ?? { conditions, values: new Map(), indexes: new Map() };
    group.values.set(
      position,
      conditions.map(({ value }) => value.join('.')),
    );
    groups.set(name, group);
  }
  return { groups: [...groups.values()], others };
}

function conditionsOf(all: readonly Expression[]): Condition[] {
  // A rule that sets the mark does so, whatever its conditions behind that say.
  const marking = all.findIndex(({ name, data }) => name === 'meta' && (data as { sreg?: number }).sreg);
  const expressions = marking === -1 ? all : all.slice(0, marking);
  return expressions.flatMap((one, i): Condition[] => {
    const next = expressions[i + 1];
    if (next?.name !== 'cmp' || next.data instanceof Uint8Array || (next.data?.op ?? 0) !== 0) return [];
    const { sreg = 1, data } = next.data ?? {};
    const value = data?.value;
    if (value === undefined || one.data === undefined || one.data instanceof Uint8Array) return [];
    const { length } = value;
    if (one.name === 'meta' && one.data.sreg === undefined && (one.data.dreg ?? 1) === sreg) {
      const { key = 0 } = one.data;
      // Rules of the same chain may change it.
      if (key === META.mark) return [];
      const load: Condition['load'] = packet => metaBytes(packet, key).slice(0, length);
      return [{ name: `meta ${key} ${length}`, value, load }];
    }
    if (one.name === 'payload' && one.data.dreg === sreg && length <= (one.data.length ?? 0)) {
      const { base = 0, offset = 0 } = one.data;
      const load: Condition['load'] = packet => payloadBytes(packet, base, offset, length);
      return [{ name: `payload ${base} ${offset} ${length}`, value, load }];
    }
    return [];
  });
}

function findIn({ conditions, values, indexes }: Group, packet: Packet): readonly number[] {
  const loaded = conditions.map(one => {
    const bytes = one.load(packet);
    return bytes.length === one.value.length && !bytes.includes(undefined) ? bytes.join('.') : undefined;
  });
  const known = (texts: readonly (string | undefined)[]): string =>
    texts.filter((_, i) => loaded[i] !== undefined).join();
  const which = loaded.map(text => (text === undefined ? '?' : '=')).join('');
  const index =
    indexes.get(which) ?? groupBy([...values.keys()], position => known(values.get(position) ?? []));
  indexes.set(which, index);
  return index.get(known(loaded)) ?? [];
}

/** What befalls a connection that a container depends on. */
export interface PodFate extends Fate {
  readonly pod: RoutedPod;
  /** The port of the host through which it is reached: `8080/tcp`; undefined for connections to the outside. */
  readonly port: string | undefined;
}

/** A host on the Internet. */
export const OUTSIDE = { 4: '1.1.1.1', 6: '2606:4700:4700::1111' } as const;
/** A service that no firewall blocks by intention. */
const OUTSIDE_PORT = 443;
/** As any client chooses one. */
export const CLIENT_PORT = 50_000;

/** Follows one connection from each container to the outside, and one to each of its ports of the host, with the replies. */
export function findFates(
  tables: readonly FilterTable[],
  pods: readonly RoutedPod[],
  node: Pick<NodeView, 'routes' | 'devices'>,
): PodFate[] {
  return pods.flatMap(pod => {
    const uplink = uplinkOf(pod.family, node);
    const out = uplink && followOut(tables, pod, uplink.name);
    const into = pod.ports.map(port => followIn(tables, pod, port, uplink));
    return [out, ...into].flatMap(fate => fate ?? []);
  });
}

type Device = NodeView['devices'][number];

function uplinkOf(
  family: 4 | 6,
  { routes, devices }: Pick<NodeView, 'routes' | 'devices'>,
): Device | undefined {
  const route = routes.findTo({ ip: { family, value: 0n }, prefix: 0 });
  return devices.find(({ name }) => name === route?.device);
}

/** Every address of the host. */
export function isAny(hostIP: string | undefined): hostIP is undefined {
  return hostIP === undefined || hostIP === '0.0.0.0' || hostIP === '::';
}

/** What every connection begins with. */
const FIRST = { sourcePort: CLIENT_PORT, isReply: false, isTranslated: false, labels: NO_LABELS } as const;

type Filter = readonly FilterTable[];

function followOut(tables: Filter, pod: RoutedPod, uplink: string): PodFate | undefined {
  const { family, address, device } = pod;
  const packet: Packet = {
    ...{ ...FIRST, family, iif: device, oif: uplink, protocol: PROTOCOLS.tcp ?? 0 },
    ...{ source: address, destination: OUTSIDE[family], isLocal: false, port: OUTSIDE_PORT },
  };
  const reply = replyTo(packet);
  // It comes to the address that the first packet left with, which is not known.
  const { mark } = pass(tables, 'prerouting', { ...reply, destination: undefined, oif: undefined });
  const fate = worstOf([...leave(tables, pod, packet), ...enter(tables, pod, { ...reply, mark })]);
  return fate && { ...fate, pod, port: undefined };
}

function followIn(
  tables: Filter,
  pod: RoutedPod,
  { hostIP, hostPort, containerPort, protocol }: RoutedPod['ports'][number],
  uplink: Device | undefined,
): PodFate | undefined {
  const { family, address, device } = pod;
  // A port of an address of the other family is not this address's affair.
  if (hostIP !== undefined && hostIP.includes(':') !== (family === 6)) return undefined;
  const own = uplink?.addresses?.find(text => text.includes(':') === (family === 6))?.split('/')[0];
  const packet: Packet = {
    ...{ ...FIRST, family, iif: uplink?.name, oif: undefined, protocol: PROTOCOLS[protocol] ?? 0 },
    ...{ source: OUTSIDE[family], destination: isAny(hostIP) ? own : hostIP, isLocal: true },
    port: hostPort,
  };
  const led: Packet = {
    ...{ ...packet, destination: address, isLocal: false, port: containerPort },
    ...{ isTranslated: true, labels: labelsOf(tables, packet) },
  };
  const { fates, mark } = pass(tables, 'prerouting', packet, led);
  const forwarded = { ...led, oif: device, mark };
  const back = leave(tables, pod, replyTo(forwarded));
  const fate = worstOf([...fates, ...enter(tables, pod, forwarded), ...back]);
  return fate && { ...fate, pod, port: `${hostPort}/${protocol}` };
}

/** From the container, through its bridge and the node. */
function leave(tables: Filter, { port }: RoutedPod, packet: Packet): Fate[] {
  const bridge = cross(tables, ['prerouting', 'input'], port, { ...packet, iif: port, oif: undefined });
  const { fates, mark } = pass(tables, 'prerouting', { ...packet, oif: undefined });
  const drops = fates.filter(({ what }) => what === 'drop');
  return [...bridge, ...drops, ...pass(tables, 'forward', { ...packet, mark }).fates];
}

/** Through the node and the bridge, to the container. */
function enter(tables: Filter, { port }: RoutedPod, packet: Packet): Fate[] {
  const { fates, mark } = pass(tables, 'forward', packet);
  const there = { ...packet, mark, iif: undefined, oif: port };
  return [...fates, ...cross(tables, ['output', 'postrouting'], port, there)];
}

/** Inside the bridge that has the port. */
function cross(tables: Filter, hooks: readonly Hook[], port: string | undefined, packet: Packet): Fate[] {
  if (port === undefined) return [];
  return hooks.flatMap(hook => pass(tables, hook, packet, undefined, BRIDGE_FAMILIES).fates);
}

/**
 * Every base chain of a hook has to accept a packet. What our own drop is meant. The first translation of a connection stays; of chains with
 * the same priority, the order cannot be read from the kernel.
 * @param led the packet as it has to be behind the translation
 * @param families of the tables; by default, those that the packet passes
 */
function pass(
  tables: Filter,
  hook: Hook,
  packet: Packet,
  led?: Packet,
  families: readonly string[] = familiesOf(packet.family),
): Walked {
  const bases = basesAt(tables, hook, families);
  const own = led && bases.find(one => one.isNat && one.table.isOwn);
  const fates: Fate[] = [];
  let mark = markOf(packet);
  for (const base of bases) {
    if (base.table.isOwn || (base.isNat && packet.isReply)) continue;
    if (own && base.isNat && base.priority > own.priority) continue;
    const seen = led && base.stage > NAT_STAGE[hook] ? led : packet;
    const walked = walkBase(base, { ...seen, mark }, led?.destination);
    ({ mark } = walked);
    const isFirst = !own || !base.isNat || base.priority < own.priority;
    fates.push(...walked.fates.map(fate => ({ ...fate, isSure: fate.isSure && isFirst })));
  }
  return { fates, mark };
}

/** What the rule of ours that translates a connection labels it with. */
function labelsOf(tables: Filter, packet: Packet): readonly Byte[] | undefined {
  return basesAt(tables, 'prerouting', familiesOf(packet.family))
    .filter(({ table, isNat }) => table.isOwn && isNat)
    .flatMap(base => walkBase(base, packet).fates)
    .find(({ what, isSure }) => what === 'translate' && isSure)?.labels;
}

/** Families of the tables that packets pass inside a bridge. */
export const BRIDGE_FAMILIES: readonly string[] = ['bridge'];

function replyTo(packet: Packet): Packet {
  const { iif, oif, source, destination, sourcePort, port } = packet;
  const ends = { source: destination, destination: source, sourcePort: port, port: sourcePort };
  return { ...packet, ...ends, iif: oif, oif: iif, isReply: true, mark: undefined };
}

/** What is sure comes first, then what the packet meets first. */
function worstOf(fates: readonly Fate[]): Fate | undefined {
  return fates.find(({ isSure }) => isSure) ?? fates[0];
}

type Hook = NonNullable<Chain['base']>['hook'];

/** linux/netfilter_ipv4.h: all chains of type nat run at one place of a hook, in their own order. */
export const NAT_STAGE: Readonly<Record<Hook, number>> = {
  ...{ prerouting: -100, output: -100, postrouting: 100, input: 100, forward: 0 },
};
/** The same file: NF_IP_PRI_CONNTRACK, of the hooks where packets come in. */
const CONNTRACK = -200;
const TRACKING: readonly Hook[] = ['prerouting', 'output'];

/** A chain through which packets enter a table. */
export interface BaseChain {
  readonly table: FilterTable;
  readonly chain: Chain;
  readonly hook: Hook;
  readonly priority: number;
  readonly isNat: boolean;
  /** The place in the order of the hook. */
  readonly stage: number;
}

/** Read once, not for each packet: most tables of a node of Kubernetes have thousands of chains. */
const basesOf = new WeakMap<readonly FilterTable[], readonly BaseChain[]>();

/** The base chains of a hook, in the order in which packets pass them. @param families of their tables */
export function basesAt(
  tables: readonly FilterTable[],
  hook: Hook,
  families: readonly string[],
): BaseChain[] {
  let bases = basesOf.get(tables);
  if (bases === undefined) {
    const all = tables.flatMap(table => table.chains.flatMap(chain => baseOf(table, chain) ?? []));
    bases = all.sort((a, b) => a.stage - b.stage || a.priority - b.priority);
    basesOf.set(tables, bases);
  }
  return bases.filter(one => families.includes(one.table.table.family) && one.hook === hook);
}

function baseOf(table: FilterTable, chain: Chain): BaseChain | undefined {
  if (chain.base === undefined) return undefined;
  const { hook, priority, type } = chain.base;
  const isNat = type === 'nat';
  return { table, chain, hook, priority, isNat, stage: isNat ? NAT_STAGE[hook] : priority };
}

/** What a packet meets in a base chain. @param target the address to which a translation is right */
export function walkBase(base: BaseChain, packet: Packet, target?: string): Walked {
  const { table, chain, hook, isNat, priority } = base;
  const isTracked = !TRACKING.includes(hook) || isNat || priority > CONNTRACK;
  return walk(table, chain, { ...packet, isTracked }, target);
}

/** Families of the tables that a packet passes. */
export function familiesOf(family: 4 | 6): string[] {
  return ['inet', family === 4 ? 'ip' : 'ip6'];
}

/**
 * The command of the program that made the table, if it can be told by its chains.
 * @param fate in a chain of the hook `forward`
 * @param chains those of its table
 */
export function acceptDevices(
  { table, base }: Pick<Fate, 'table' | 'base'>,
  chains: readonly Chain[],
  devices: readonly string[],
): string {
  const hasChain = (pattern: RegExp) => chains.some(one => pattern.test(one.name));
  const forEach = (render: (device: string) => string) => devices.map(asWord).map(render).join(' && ');
  if (table.name === 'firewalld')
    return `${forEach(device => `firewall-cmd --permanent --zone=trusted --add-interface=${device}`)} && firewall-cmd --reload`;
  if (hasChain(/^ufw6?-/))
    return forEach(device => `ufw route allow in on ${device} && ufw route allow out on ${device}`);
  if (table.name === 'filter' && base === 'FORWARD' && table.family !== 'inet') {
    const program = table.family === 'ip6' ? 'ip6tables' : 'iptables';
    const at = hasChain(/^DOCKER-USER$/) ? 'DOCKER-USER' : base;
    const insert = `${program} -I ${at}`;
    return forEach(device => `${insert} -i ${device} -j ACCEPT && ${insert} -o ${device} -j ACCEPT`);
  }
  const insert = `nft insert rule ${inNft(table, base)}`;
  return forEach(device => `${insert} iifname ${device} accept && ${insert} oifname ${device} accept`);
}
