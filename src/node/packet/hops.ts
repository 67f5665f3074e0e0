// Which way does the kernel send a packet, why does it refuse to, do queues, filters and the rules of a hook let it through, and what becomes of its addresses?
import { EXPORT_TABLE, PROTOCOL } from '../../between/names.ts';
import { asWord } from '../../net/interface.ts';
import { cidrContains, parseIp, renderCidr, renderIp } from '../../net/ip.ts';
import type { HOOK } from '../../netlink/nft/table.ts';
import { listFilters, listIngressFilters } from '../../netlink/rtnl/filter.ts';
import { IFF_UP, type Link } from '../../netlink/rtnl/link.ts';
import { listClasses, type Qdisc, ticksPerUs } from '../../netlink/rtnl/qdisc.ts';
import { lookUpRoute, type RouteLookup, RT_TABLE_MAIN } from '../../netlink/rtnl/route.ts';
import { renderRule, ruleDeletion } from '../../netlink/rtnl/rule.ts';
import type { FilterTable } from '../../netlink/tables.ts';
import { earlyDrops } from '../devices.ts';
import { type Packet, PROTOCOLS } from '../doctor/filter/packet.ts';
import {
  acceptDevices,
  type BaseChain,
  BRIDGE_FAMILIES,
  basesAt,
  type Fate,
  familiesOf,
  inNft,
  NAT_STAGE,
  ruleRemoval,
  walkBase,
} from '../doctor/filter/walk.ts';
import { lost, passes, type Site, stops, unsure, type Walk } from './site.ts';

/** The route of a packet that this place sends. @param repair command that makes the routes of a container again */
export function* routeOut(site: Site, packet: Packet, repair: string | undefined): Walk<RouteLookup> {
  const { source, destination = '' } = packet;
  const ends = { destination: parseIp(destination), source: source ? parseIp(source) : undefined };
  const found = lookUpRoute(site.route, ends);
  if (typeof found !== 'number') return found;
  yield droppedByRule(site, packet) ?? noRoute(site, packet, repair);
  return { local: false, oif: 0 };
}

/** The route of a packet that arrives. The kernel itself is asked, with the device, so it judges forwarding and the source as well. */
export function* routeIn(
  site: Site,
  packet: Packet,
  iif: Link,
  repair: string | undefined,
): Walk<RouteLookup> {
  const { source, destination = '', family } = packet;
  // Without a source, the kernel cannot be asked about an incoming packet.
  if (source === undefined) return yield* routeOut(site, packet, repair);
  const ends = { destination: parseIp(destination), source: parseIp(source) };
  const found = lookUpRoute(site.route, { ...ends, iif: iif.index });
  if (typeof found !== 'number') {
    if (!found.local) yield* forwards(site, packet, iif);
    return found;
  }
  const back = lookUpRoute(site.route, { destination: ends.source });
  const modes = ['all', iif.name].map(one => Number(site.sysctl(`net/ipv4/conf/${one}/rp_filter`) ?? 0));
  const isFiltered = family === 4 && Math.max(...modes) > 0;
  const way = lookUpRoute(site.route, { destination: ends.destination });
  if (typeof way !== 'number' && !way.local) yield* forwards(site, packet, iif);
  if (typeof way !== 'number' && isFiltered && (typeof back === 'number' || back.oif !== iif.index)) {
    const through = typeof back === 'number' ? 'no device' : `"${site.link(back.oif)?.name}"`;
    const words = `rp_filter of "${iif.name}" drops packets from ${source}: the route back leads through ${through}`;
    // The kernel takes the stricter of both, and loose is above strict, so the device's own value is enough for that.
    const [value, all] = typeof back === 'number' ? ['0', ' net/ipv4/conf/all/rp_filter=0'] : ['2', ''];
    const own = asWord(`net/ipv4/conf/${iif.name}/rp_filter=${value}`);
    yield stops(site, packet, 'route', words, site.command(`sysctl -w ${own}${all}`));
  }
  yield droppedByRule(site, packet, iif) ?? noRoute(site, packet, repair);
  return { local: false, oif: 0 };
}

