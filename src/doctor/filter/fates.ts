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

/** A host on the Internet, and a service that no firewall blocks by intention. */
const OUTSIDE = { 4: '1.1.1.1', 6: '2606:4700:4700::1111' } as const;
const OUTSIDE_PORT = 443;
/** As any client chooses one. */
const CLIENT_PORT = 50_000;

/** Follows one connection from each container to the outside, and one to each of its ports of the host, with the replies. */
export function findFates(
  tables: readonly FilterTable[],
  pods: readonly RoutedPod[],
  node: Pick<NodeView, 'routes' | 'devices'>,
): PodFate[] {
  const mark = setsMarks(tables) ? unknown(4) : [0, 0, 0, 0];
  return pods.flatMap(pod => {
    const uplink = uplinkOf(pod.family, node);
    const out = uplink === undefined ? [] : [followOut(tables, pod, uplink.name, mark)];
    const into = pod.ports.map(port => followIn(tables, pod, port, uplink, mark));
    return [...out, ...into].flatMap(fate => fate ?? []);
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

function followOut(
  tables: readonly FilterTable[],
  pod: RoutedPod,
  uplink: string,
  mark: readonly Byte[],
): PodFate | undefined {
  const { family, address, device } = pod;
  const packet: Packet = {
    family,
    iif: device,
    oif: uplink,
    protocol: PROTOCOLS.tcp ?? 0,
    source: address,
    destination: OUTSIDE[family],
    isLocal: false,
    sourcePort: CLIENT_PORT,
    port: OUTSIDE_PORT,
    isReply: false,
    isTranslated: false,
    labels: NO_LABELS,
  };
  const arriving = { ...packet, oif: undefined };
  const fate = worstOf([
    ...walkBridge(tables, pod, packet, 'from', mark),
    ...walkAll(tables, { hook: 'prerouting', type: 'filter' }, arriving, mark),
    ...walkForward(tables, packet, mark),
  ]);
  return fate && { ...fate, pod, port: undefined };
}

function followIn(
  tables: readonly FilterTable[],
  pod: RoutedPod,
  { hostIP, hostPort, containerPort, protocol }: RoutedPod['ports'][number],
  uplink: Device | undefined,
  mark: readonly Byte[],
): PodFate | undefined {
  const { family, address, device } = pod;
  // A port of an address of the other family is not this address's affair.
  if (hostIP !== undefined && hostIP.includes(':') !== (family === 6)) return undefined;
  const own = uplink?.addresses?.find(text => text.includes(':') === (family === 6))?.split('/')[0];
  const packet: Packet = {
    family,
    iif: uplink?.name,
    oif: undefined,
    protocol: PROTOCOLS[protocol] ?? 0,
    source: OUTSIDE[family],
    destination: isAny(hostIP) ? own : hostIP,
    isLocal: true,
    sourcePort: CLIENT_PORT,
    port: hostPort,
    isReply: false,
    isTranslated: false,
    labels: NO_LABELS,
  };
  const led: Packet = {
    ...packet,
    oif: device,
    destination: address,
    isLocal: false,
    port: containerPort,
    isTranslated: true,
    labels: labelsOf(tables, packet, mark),
  };
  const fate = worstOf([
    ...walkAll(tables, { hook: 'prerouting', type: 'filter' }, packet, mark),
    ...walkTranslations(tables, packet, address, mark),
    ...walkForward(tables, led, mark),
    ...walkBridge(tables, pod, led, 'to', mark),
  ]);
  return fate && { ...fate, pod, port: `${hostPort}/${protocol}` };
}

function isAny(hostIP: string | undefined): boolean {
  return hostIP === undefined || hostIP === '0.0.0.0' || hostIP === '::';
}

type Where = Pick<NonNullable<Chain['base']>, 'hook' | 'type'> & { readonly families?: readonly string[] };

interface Entry {
  readonly table: FilterTable;
  readonly chain: Chain;
  readonly priority: number;
}

/** Read once, not for each packet: most tables of a node of Kubernetes have thousands of chains. */
const entriesOf = new WeakMap<readonly FilterTable[], readonly Entry[]>();

/** Base chains in the order in which packets pass them: of the packet's families by default. */
function basesOf(
  tables: readonly FilterTable[],
  family: 4 | 6,
  { hook, type, families = ['inet', family === 4 ? 'ip' : 'ip6'] }: Where,
): readonly Entry[] {
  let entries = entriesOf.get(tables);
  if (entries === undefined) {
    const all = tables.flatMap(table =>
      table.chains.flatMap((chain): Entry[] =>
        chain.base ? [{ table, chain, priority: chain.base.priority }] : [],
      ),
    );
    entries = all.sort((a, b) => a.priority - b.priority);
    entriesOf.set(tables, entries);
  }
  return entries.filter(
    ({ table: { table }, chain: { base } }) =>
      families.includes(table.family) && base?.hook === hook && base.type === type,
  );
}

/** Between its port and the bridge itself, packets and replies pass the rules about bridges. */
function walkBridge(
  tables: readonly FilterTable[],
  { port }: RoutedPod,
  packet: Packet,
  way: 'from' | 'to',
  mark: readonly Byte[],
): Fate[] {
  if (port === undefined || !tables.some(({ table }) => table.family === 'bridge')) return [];
  const reply = replyTo(packet);
  const [sent, received] = way === 'from' ? [packet, reply] : [reply, packet];
  const hooks = (names: readonly Where['hook'][], one: Packet) =>
    names.flatMap(hook => walkAll(tables, { hook, type: 'filter', families: ['bridge'] }, one, mark));
  return [
    ...hooks(['prerouting', 'input'], { ...sent, iif: port, oif: undefined }),
    ...hooks(['output', 'postrouting'], { ...received, iif: undefined, oif: port }),
  ];
}

/** A packet, and the reply to it. */
function walkForward(tables: readonly FilterTable[], packet: Packet, mark: readonly Byte[]): Fate[] {
  const where = { hook: 'forward', type: 'filter' } as const;
  return [packet, replyTo(packet)].flatMap(one => walkAll(tables, where, one, mark));
}

function replyTo(packet: Packet): Packet {
  const { iif, oif, source, destination, sourcePort, port } = packet;
  const turned = {
    iif: oif,
    oif: iif,
    source: destination,
    destination: source,
    sourcePort: port,
    port: sourcePort,
  };
  return { ...packet, ...turned, isReply: true };
}

/** Every base chain has to accept a packet. What ours drop is meant. */
function walkAll(
  tables: readonly FilterTable[],
  where: Where,
  packet: Packet,
  mark: readonly Byte[],
): Fate[] {
  return basesOf(tables, packet.family, where)
    .filter(({ table }) => !table.isOwn)
    .flatMap(({ table, chain }) => walk(table, chain, packet, { mark, target: undefined }))
    .filter(({ what }) => what === 'drop');
}

/** The first translation of a connection stays. Of chains with the same priority, the order cannot be read from the kernel. */
function walkTranslations(
  tables: readonly FilterTable[],
  packet: Packet,
  target: string,
  mark: readonly Byte[],
): Fate[] {
  const bases = basesOf(tables, packet.family, { hook: 'prerouting', type: 'nat' });
  const own = bases.find(({ table }) => table.isOwn);
  return bases
    .filter(({ table, priority }) => !table.isOwn && (own === undefined || priority <= own.priority))
    .flatMap(({ table, chain, priority }) => {
      const isFirst = own === undefined || priority < own.priority;
      const fates = walk(table, chain, packet, { mark, target });
      return fates.map(fate => ({ ...fate, isSure: fate.isSure && isFirst }));
    });
}

/** What the rule of ours that translates a connection labels it with. */
function labelsOf(
  tables: readonly FilterTable[],
  packet: Packet,
  mark: readonly Byte[],
): readonly Byte[] | undefined {
  return basesOf(tables, packet.family, { hook: 'prerouting', type: 'nat' })
    .filter(({ table }) => table.isOwn)
    .flatMap(({ table, chain }) => walk(table, chain, packet, { mark, target: undefined }))
    .find(({ what, isSure }) => what === 'translate' && isSure)?.labels;
}

/** What is sure comes first, then what the packet meets first. */
function worstOf(fates: readonly Fate[]): Fate | undefined {
  return fates.find(({ isSure }) => isSure) ?? fates[0];
}

/** Packets have no mark unless a rule sets one. */
export function setsMarks(tables: readonly FilterTable[]): boolean {
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
