// Do the rules of other programs let a container's packets through?

import type { Chain } from '../../netlink/nft/chain.ts';
import type { FilterTable } from '../../netlink/tables.ts';
import type { NodeView, RoutedPod } from '../finding.ts';
import { type Byte, NO_LABELS, type Packet, PROTOCOLS, unknown } from './packet.ts';
import { type Fate, walk } from './walk.ts';

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

/** Connections through the rules of other programs. */
class Connections {
  readonly #tables: readonly FilterTable[];
  readonly #mark: readonly Byte[];

  constructor(tables: readonly FilterTable[]) {
    this.#tables = tables;
    this.#mark = marksIn(tables);
  }

  followOut(pod: RoutedPod, uplink: string): PodFate | undefined {
    const { family, address, device } = pod;
    const packet: Packet = {
      ...{ ...FIRST, family, iif: device, oif: uplink, protocol: PROTOCOLS.tcp ?? 0 },
      ...{ source: address, destination: OUTSIDE[family], isLocal: false, port: OUTSIDE_PORT },
    };
    const fate = worstOf([
      ...this.#passBridge(pod, packet, 'from'),
      ...this.#passAll({ hook: 'prerouting', type: 'filter' }, { ...packet, oif: undefined }),
      ...this.#passForward(packet),
    ]);
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
      ...{
        source: OUTSIDE[family],
        destination: isAny(hostIP) ? own : hostIP,
        isLocal: true,
        port: hostPort,
      },
    };
    const led: Packet = {
      ...{ ...packet, oif: device, destination: address, isLocal: false, port: containerPort },
      ...{ isTranslated: true, labels: this.#labelsOf(packet) },
    };
    const fate = worstOf([
      ...this.#passAll({ hook: 'prerouting', type: 'filter' }, packet),
      ...this.#passTranslations(packet, address),
      ...this.#passForward(led),
      ...this.#passBridge(pod, led, 'to'),
    ]);
    return fate && { ...fate, pod, port: `${hostPort}/${protocol}` };
  }

  /** Between its port and the bridge itself, packets and replies pass the rules about bridges. */
  #passBridge({ port }: RoutedPod, packet: Packet, way: 'from' | 'to'): Fate[] {
    if (port === undefined || !this.#tables.some(({ table }) => table.family === 'bridge')) return [];
    const reply = replyTo(packet);
    const [sent, received] = way === 'from' ? [packet, reply] : [reply, packet];
    const hooks = (names: readonly Where['hook'][], one: Packet) =>
      names.flatMap(hook => this.#passAll({ hook, type: 'filter', families: ['bridge'] }, one));
    return [
      ...hooks(['prerouting', 'input'], { ...sent, iif: port, oif: undefined }),
      ...hooks(['output', 'postrouting'], { ...received, iif: undefined, oif: port }),
    ];
  }

  /** A packet, and the reply to it. */
  #passForward(packet: Packet): Fate[] {
    const where = { hook: 'forward', type: 'filter' } as const;
    return [packet, replyTo(packet)].flatMap(one => this.#passAll(where, one));
  }

  /** Every base chain has to accept a packet. What ours drop is meant. */
  #passAll(where: Where, packet: Packet): Fate[] {
    return this.#bases(packet, where)
      .filter(({ table }) => !table.isOwn)
      .flatMap(({ table, chain }) => this.#walk(table, chain, packet))
      .filter(({ what }) => what === 'drop');
  }

  /** The first translation of a connection stays. Of chains with the same priority, the order cannot be read from the kernel. */
  #passTranslations(packet: Packet, target: string): Fate[] {
    const bases = this.#bases(packet, { hook: 'prerouting', type: 'nat' });
    const own = bases.find(({ table }) => table.isOwn);
    return bases
      .filter(({ table, priority }) => !table.isOwn && (own === undefined || priority <= own.priority))
      .flatMap(({ table, chain, priority }) => {
        const isFirst = own === undefined || priority < own.priority;
        const fates = this.#walk(table, chain, packet, target);
        return fates.map(fate => ({ ...fate, isSure: fate.isSure && isFirst }));
      });
  }

  /** What the rule of ours that translates a connection labels it with. */
  #labelsOf(packet: Packet): readonly Byte[] | undefined {
    return this.#bases(packet, { hook: 'prerouting', type: 'nat' })
      .filter(({ table }) => table.isOwn)
      .flatMap(({ table, chain }) => this.#walk(table, chain, packet))
      .find(({ what, isSure }) => what === 'translate' && isSure)?.labels;
  }

  /** Base chains in the order in which packets pass them: of the packet's families by default. */
  #bases({ family }: Packet, { hook, type, families = familiesOf(family) }: Where): BaseChain[] {
    return basesAt(this.#tables, hook, families).filter(({ chain }) => chain.base?.type === type);
  }

  #walk(table: FilterTable, chain: Chain, packet: Packet, target?: string): Fate[] {
    return walk(table, chain, packet, { mark: this.#mark, target });
  }
}

type Where = Pick<NonNullable<Chain['base']>, 'hook' | 'type'> & { readonly families?: readonly string[] };

function replyTo(packet: Packet): Packet {
  const { iif, oif, source, destination, sourcePort, port } = packet;
  const ends = { source: destination, destination: source, sourcePort: port, port: sourcePort };
  return { ...packet, ...ends, iif: oif, oif: iif, isReply: true };
}

/** What is sure comes first, then what the packet meets first. */
function worstOf(fates: readonly Fate[]): Fate | undefined {
  return fates.find(({ isSure }) => isSure) ?? fates[0];
}

/** A chain through which packets enter a table. */
export interface BaseChain {
  readonly table: FilterTable;
  readonly chain: Chain;
  readonly priority: number;
}

/** Read once, not for each packet: most tables of a node of Kubernetes have thousands of chains. */
const basesOf = new WeakMap<readonly FilterTable[], readonly BaseChain[]>();

/** The base chains of a hook, by priority. @param families of their tables */
export function basesAt(
  tables: readonly FilterTable[],
  hook: Where['hook'],
  families: readonly string[],
): BaseChain[] {
  let bases = basesOf.get(tables);
  if (bases === undefined) {
    const all = tables.flatMap(table =>
      table.chains.flatMap((chain): BaseChain[] =>
        chain.base ? [{ table, chain, priority: chain.base.priority }] : [],
      ),
    );
    bases = all.sort((a, b) => a.priority - b.priority);
    basesOf.set(tables, bases);
  }
  return bases.filter(
    ({ table: { table }, chain: { base } }) => families.includes(table.family) && base?.hook === hook,
  );
}

/** Families of the tables that a packet passes. */
export function familiesOf(family: 4 | 6): string[] {
  return ['inet', family === 4 ? 'ip' : 'ip6'];
}

/** The mark of a packet. */
export function marksIn(tables: readonly FilterTable[]): readonly Byte[] {
  return setsMarks(tables) ? unknown(4) : [0, 0, 0, 0];
}

/** Packets have no mark unless a rule sets one. */
function setsMarks(tables: readonly FilterTable[]): boolean {
  const isSetter = ({ name, data }: { readonly name?: string; readonly data?: unknown }): boolean => {
    if (name === 'target') return /MARK/.test((data as { name?: string })?.name ?? '');
    return name === 'meta' && (data as { sreg?: number })?.sreg !== undefined;
  };
  return tables.some(({ isOwn, rules }) =>
    [...rules.values()].some(list => !isOwn && list.some(({ expressions }) => expressions.some(isSetter))),
  );
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