function* forwards(site: Site, packet: Packet, iif: Link): Walk {
  // IPv6 is forwarded by all devices or by none.
  const [key, name] =
    packet.family === 4
      ? [`net/ipv4/conf/${iif.name}/forwarding`, 'net.ipv4.ip_forward']
      : ['net/ipv6/conf/all/forwarding', 'net.ipv6.conf.all.forwarding'];
  if (site.sysctl(key) !== '0') {
    if (!packet.isReply) yield passes(site, packet, 'forwarding', `${name} = 1`);
    return;
  }
  const off = site.sysctl(name.replaceAll('.', '/')) === '0' ? name : key;
  yield stops(site, packet, 'forwarding', `${off} = 0`, site.command(`sysctl -w ${asWord(`${off}=1`)}`));
}

/** A routing rule that drops. */
function droppedByRule(site: Site, packet: Packet, arrived?: Link) {
  const { source, destination = '', family } = packet;
  const [from, to] = [source === undefined ? undefined : parseIp(source), parseIp(destination)];
  const rule = earlyDrops(site.tables.policyRules).find(
    one =>
      one.family === family &&
      one.oif === undefined &&
      (one.iif === undefined || one.iif === arrived?.name) &&
      (one.from === undefined || (from !== undefined && cidrContains(one.from, from))) &&
      (one.to === undefined || cidrContains(one.to, to)),
  );
  if (rule === undefined) return undefined;
  const words = `the routing rule "${renderRule(rule)}" drops packets to ${destination}`;
  return stops(site, packet, 'route', words, site.command(ruleDeletion(rule)));
}

function noRoute(site: Site, packet: Packet, repair: string | undefined) {
  const { destination = '', family } = packet;
  const to = parseIp(destination);
  const [first] = site.tables.refusingRoutes
    .filter(({ dst, table }) => dst.ip.family === family && cidrContains(dst, to) && table !== EXPORT_TABLE)
    .toSorted((a, b) => b.dst.prefix - a.dst.prefix);
  if (first === undefined) {
    const never = site.isNode || repair !== undefined ? '' : ', and its ADD made none';
    return stops(site, packet, 'route', `no route leads to ${destination}${never}`, repair);
  }
  const { kind, dst, table, protocol } = first;
  if (protocol === PROTOCOL) {
    const words = `no pod of this node has ${destination}, which is in the node's block ${renderCidr(dst)}`;
    return stops(site, packet, 'route', words, repair);
  }
  const where = table === RT_TABLE_MAIN ? '' : ` table ${table}`;
  const mend = site.command(`ip ${family === 6 ? '-6 ' : ''}route del ${kind} ${renderCidr(dst)}${where}`);
  return stops(site, packet, 'route', `a route of type ${kind} drops packets to ${renderCidr(dst)}`, mend);
}

/** The address to which the frame goes. */
export function nextHop({ gateway }: RouteLookup, { destination = '' }: Packet): string {
  return gateway === undefined ? destination : renderIp(gateway);
}

/** The first packet of a TCP connection, with its Ethernet header. */
const SMALLEST_BYTES = 74;
/** A packet of the usual MTU. */
const USUAL_BYTES = 1514;
/** Kinds that neither limit a rate nor lose packets by intention. */
const HARMLESS = ['noqueue', 'pfifo_fast', 'pfifo', 'bfifo', 'fq', 'fq_codel', 'codel', 'mq', 'sfq', 'cake'];

/** linux/pkt_sched.h: TC_H_CLSACT with TC_H_MIN_EGRESS */
const EGRESS_FILTERS = 0xff_ff_ff_f3;

