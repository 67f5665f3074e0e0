// What does a chain promise, judging by its configuration and its result, and is each promise kept?

import * as z from 'zod/mini';
import type { AnswerOf } from '../cli/answers/kinds.ts';
import { attempt, describeError } from '../cni/errors.ts';
import { decode, isObject, type JsonObject } from '../cni/json.ts';
import { defaultFamilyOf, type Result, spreadGateways } from '../cni/result.ts';
import { PortMapping } from '../cni/schemas.ts';
import { parseMac, renderMac } from '../net/interface.ts';
import { cidrContains, findCidr, findIp, type Ip, renderCidr, renderIp, sameIp } from '../net/ip.ts';
import { listAddresses, RT_SCOPE_LINK, RT_SCOPE_UNIVERSE } from '../netlink/rtnl/addr.ts';
import { findLink, IFF_ALLMULTI, IFF_PROMISC, IFF_UP } from '../netlink/rtnl/link.ts';
import { listRules } from '../netlink/rtnl/rule.ts';
import { inNetns, type Netns } from '../sys/netns.ts';
import { findSysctl } from '../sys/sysctl.ts';
import type { ConfiguredPlugin } from './configured.ts';
import type { Lab, Namespace } from './host.ts';
import { askDns, knock, measureRate, ping, talkTcp, talkUdp } from './traffic.ts';
import { renderRate, renderTime } from './words.ts';

/** A container to which a chain has been applied. */
export interface Attached {
  readonly place: Namespace;
  readonly result: Result;
}

/** Everything that promises can be derived from. */
export interface Scene {
  readonly lab: Lab;
  readonly plugins: readonly ConfiguredPlugin[];
  readonly ifname: string;
  readonly container: Attached;
  /** A second container on the same network; undefined when it could not be attached. */
  readonly neighbour: Attached | undefined;
  /** Kernel parameters of the fake host before anything ran, as paths below /proc/sys. */
  readonly sysctlsBefore: ReadonlyMap<string, string | undefined>;
  /** Set if the host and the containers are real ones, whose ports are left to their own servers. */
  readonly live?: Live;
}

/** What a real host has. */
interface Live {
  /** An address by which others know it, of each family that has one. */
  readonly nodeAddress: Partial<Readonly<Record<4 | 6, Ip>>>;
  /** Hosts beyond its uplink: the next hop, or what the caller names, with the port of a TCP server there. */
  readonly beyond: readonly { readonly address: Ip; readonly port?: number }[];
  /** Whether a process of the container listens on its port. */
  isServed(protocol: string, port: number): boolean;
}

/** Whether a promise was kept, and what was observed. `skipped` is for what a lab cannot determine. */
type Finding = Omit<AnswerOf<'Trial'>['probes'][number], 'what'>;

/** Something that the chain promises, and how to verify it. */
export interface Probe {
  /** Human-readable: `gateway 10.1.0.1 answers the container`. */
  readonly what: string;
  /** The first packet that it sends. */
  readonly sends?: Sent;
  /** If it is skipped, that packet is followed instead. */
  readonly isFollowed?: boolean;
  run(): Finding;
}

/** A packet of a probe. */
export interface Sent {
  readonly from: 'container' | 'outside' | 'node';
  readonly to: Ip;
  /** 0 for an echo request. */
  readonly port: number;
  readonly protocol: 'tcp' | 'udp' | 'icmp';
}

/** An echo request of the container. */
function echoTo(to: Ip): Sent {
  return { from: 'container', to, port: 0, protocol: 'icmp' };
}

const CHEAP = [interfaceProbes, gatewayProbes, neighbourProbes, outsideProbes];

/** Every probe, the cheap ones first. No plugin is known by name: each probe defines what promises it. */
export function promisesOf(scene: Scene): Probe[] {
  return [...CHEAP, portProbes, sysctlProbes, rateProbes].flatMap(probesOf => probesOf(scene));
}

