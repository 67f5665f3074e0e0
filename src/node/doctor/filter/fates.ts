// Do the rules of other programs let a container's packets through?

import type { Chain } from '../../../netlink/nft/table.ts';
import type { FilterTable } from '../../../netlink/tables.ts';
import type { NodeView, RoutedPod } from '../finding.ts';
import { type Byte, NO_LABELS, type Packet, PROTOCOLS } from './packet.ts';
import { type Fate, type Walked, walk } from './walk.ts';

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
  const connections = new Connections(tables);
  return pods.flatMap(pod => {
    const uplink = uplinkOf(pod.family, node);
    const out = uplink && connections.followOut(pod, uplink.name);
    const into = pod.ports.map(port => connections.followIn(pod, port, uplink));
    return [out, ...into].flatMap(fate => fate ?? []);
  });
}

type Device = NodeView['devices'][number];

function uplinkOf(
  family: 4 | 6,
  { routes, devices }: Pick<NodeView, 'routes' | 'devices'>,
): Device | undefined {
  const route = routes.find(({ destination }) => destination === (family === 4 ? '0.0.0.0/0' : '::/0'));
  return devices.find(({ name }) => name === route?.device);
}

/** Every address of the host. */
export function isAny(hostIP: string | undefined): hostIP is undefined {
  return hostIP === undefined || hostIP === '0.0.0.0' || hostIP === '::';
}

/** What every connection begins with. */
const FIRST = { sourcePort: CLIENT_PORT, isReply: false, isTranslated: false, labels: NO_LABELS } as const;

/** Connections through the rules of other programs. What ours drop is meant. */
class Connections {
  readonly #tables: readonly FilterTable[];

  constructor(tables: readonly FilterTable[]) {
    this.#tables = tables;
  }

  followOut(pod: RoutedPod, uplink: string): PodFate | undefined {
    const { family, address, device } = pod;
    const packet: Packet = {
      ...{ ...FIRST, family, iif: device, oif: uplink, protocol: PROTOCOLS.tcp ?? 0 },
      ...{ source: address, destination: OUTSIDE[family], isLocal: false, port: OUTSIDE_PORT },
    };
    const reply = replyTo(packet);
    // It comes to the address that the first packet left with, which is not known.
    const { mark } = this.#pass('prerouting', { ...reply, destination: undefined, oif: undefined });
    const fate = worstOf([...this.#leave(pod, packet), ...this.#enter(pod, { ...reply, mark })]);
    return fate && { ...fate, pod, port: undefined };
  }

  followIn(
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
      ...{ isTranslated: true, labels: this.#labelsOf(packet) },
    };
    const { fates, mark } = this.#pass('prerouting', packet, { led });
    const forwarded = { ...led, oif: device, mark };
    const fate = worstOf([...fates, ...this.#enter(pod, forwarded), ...this.#leave(pod, replyTo(forwarded))]);
    return fate && { ...fate, pod, port: `${hostPort}/${protocol}` };
  }

  /** From the container, through its bridge and the node. */
  #leave({ port }: RoutedPod, packet: Packet): Fate[] {
    const there = { ...packet, iif: port, oif: undefined };
    const hooks = port === undefined ? [] : (['prerouting', 'input'] as const);
    const bridge = hooks.flatMap(hook => this.#pass(hook, there, BRIDGED).fates);
    const { fates, mark } = this.#pass('prerouting', { ...packet, oif: undefined });
    const drops = fates.filter(({ what }) => what === 'drop');
    return [...bridge, ...drops, ...this.#pass('forward', { ...packet, mark }).fates];
  }

  /** Through the node and the bridge, to the container. */
  #enter({ port }: RoutedPod, packet: Packet): Fate[] {
    const { fates, mark } = this.#pass('forward', packet);
    const there = { ...packet, mark, iif: undefined, oif: port };
    const hooks = port === undefined ? [] : (['output', 'postrouting'] as const);
    return [...fates, ...hooks.flatMap(hook => this.#pass(hook, there, BRIDGED).fates)];
  }

  /**
   * Every base chain of a hook has to accept a packet. The first translation of a connection stays; of chains with the same priority, the order
   * cannot be read from the kernel.
   * @param options.led the packet as it has to be behind the translation
   */
  #pass(hook: Hook, packet: Packet, { led, families = familiesOf(packet.family) }: PassOptions = {}) {
    const bases = basesAt(this.#tables, hook, families);
    const own = led && bases.find(one => one.isNat && one.table.isOwn);
    const fates: Fate[] = [];
    let { mark } = packet;
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
  #labelsOf(packet: Packet): readonly Byte[] | undefined {
    return basesAt(this.#tables, 'prerouting', familiesOf(packet.family))
      .filter(({ table, isNat }) => table.isOwn && isNat)
      .flatMap(base => walkBase(base, packet).fates)
      .find(({ what, isSure }) => what === 'translate' && isSure)?.labels;
  }
}

interface PassOptions {
  readonly led?: Packet;
  /** Of the tables; by default, those that the packet passes. */
  readonly families?: readonly string[];
}

/** Families of the tables that packets pass inside a bridge. */
export const BRIDGE_FAMILIES: readonly string[] = ['bridge'];

const BRIDGED: PassOptions = { families: BRIDGE_FAMILIES };

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
  const forEach = (render: (device: string) => string) => devices.map(render).join(' && ');
  if (table.name === 'firewalld')
    return `${forEach(device => `firewall-cmd --permanent --zone=trusted --add-interface=${device}`)} && firewall-cmd --reload`;
  if (hasChain(/^ufw6?-/))
    return forEach(device => `ufw route allow in on ${device} && ufw route allow out on ${device}`);
  if (table.name === 'filter' && base === 'FORWARD' && table.family !== 'inet') {
    const program = table.family === 'ip6' ? 'ip6tables' : 'iptables';
    const at = hasChain(/^DOCKER-USER$/) ? 'DOCKER-USER' : base;
    const accept = (sign: string, device: string) => `${program} -I ${at} ${sign} ${device} -j ACCEPT`;
    return forEach(device => `${accept('-i', device)} && ${accept('-o', device)}`);
  }
  const name = `${table.family} ${table.name}`;
  const insert = (key: string, device: string) => `nft insert rule ${name} ${base} ${key} ${device} accept`;
  return forEach(device => `${insert('iifname', device)} && ${insert('oifname', device)}`);
}