/** Packets that leave through the device. @param repair command that makes the queues of a network again */
export function* leaveQueue(site: Site, packet: Packet, link: Link, repair: string | undefined): Walk {
  const own = site.tables.qdiscs.filter(({ index }) => index === link.index);
  if (own.some(({ kind }) => kind === 'clsact'))
    for (const { kind } of listFilters(site.route, link.index, EGRESS_FILTERS))
      yield lost(site, packet, 'queue', `a ${kind} filter of "${link.name}" may lead it elsewhere`);
  for (const qdisc of own.filter(({ kind }) => kind !== 'ingress' && kind !== 'clsact')) {
    const { kind, tbf } = qdisc;
    const remove = site.command(`tc qdisc del dev ${asWord(link.name)} root`);
    if (tbf) {
      const { rateBytes, bufferTicks } = tbf;
      const bucketBytes = (rateBytes * (bufferTicks / ticksPerUs())) / 1_000_000;
      const name = `tbf of "${link.name}"`;
      yield* judgeRate(site, packet, { name, rateBytes, bucketBytes, mend: repair ?? remove });
    } else if (kind === 'htb') {
      // A repair leaves a qdisc of another kind alone.
      const mend = repair === undefined ? remove : `${remove} && ${repair}`;
      yield* judgeClasses(site, packet, link, qdisc, mend);
    } else if (!HARMLESS.includes(kind)) {
      yield unsure(site, packet, 'queue', `qdisc ${kind} of "${link.name}" cannot be judged`);
    }
  }
}

/** Packets that arrive on the device may be redirected, through the queue of another device. */
export function* arriveQueue(site: Site, packet: Packet, link: Link, repair: string | undefined): Walk {
  for (const { kind, redirectAllTo } of listIngressFilters(site.route, link.index)) {
    if (redirectAllTo === undefined) {
      yield lost(site, packet, 'queue', `a ${kind} filter of "${link.name}" may lead it elsewhere`);
      continue;
    }
    const target = site.link(redirectAllTo);
    const mend = repair ?? site.command(`tc filter del dev ${asWord(link.name)} ingress`);
    if (redirectAllTo === 0 || target === undefined) {
      const words = `packets from "${link.name}" are redirected to a device that no longer exists`;
      yield stops(site, packet, 'queue', words, mend);
      return;
    }
    if ((target.flags & IFF_UP) === 0) {
      const words = `packets from "${link.name}" are redirected to "${target.name}", which is down`;
      yield stops(site, packet, 'queue', words, site.up(target.name));
    }
    yield* leaveQueue(site, packet, target, repair);
  }
}

interface Rate {
  readonly name: string;
  readonly rateBytes: number;
  /** Larger packets are dropped; undefined if the queue has another bound. */
  readonly bucketBytes?: number;
  readonly mend: string;
}

function* judgeRate(site: Site, packet: Packet, { name, rateBytes, bucketBytes, mend }: Rate): Walk {
  const rate = `${name} passes ${rateBytes} bytes per second`;
  if (bucketBytes !== undefined && bucketBytes < SMALLEST_BYTES) {
    const words = `${name} drops packets of more than ${Math.floor(bucketBytes)} bytes`;
    yield stops(site, packet, 'queue', words, mend);
  } else if (rateBytes < SMALLEST_BYTES) {
    yield stops(site, packet, 'queue', `${rate}: the smallest packet takes longer than a second`, mend);
  } else if (rateBytes < USUAL_BYTES || (bucketBytes ?? USUAL_BYTES) < USUAL_BYTES) {
    yield unsure(site, packet, 'queue', `${rate}: large packets take longer than a second, or are lost`);
  } else if (!packet.isReply) yield passes(site, packet, 'queue', rate);
}

/** Which class a packet is in is not judged: that of packets without a filter stands for all unless one is slow. */
function* judgeClasses(site: Site, packet: Packet, link: Link, { defaultClass }: Qdisc, mend: string): Walk {
  const classes = listClasses(site.route, link.index).filter(({ htb }) => htb !== undefined);
  const slowest = classes.toSorted((a, b) => ceilOf(a) - ceilOf(b))[0];
  if (slowest === undefined) return;
  const isOnly = classes.length === 1 && (slowest.handle & 0xffff) === defaultClass;
  const name = `htb of "${link.name}"`;
  if (isOnly) yield* judgeRate(site, packet, { name, rateBytes: ceilOf(slowest), mend });
  else if (ceilOf(slowest) < USUAL_BYTES)
    yield unsure(site, packet, 'queue', `${name} has a class of ${ceilOf(slowest)} bytes per second`);
}