/** What can be sent for a container of a real host without a change to it. Rates fill its links for a moment. */
export function trafficOf(scene: Scene, withRates: boolean): Probe[] {
  const more = [beyondProbes, dnsProbes, portProbes, ...(withRates ? [rateProbes] : [])];
  return [...CHEAP, ...more].flatMap(probesOf => probesOf(scene));
}

/** What was observed; an error is a failure. */
export function runProbe(run: Probe['run']): Finding {
  try {
    return run();
  } catch (error) {
    return finding(false, describeError(error));
  }
}

/** The addresses that a result gives to interfaces in the container. */
function containerIps({ result }: Attached): Ip[] {
  const { ips = [], interfaces = [] } = result;
  return ips.flatMap(({ address, interface: index }) => {
    const own = index === undefined || index < 0 ? undefined : interfaces[index];
    const cidr = findCidr(address);
    return cidr && (own === undefined || own.sandbox) ? [cidr.ip] : [];
  });
}

/** The addresses assigned to a place, without loopback and link-local ones. */
export function placeIps({ route }: Namespace): Ip[] {
  const given = listAddresses(route).filter(({ scope }) => scope === RT_SCOPE_UNIVERSE);
  return given.map(({ cidr }) => cidr.ip);
}

/** Addresses of a real host are not tentative. Within this time TCP has tried twice. */
const PATIENCE_MS = 1_500;

/** Whether an address answers a container. @param scope of a link-local one: the interface's index */
function echo(from: Attached, ip: Ip, scope = 0, patienceMs?: number): Finding {
  const source = scope === 0 ? ruledSource(from, ip.family) : undefined;
  return timed(ping(from.place.netns, ip, scope, patienceMs, source));
}

/** The address of a container for which a routing rule exists: what is sent from another one takes other routes, or has none. */
function ruledSource(container: Attached, family: 4 | 6): Ip | undefined {
  const rules = attempt(() => listRules(container.place.route)) ?? [];
  return containerIps(container).find(
    ip => ip.family === family && rules.some(({ from }) => from && sameIp(from.ip, ip)),
  );
}

/** How long a reply took, or why there was none. */
function timed(ms: number | string | undefined, none = 'no reply'): Finding {
  return typeof ms === 'number' ? finding(true, renderTime(ms)) : finding(false, ms ?? none);
}

function finding(holds: boolean, seen: string): Finding {
  return { outcome: holds ? 'ok' : 'failed', seen };
}

/** What a lab cannot determine. */
function skipped(seen: string): Finding {
  return { outcome: 'skipped', seen };
}

/** Promised by: each interface of the result that is in a sandbox, and the keys that configure the container's interface. */
function interfaceProbes(scene: Scene): Probe[] {
  const { interfaces = [] } = scene.container.result;
  return interfaces.flatMap(({ name, sandbox }, index) => {
    if (!sandbox) return [];
    const settings = name === scene.ifname ? settingsOf(scene.plugins) : [];
    const promised = settings.map(({ words }) => words);
    const what = `${name} is up${promised.length ? `, ${promised.join(', ')}` : ' and matches the result'}`;
    return [{ what, run: () => lookAtInterface(scene, name, index, settings) }];
  });
}

interface Setting {
  readonly words: string;
  holds(link: NonNullable<ReturnType<typeof findLink>>): boolean;
}

/** Keys by which plugins configure the container's interface; the last plugin that sets a key wins. */
function settingsOf(plugins: readonly ConfiguredPlugin[]): Setting[] {
  const wanted = new Map<string, Setting>();
  const want = (key: string, words: string, holds: Setting['holds']) => wanted.set(key, { words, holds });
  for (const { conf, runtimeConfig } of plugins) {
    const { mtu, promisc, allmulti, txQLen } = conf;
    const mac = macOf(runtimeConfig) ?? macOf(conf);
    if (isPositive(mtu)) want('mtu', `mtu ${mtu}`, link => link.mtu === mtu);
    if (isPositive(txQLen)) want('txQLen', `txqlen ${txQLen}`, link => link.attrs.txqlen === txQLen);
    if (mac !== undefined) want('mac', `mac ${mac}`, link => link.mac === mac);
    if (promisc === true) want('promisc', 'promisc', ({ flags }) => !!(flags & IFF_PROMISC));
    if (allmulti === true) want('allmulti', 'allmulti', ({ flags }) => !!(flags & IFF_ALLMULTI));
  }
  return [...wanted.values()];
}

