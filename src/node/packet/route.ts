// Which way does the kernel send a packet, and why does it refuse to?
import { EXPORT_TABLE, PROTOCOL } from '../../between/names.ts';
import { cidrContains, parseIp, renderCidr, renderIp } from '../../net/ip.ts';
import type { Link } from '../../netlink/rtnl/link.ts';
import {
  listRefusingRoutes,
  lookUpRoute,
  type RouteLookup,
  RT_TABLE_MAIN,
} from '../../netlink/rtnl/route.ts';
import { renderRule, ruleDeletion } from '../../netlink/rtnl/rule.ts';
import type { Packet } from '../doctor/filter/packet.ts';
import { hop, type Walk } from './report.ts';
import type { Site } from './site.ts';

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
  const isFiltered = family === 4 && reversePathMode(site, iif) > 0;
  const way = lookUpRoute(site.route, { destination: ends.destination });
  if (typeof way !== 'number' && !way.local) yield* forwards(site, packet, iif);
  if (typeof way !== 'number' && isFiltered && (typeof back === 'number' || back.oif !== iif.index)) {
    const through = typeof back === 'number' ? 'no device' : `"${site.link(back.oif)?.name}"`;
    const words = `rp_filter of "${iif.name}" drops packets from ${source}: the route back leads through ${through}`;
    const mend = typeof back === 'number' ? '0' : '2';
    yield hop(site, packet, 'route', 'stops', words, reversePathCommand(site, iif, mend));
  }
  yield droppedByRule(site, packet, iif) ?? noRoute(site, packet, repair);
  return { local: false, oif: 0 };
}

/** The kernel takes the stricter of both. */
function reversePathMode(site: Site, { name }: Link): number {
  return Math.max(...['all', name].map(one => Number(site.sysctl(`net/ipv4/conf/${one}/rp_filter`) ?? 0)));
}

/** Loose is above strict, so the device's own value is enough for that. */
function reversePathCommand(site: Site, { name }: Link, value: string): string {
  const all = value === '0' ? ' net/ipv4/conf/all/rp_filter=0' : '';
  return site.command(`sysctl -w net/ipv4/conf/${name}/rp_filter=${value}${all}`);
}

function* forwards(site: Site, packet: Packet, iif: Link): Walk {
  // IPv6 is forwarded by all devices or by none.
  const [key, name] =
    packet.family === 4
      ? [`net/ipv4/conf/${iif.name}/forwarding`, 'net.ipv4.ip_forward']
      : ['net/ipv6/conf/all/forwarding', 'net.ipv6.conf.all.forwarding'];
  if (site.sysctl(key) !== '0') {
    if (!packet.isReply) yield hop(site, packet, 'forwarding', 'passes', `${name} = 1`);
    return;
  }
  const isOff = site.sysctl(name.replaceAll('.', '/')) === '0';
  const [words, line] = isOff ? [`${name} = 0`, `sysctl -w ${name}=1`] : [`${key} = 0`, `sysctl -w ${key}=1`];
  yield hop(site, packet, 'forwarding', 'stops', words, site.command(line));
}

/** A routing rule of type blackhole, unreachable or prohibit that comes before the main table. */
function droppedByRule(site: Site, packet: Packet, arrived?: Link) {
  const { source, destination = '', family } = packet;
  const [from, to] = [source === undefined ? undefined : parseIp(source), parseIp(destination)];
  const rules = site.tables.policyRules.filter(one => one.family === family);
  const main = rules.find(one => one.table === RT_TABLE_MAIN && !one.from && !one.to && !one.iif);
  const rule = rules.find(
    one =>
      one.drops !== undefined &&
      one.priority < (main?.priority ?? Number.POSITIVE_INFINITY) &&
      (one.mark ?? one.oif) === undefined &&
      (one.iif === undefined || one.iif === arrived?.name) &&
      (one.from === undefined || (from !== undefined && cidrContains(one.from, from))) &&
      (one.to === undefined || cidrContains(one.to, to)),
  );
  if (rule === undefined) return undefined;
  const words = `the routing rule "${renderRule(rule)}" drops packets to ${destination}`;
  return hop(site, packet, 'route', 'stops', words, site.command(ruleDeletion(rule)));
}

function noRoute(site: Site, packet: Packet, repair: string | undefined) {
  const { destination = '', family } = packet;
  const to = parseIp(destination);
  const refusing = listRefusingRoutes(site.route)
    .filter(({ dst, table }) => dst.ip.family === family && cidrContains(dst, to) && table !== EXPORT_TABLE)
    .toSorted((a, b) => b.dst.prefix - a.dst.prefix);
  const [first] = refusing;
  if (first === undefined) {
    const words = `no route leads to ${destination}`;
    return hop(site, packet, 'route', 'stops', words, repair);
  }
  const { kind, dst, table, protocol } = first;
  if (protocol === PROTOCOL) {
    const words = `no pod of this node has ${destination}, which is in the node's block ${renderCidr(dst)}`;
    return hop(site, packet, 'route', 'stops', words, repair);
  }
  const where = table === RT_TABLE_MAIN ? '' : ` table ${table}`;
  const mend = site.command(`ip ${family === 6 ? '-6 ' : ''}route del ${kind} ${renderCidr(dst)}${where}`);
  return hop(
    site,
    packet,
    'route',
    'stops',
    `a route of type ${kind} drops packets to ${renderCidr(dst)}`,
    mend,
  );
}

/** The address to which the frame goes. */
export function nextHop({ gateway }: RouteLookup, { destination = '' }: Packet): string {
  return gateway === undefined ? destination : renderIp(gateway);
}