function ceilOf({ htb }: { readonly htb?: { readonly ceilBytes: number } | undefined }): number {
  return htb?.ceilBytes ?? 0;
}

export type HookName = keyof typeof HOOK;

/** A packet behind the rules of a hook. */
export interface Passed {
  readonly packet: Packet;
  /** A connection is translated once. */
  readonly isTranslated?: true;
  /** The rule that changed its destination, human-readable; undefined if none did. */
  readonly by?: string;
  /** Command that deletes that rule, if it is not ours. */
  readonly undo?: string;
}

/**
 * Follows the packet through the base chains of a hook, ours included, in the order of the kernel.
 * @param containerDevices devices of the node that lead to containers, for the command that accepts their packets
 * @param known the packet behind address translation, for a connection that exists
 */
export function* passHook(
  site: Site,
  hook: HookName,
  packet: Packet,
  containerDevices: readonly string[],
  known?: Packet,
): Walk<Passed> {
  const isTranslating = known === undefined && !packet.isReply;
  const translators = isTranslating ? site.unread.translators.join(', ') : '';
  if (translators)
    yield lost(site, packet, 'translation', `${translators} may lead it elsewhere, and cannot be read`);
  const bases = basesAt(site.filter, hook, familiesOf(packet.family));
  const become = ({ packet: { mark } }: Passed, now: Packet): Passed => {
    return { packet: { ...located(site, now), mark } };
  };
  let passed: Passed = { packet };
  for (const base of bases) {
    if (known && base.stage >= NAT_STAGE[hook]) passed = become(passed, known);
    if (!base.isNat || (isTranslating && !passed.isTranslated))
      passed = yield* passBase(site, packet, base, bases, passed, containerDevices);
  }
  if (known) passed = become(passed, known);
  if (!packet.isReply && !packet.isEstablished && (hook === 'forward' || hook === 'input'))
    yield* summarize(site, hook, packet, bases);
  return passed;
}

/** The rules of other programs about what crosses a bridge. Ours stop only what claims an address or a device of another container. */
export function* passBridge(site: Site, hooks: readonly HookName[], packet: Packet): Walk {
  for (const hook of hooks) {
    const bases = basesAt(site.bridgeFilter, hook, BRIDGE_FAMILIES).filter(({ table }) => !table.isOwn);
    let passed: Passed = { packet };
    for (const base of bases) passed = yield* passBase(site, packet, base, bases, passed, []);
  }
}

/** @param came the packet as it came to the hook */
function* passBase(
  site: Site,
  came: Packet,
  base: BaseChain,
  bases: readonly BaseChain[],
  { packet, ...before }: Passed,
  containerDevices: readonly string[],
): Walk<Passed> {
  const { fates, mark } = walkBase(base, packet);
  const passed = { ...before, packet: { ...packet, mark } };
  const fate = fates.find(({ isSure, what }) => isSure && what === 'drop') ?? fates[0];
  if (fate === undefined) return passed;
  const place = placeOf(fate, base);
  if (fate.what === 'drop') {
    const name = base.table.isOwn ? 'policy' : 'rules';
    yield fate.isSure
      ? stops(site, came, name, `dropped by ${place}`, mendDrop(site, fate, base, packet, containerDevices))
      : unsure(site, came, name, `${place} may drop it${doubtOf(fate)}`);
    return passed;
  }
  if (fate.what === 'source' && !fate.isSure) {
    yield unsure(site, came, 'translation', `${place} may replace its source${doubtOf(fate)}`);
    return { ...passed, packet: { ...passed.packet, source: undefined } };
  }
  const rival = bases.find(one => isRival(one, base, packet));
  if (rival && fate.what === 'translate') {
    const words = `chain "${rival.chain.name}" of ${nameOf(rival.table)} has the same priority`;
    yield lost(site, came, 'translation', `${place} may lead it elsewhere: ${words}`);
  }
  if (!fate.isSure) yield lost(site, came, 'translation', `${place} may lead it elsewhere${doubtOf(fate)}`);
  const done = { packet: translated(site, passed.packet, fate), isTranslated: true } as const;
  if (fate.what === 'source') return done;
  const undo = ruleRemoval(fate);
  return { ...done, by: place, ...(base.table.isOwn ? {} : { undo }) };
}