/** What the result itself says of an interface, apart from its addresses. */
function toldOf({ interfaces = [] }: Result, index: number): Setting[] {
  const { mac, mtu } = interfaces[index] ?? {};
  const told = macOf({ mac });
  const all: Setting[] = [];
  if (told !== undefined) all.push({ words: `mac ${told} of the result`, holds: link => link.mac === told });
  if (mtu) all.push({ words: `mtu ${mtu} of the result`, holds: link => link.mtu === mtu });
  return all;
}

/** In the kernel's notation; undefined for none, and for what is no hardware address. */
function macOf({ mac }: JsonObject): string | undefined {
  return typeof mac === 'string' ? attempt(() => renderMac(parseMac(mac))) : undefined;
}

function lookAtInterface(
  { container }: Scene,
  name: string,
  index: number,
  settings: readonly Setting[],
): Finding {
  const { route } = container.place;
  const link = findLink(route, name);
  if (link === undefined) return finding(false, 'no such interface');
  if (!(link.flags & IFF_UP)) return finding(false, 'it is down');
  const broken = [...settings, ...toldOf(container.result, index)].filter(({ holds }) => !holds(link));
  if (broken.length) return finding(false, `wrong: ${broken.map(({ words }) => words).join(', ')}`);
  const there = listAddresses(route, link.index).map(({ cidr }) => renderCidr(cidr));
  const promised = (container.result.ips ?? []).flatMap(({ address, interface: own }) => {
    const cidr = findCidr(address);
    return own === index ? [cidr ? renderCidr(cidr) : address] : [];
  });
  const missing = promised.filter(address => !there.includes(address));
  if (missing.length) return finding(false, `missing: ${missing.join(', ')}`);
  return finding(true, promised.length ? promised.join(', ') : 'no addresses');
}

function isPositive(value: unknown): value is number {
  return typeof value === 'number' && value > 0;
}

/** Promised by: the gateway of each address of the result. Only the host's own addresses can be probed. */
function gatewayProbes({ lab, container, live }: Scene): Probe[] {
  return (container.result.ips ?? []).flatMap(({ gateway }) => {
    const ip = gateway === undefined ? undefined : findIp(gateway);
    if (ip === undefined) return [];
    return {
      what: `gateway ${renderIp(ip)} replies to the container`,
      sends: echoTo(ip),
      isFollowed: true,
      run() {
        const isOurs = placeIps(lab.host).some(own => sameIp(own, ip));
        const seen = isOurs || live ? echo(container, ip, 0, live && PATIENCE_MS) : undefined;
        if (seen && (isOurs || seen.outcome === 'ok')) return seen;
        const silence = seen ? 'no reply; it is ' : '';
        return skipped(`${silence}not an address of this host: another router is expected`);
      },
    };
  });
}

/**
 * Promised by: being on one network, unless a plugin keeps its containers apart. Those without addresses of
 * their own probe each other's link-local ones, which shows that frames pass.
 */
function neighbourProbes({ plugins, container, neighbour, ifname }: Scene): Probe[] {
  if (neighbour === undefined || plugins.some(({ conf }) => areApart(conf, container, neighbour))) return [];
  const own = containerIps(container);
  const theirs = containerIps(neighbour).filter(ip => !own.some(mine => sameIp(mine, ip)));
  if (theirs.length) {
    return theirs.map(ip => ({
      what: `${neighbour.place.name === 'neighbour' ? 'a second container' : neighbour.place.name} replies at ${renderIp(ip)}`,
      sends: echoTo(ip),
      run: () => echo(container, ip),
    }));
  }
  const index = findLink(container.place.route, ifname)?.index;
  const address = linkLocalOf(neighbour, ifname);
  if (own.length || index === undefined || address === undefined) return [];
  const what = `a second container replies at ${renderIp(address)} (layer 2)`;
  return [{ what, run: () => echo(container, address, index) }];
}

/** Keys by which plugins keep the containers of a network apart. */
function areApart(conf: JsonObject, one: Attached, other: Attached): boolean {
  const hostEnds = ({ result: { interfaces = [] } }: Attached) =>
    interfaces.flatMap(({ name, sandbox }) => (sandbox ? [] : [name]));
  const shared = hostEnds(one).some(name => hostEnds(other).includes(name));
  return (
    conf.portIsolation === true ||
    // A hardware address in the file is the same for both.
    (conf.mac ?? '') !== '' ||
    conf.ingressPolicy === 'isolated' ||
    (conf.ingressPolicy === 'same-bridge' && !shared) ||
    // With "vepa", a switch outside may send frames back.
    ['private', 'vepa'].includes(String(conf.mode))
  );
}

function linkLocalOf({ place }: Attached, ifname: string): Ip | undefined {
  const link = findLink(place.route, ifname);
  const addresses = link ? listAddresses(place.route, link.index) : [];
  return addresses.find(({ cidr, scope }) => cidr.ip.family === 6 && scope === RT_SCOPE_LINK)?.cidr.ip;
}

const ECHO_PORT = 7;

/**
 * Promised by: a default route in the result, through a gateway that is this host. With `ipMasq`, the outside must see the
 * host's address, otherwise the container's own.
 */
function outsideProbes(scene: Scene): Probe[] {
  const { plugins, container, lab } = scene;
  const masquerades = plugins.some(({ conf }) => conf.ipMasq === true);
  if (containerIps(container).length === 0) return [];
  return lab.families
    .filter(family => defaultRouters(scene, family).some(router => isOfHost(scene, router)))
    .map(family => ({
      what: `IPv${family} outside is reachable${masquerades ? ", and sees the host's address" : ''}`,
      sends: { from: 'container', to: lab.outsideAddress[family], port: ECHO_PORT, protocol: 'tcp' } as const,
      run: () => reach(scene, family, masquerades ? lab.hostAddress[family] : undefined),
    }));
}

function reach({ lab, container }: Scene, family: 4 | 6, expected: Ip | undefined): Finding {
  const said = talkTcp({
    server: lab.outside.netns,
    port: ECHO_PORT,
    client: container.place.netns,
    to: lab.outsideAddress[family],
    toPort: ECHO_PORT,
    source: ruledSource(container, family),
  });
  if (!said.answered) return finding(false, said.why);
  const seen = `it saw ${renderIp(said.peer)}`;
  return finding(expected === undefined || sameIp(said.peer, expected), seen);
}

/** Beyond the uplink of a real host. What the host itself does not reach either says nothing about the container. */
function beyondProbes(scene: Scene): Probe[] {
  const { container, lab, live } = scene;
  const reachable = (live?.beyond ?? []).filter(
    ({ address }) => defaultRouters(scene, address.family).length,
  );
  return reachable.map(({ address, port }) => {
    const ask = (from: Netns) =>
      timed(
        port === undefined ? ping(from, address, 0, PATIENCE_MS) : knock(from, address, port, PATIENCE_MS),
      );
    return {
      what: `${renderIp(address)}${port === undefined ? '' : ` port ${port}`} replies, beyond the uplink`,
      sends: port === undefined ? echoTo(address) : { ...echoTo(address), port, protocol: 'tcp' },
      run() {
        const seen = ask(container.place.netns);
        if (seen.outcome === 'ok' || ask(lab.host.netns).outcome === 'ok') return seen;
        return skipped(`${seen.seen}, and none to the host itself`);
      },
    };
  });
}