/** Of chains with the same priority, the order cannot be read from the kernel. */
function isRival(one: BaseChain, { isNat, priority, table }: BaseChain, packet: Packet): boolean {
  if (!isNat || !one.isNat || one.priority !== priority || one.table === table) return false;
  return walkBase(one, packet).fates.some(({ what }) => what === 'translate');
}

function* summarize(
  site: Site,
  hookName: HookName,
  packet: Packet,
  bases: readonly BaseChain[],
): Walk<undefined> {
  const { others } = site.unread;
  if (others.length) yield unsure(site, packet, 'rules', `not judged: ${others.join(', ')}`);
  else if (hookName === 'forward') {
    const names = [...new Set(bases.map(({ table }) => nameOf(table)))];
    const words = names.length ? `accepted by ${names.join(', ')}` : 'no rule is about forwarded packets';
    yield passes(site, packet, 'rules', words);
  }
}

/** Whether the destination is an address of the host changes with it. */
function located(site: Site, packet: Packet): Packet {
  return { ...packet, isLocal: site.has(packet.destination ?? '') };
}

function translated(site: Site, packet: Packet, { what, to, toPort, labels }: Fate): Packet {
  if (what === 'source') {
    const own = packet.oif === undefined ? undefined : site.addressOf(site.link(packet.oif), packet.family);
    return { ...packet, source: to ?? own };
  }
  const known = labels === undefined ? {} : { labels };
  // Without an address, the packet stays on this host.
  const destination = to ?? packet.destination;
  const changed = { ...packet, ...known, destination, port: toPort ?? packet.port, isTranslated: true };
  return located(site, changed);
}

function nameOf({ table }: Pick<FilterTable, 'table'>): string {
  return `table ${table.family} ${table.name}`;
}

function placeOf({ chain, handle, base, table, what }: Fate, { priority }: BaseChain): string {
  const where = `table ${table.family} ${table.name}, chain "${chain}"`;
  const entered = chain === base ? '' : `entered from "${base}", `;
  const rule = handle === undefined ? (what === 'drop' ? 'the policy' : 'a rule') : `rule ${handle}`;
  return `${rule} of ${where} (${entered}priority ${priority})`;
}

function doubtOf({ doubt }: Fate): string {
  return doubt === undefined ? '' : `: rule ${doubt.handle} of chain "${doubt.chain}" cannot be judged`;
}

/** What a rule of nft beside that of a fate knows the packet by. */
function knownBy({ table }: Fate, { protocol, port, iif, oif = '', isReply, isEstablished }: Packet): string {
  if (BRIDGE_FAMILIES.includes(table.family))
    return iif === undefined ? `oifname ${asWord(oif)}` : `iifname ${asWord(iif)}`;
  if (isReply || isEstablished) return 'ct state established';
  if (protocol === PROTOCOLS.icmp) return 'icmp type echo-request';
  if (protocol === PROTOCOLS.icmpv6) return 'icmpv6 type echo-request';
  return `${protocol === PROTOCOLS.udp ? 'udp' : 'tcp'} dport ${port}`;
}

/** Undefined for our own rules, which keep to what the network's list says. */
function mendDrop(
  site: Site,
  fate: Fate,
  { table, chain }: BaseChain,
  packet: Packet,
  containerDevices: readonly string[],
): string | undefined {
  if (table.isOwn) return undefined;
  const devices = [...new Set([packet.iif, packet.oif])].filter(name => name !== undefined);
  const own = devices.filter(name => containerDevices.includes(name));
  if (chain.base?.hook === 'forward' && own.length > 0) return acceptDevices(fate, table.chains, own);
  if (fate.handle !== undefined) return site.command(ruleRemoval(fate));
  return site.command(`nft insert rule ${inNft(fate.table, fate.base)} ${knownBy(fate, packet)} accept`);
}