/** The DNS servers of a result. */
function dnsProbes({ container }: Scene): Probe[] {
  return (container.result.dns?.nameservers ?? []).flatMap(text => {
    const ip = findIp(text);
    if (ip === undefined) return [];
    return {
      what: `DNS server ${renderIp(ip)} answers`,
      sends: { ...echoTo(ip), port: DNS_PORT, protocol: 'udp' },
      run: () => timed(askDns(container.place.netns, ip), 'no answer'),
    };
  });
}

const DNS_PORT = 53;

/** The next hop of each default route of a family; undefined for one without. */
function defaultRouters({ container }: Scene, family: 4 | 6): (Ip | undefined)[] {
  const { routes = [], ips = [] } = container.result;
  const usual = ips.map(({ gateway }) => findIp(gateway ?? '')).find(ip => ip?.family === family);
  const defaults = routes.filter(route => defaultFamilyOf(route) === family);
  return spreadGateways(defaults).map(({ gw }) => findIp(gw ?? '') ?? usual);
}

/** Whether a next hop is this host: what another router does with packets is not promised. */
function isOfHost({ lab }: Scene, router: Ip | undefined): boolean {
  return router === undefined || listAddresses(lab.host.route).some(({ cidr }) => sameIp(cidr.ip, router));
}

/**
 * Promised by: port mappings that a plugin received at run time. Each is tried from the outside, from the host and from the
 * container itself, for each family of which the container has an address.
 */
function portProbes(scene: Scene): Probe[] {
  const families = [...new Set(containerIps(scene.container).map(ip => ip.family))];
  const { live } = scene;
  return mappingsOf(scene).flatMap(([mapping, conf]) =>
    families.flatMap(family => {
      const to = addressFor(scene, mapping, family);
      if (to === undefined) return [];
      const hasConditions = Array.isArray(conf[`conditionsV${family}`]);
      const { hostPort: port, containerPort } = mapping;
      const protocol = protocolOf(mapping);
      const forwarded = `${protocol.toUpperCase()} port ${port} of ${renderIp(to)} is forwarded to ${containerPort}`;
      return callersOf(scene, conf, to).map(([who, client, from]) => ({
        what: `${forwarded}, from ${who}`,
        ...(protocol === 'tcp' || protocol === 'udp' ? { sends: { from, to, port, protocol } } : {}),
        isFollowed: live !== undefined && protocol === 'udp',
        run() {
          const found = live ? ask(live, mapping, to, client) : call(scene, mapping, to, client);
          if (found.outcome !== 'failed' || !hasConditions) return found;
          return skipped(`${found.seen}; conditionsV${family} may leave it out`);
        },
      }));
    }),
  );
}

/** Each mapping, with the configuration of the plugin that received it. */
function mappingsOf({ plugins }: Scene): (readonly [PortMapping, JsonObject])[] {
  const what = 'capability argument "portMappings"';
  return plugins.flatMap(({ conf, runtimeConfig: { portMappings = [] } }) =>
    decode(z.array(PortMapping), portMappings, what).map(mapping => [mapping, conf] as const),
  );
}

/** The host's address that the mapping is for; undefined when this host does not have it, or it is of the other family. */
function addressFor({ lab, live }: Scene, { hostIP }: PortMapping, family: 4 | 6): Ip | undefined {
  const wanted = hostIP ? findIp(hostIP) : undefined;
  if (wanted === undefined || wanted.value === 0n) {
    return wanted && wanted.family !== family ? undefined : (live?.nodeAddress ?? lab.hostAddress)[family];
  }
  if (wanted.family !== family) return undefined;
  return placeIps(lab.host).some(own => sameIp(own, wanted)) ? wanted : undefined;
}

type Caller = readonly [from: string, netns: Netns, sender: Sent['from']];

/**
 * The container itself is one if it has a route to the host's address. Without `snat`, it would get its own address as the source of its
 * packets.
 */
function callersOf({ lab, container }: Scene, { snat }: JsonObject, to: Ip): readonly Caller[] {
  const { ips = [], routes = [] } = container.result;
  const isRouted = [...ips.map(({ address }) => address), ...routes.map(({ dst }) => dst)].some(text => {
    const cidr = findCidr(text);
    return cidr !== undefined && cidrContains(cidr, to);
  });
  return [
    ['outside', lab.outside.netns, 'outside'],
    ['the host', lab.host.netns, 'node'],
    ...(isRouted && snat !== false
      ? [['the container itself', container.place.netns, 'container'] as const]
      : []),
  ];
}

function protocolOf({ protocol = 'tcp' }: PortMapping): string {
  return protocol.toLowerCase();
}

/** Asks the server that the container has: none of ours may take its port, and what a server does with a datagram is its own affair. */
function ask(live: Live, mapping: PortMapping, to: Ip, client: Netns): Finding {
  const { protocol = 'tcp', containerPort, hostPort } = mapping;
  const known = protocolOf(mapping);
  if (known === 'tcp') return timed(knock(client, to, hostPort, PATIENCE_MS));
  if (known === 'udp' && containerPort === DNS_PORT && live.isServed('udp', containerPort))
    return timed(askDns(client, to, hostPort), 'no answer');
  return skipped(`nothing was sent: what replies to an unknown ${protocol} datagram is not known`);
}

function call({ container }: Scene, mapping: PortMapping, to: Ip, client: Netns): Finding {
  const { protocol = 'tcp', hostPort, containerPort } = mapping;
  const talk = { tcp: talkTcp, udp: talkUdp }[protocolOf(mapping)];
  if (talk === undefined) return skipped(`no test for protocol ${protocol}`);
  const { netns: server } = container.place;
  const at = ruledSource(container, to.family);
  const source = client === server ? at : undefined;
  const said = talk({ server, port: containerPort, client, to, toPort: hostPort, at, source });
  return said.answered ? finding(true, `it saw ${renderIp(said.peer)}`) : finding(false, said.why);
}

/** Promised by: the `sysctl` key. */
function sysctlProbes(scene: Scene): Probe[] {
  return scene.plugins.flatMap(({ conf }) =>
    [...sysctlsOf(conf, scene.ifname)].map(([path, value]) => ({
      what: `${path} is ${value} inside, unchanged outside`,
      run: () => lookAtSysctl(scene, path, value),
    })),
  );
}

/** Parameters that a plugin's configuration sets, by path below /proc/sys. */
export function sysctlsOf(conf: JsonObject, ifname: string): Map<string, string> {
  const entries = Object.entries(isObject(conf.sysctl) ? conf.sysctl : {});
  return new Map(entries.map(([name, value]) => [pathOf(name.replaceAll('IFNAME', ifname)), String(value)]));
}

/** If the first separator is a slash, dots belong to interface names (sysctl.d(5)). */
function pathOf(name: string): string {
  const firstSeparator = /[./]/.exec(name)?.[0];
  if (firstSeparator === '/') return name;
  return name.replace(/[./]/g, found => (found === '.' ? '/' : '.'));
}

function lookAtSysctl({ container, lab, sysctlsBefore }: Scene, path: string, wanted: string): Finding {
  const inside = inNetns(container.place.netns, () => findSysctl(path));
  const outside = inNetns(lab.host.netns, () => findSysctl(path));
  if (inside === undefined) return finding(false, 'the container has no such parameter');
  if (spaced(inside) !== spaced(wanted)) return finding(false, `inside it is ${inside}`);
  const before = sysctlsBefore.get(path);
  if (outside !== before) return finding(false, `outside it changed from ${before} to ${outside}`);
  return finding(true, `outside it is ${outside ?? 'absent'}`);
}

/** The kernel separates values with tabs where people use spaces. */
function spaced(value: string): string {
  return value.trim().split(/\s+/).join(' ');
}

/** A rate higher than the limit by this factor breaks it; TCP's payload is 4 % less than what is limited. */
const TOLERANCE = 1.15;
/** A rate below this share of the limit has another cause. */
const TOO_SLOW = 0.5;
/** A busy machine slows traffic down and lets buckets refill; neither lasts. */
const ATTEMPTS = 3;

/** Promised by: rates in the configuration or in the `bandwidth` capability argument. The host is the other end. */
function rateProbes(scene: Scene): Probe[] {
  return scene.plugins.flatMap(plugin =>
    (['ingress', 'egress'] as const).flatMap(side => {
      const rateBits = rateOf(plugin, `${side}Rate`);
      if (rateBits === 0) return [];
      const what = `at most ${renderRate(rateBits)} ${side === 'ingress' ? 'into' : 'out of'} the container`;
      return [{ what, run: () => measure(scene, plugin, side, rateBits) }];
    }),
  );
}

function measure(
  scene: Scene,
  plugin: ConfiguredPlugin,
  side: 'ingress' | 'egress',
  rateBits: number,
): Finding {
  const burstBytes = rateOf(plugin, `${side}Burst`) / 8;
  const pair = addressPair(scene);
  if (pair === undefined) return skipped('the host has no address on this network');
  if (!isLimited(plugin, pair.host))
    return skipped(`traffic with ${renderIp(pair.host)} is exempt from the limit`);
  const { lab, container } = scene;
  const { kind = '' } = findLink(container.place.route, scene.ifname) ?? {};
  if (/^(macv|ipv)/.test(kind)) return skipped(`the kernel keeps the host apart from a container's ${kind}`);
  // A firewall of the host may take no connections from the container.
  const route = { client: lab.host.netns, server: container.place.netns, to: pair.container };
  const sender = side === 'ingress' ? 'client' : 'server';
  // A bucket that takes longer than this to fill at its own rate cannot be emptied here, so it is measured full.
  const drain = burstBytes * 8 > rateBits * 5 ? 0 : burstBytes;
  const holds = (seen: number) => seen <= rateBits * TOLERANCE && seen >= rateBits * TOO_SLOW;
  let seen: number | undefined;
  for (let attempt = 0; attempt < ATTEMPTS && !(seen && holds(seen)); attempt++) {
    seen = measureRate(route, sender, drain);
    if (seen === undefined) break;
  }
  if (seen === undefined) return finding(false, `no connection to ${renderIp(route.to)}`);
  if (drain === 0 && burstBytes > 0)
    return skipped(`${renderRate(seen)}, within a burst of ${Math.round(burstBytes)} bytes`);
  return finding(holds(seen), renderRate(seen));
}

/** An address of the host in the subnet of one of the container's addresses, and that address. */
function addressPair({ lab, container }: Scene): { host: Ip; container: Ip } | undefined {
  if (!containerIps(container).length) return undefined;
  const subnets = (container.result.ips ?? []).flatMap(({ address }) => findCidr(address) ?? []);
  for (const { cidr } of listAddresses(lab.host.route)) {
    const subnet = subnets.find(one => cidrContains(one, cidr.ip));
    if (subnet) return { host: cidr.ip, container: subnet.ip };
  }
  return undefined;
}

/** The capability argument replaces the configuration as a whole. */
function rateOf({ conf, runtimeConfig }: ConfiguredPlugin, key: string): number {
  const source = (runtimeConfig.bandwidth ?? conf) as Record<string, unknown>;
  const value = source[key];
  return typeof value === 'number' && value > 0 ? value : 0;
}

/** True unless lists of subnets, if any, exempt traffic with the address from the limit. */
function isLimited({ conf, runtimeConfig }: ConfiguredPlugin, ip: Ip): boolean {
  const lists = [conf, runtimeConfig.bandwidth].find(
    source => isObject(source) && (source.shapedSubnets || source.unshapedSubnets),
  );
  if (!isObject(lists)) return true;
  const covers = (list: unknown) =>
    Array.isArray(list) &&
    list.some(text => {
      const subnet = findCidr(String(text));
      return subnet !== undefined && cidrContains(subnet, ip);
    });
  const { shapedSubnets: shaped } = lists;
  return Array.isArray(shaped) && shaped.length ? covers(shaped) : !covers(lists.unshapedSubnets);
}
