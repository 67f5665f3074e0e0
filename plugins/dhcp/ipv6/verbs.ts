// What does dhcp do for IPv6, for each verb?

import * as z from 'zod/mini';
import { withoutIpv6 } from '../../../src/attach/forwarding.ts';
import { attachmentOf } from '../../../src/attach/owner.ts';
import { type CniError, describeError, tryAgainLater } from '../../../src/cni/errors.ts';
import { atLeast, type Result, resultIp, type SpecVersion } from '../../../src/cni/result.ts';
import {
  type Cidr,
  cidrContains,
  findCidr,
  type Ip,
  parseCidr,
  parseIp,
  renderCidr,
  renderIp,
  sameIp,
} from '../../../src/net/ip.ts';
import {
  type Address,
  addAddress,
  IFA_F_DADFAILED,
  IFA_F_DEPRECATED,
  IFA_F_TEMPORARY,
  IFA_F_TENTATIVE,
  limitAddress,
  listAddresses,
  removeAddress,
} from '../../../src/netlink/rtnl/addr.ts';
import { findLink, type Link } from '../../../src/netlink/rtnl/link.ts';
import { bootClock } from '../../../src/node/upkeep/note.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { inNetns } from '../../../src/sys/netns.ts';
import { findSysctl, trySysctl, writeSysctl } from '../../../src/sys/sysctl.ts';
import { DEFAULT_TIMEOUT_S, type DhcpConf, serversOf } from '../config.ts';
import { dnsOf } from '../lease.ts';
import {
  CommonState,
  checkLease,
  duidOf,
  type Identity,
  iaidOf,
  keepLease,
  type LeaseFamily,
  noteLease,
  type OpenInterface,
  releaseOnFailure,
  requireLease,
} from '../upkeep.ts';
import { type Advertisement, isGlobal } from './codec.ts';
import {
  acquire,
  askAbout,
  askResolvers,
  awaitRouters,
  type Client,
  type ClientPolicy6,
  FOREVER,
  Lease,
  type Resolvers,
  type RouterWatch,
  release,
  watchRouters,
  withClient,
} from './lease.ts';

/** The link-local address of an interface that was down is there after two seconds. */
const RELEASE_MS = 3_000;

const LeaseState = z.extend(CommonState, {
  lease: Lease,
  unapplied: z.optional(Lease),
  /** Who the client is: DUID and IAID, in hexadecimal digits. */
  duid: z.string(),
  iaid: z.string(),
  /** Prefix length of the address on the interface. */
  prefix: z.number(),
});
type LeaseState = z.output<typeof LeaseState>;

export const IPV6_LEASES: LeaseFamily<LeaseState> = {
  family: 6,
  schema: LeaseState,
  cidrOf: ({ lease, prefix }) => `${lease.address}/${prefix}`,
  // They are the routers', and the kernel's.
  routesOf: () => [],
  release: (place, state) =>
    withClient(place, identityIn(state), performance.now() + RELEASE_MS, client =>
      release(client, state.lease),
    ),
};

/** Who the client of a call's attachment is, as its record has it. */
function clientFor(call: Call): Pick<LeaseState, 'duid' | 'iaid'> {
  const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');
  const attachment = attachmentOf(call);
  return { duid: hex(duidOf(attachment)), iaid: hex(iaidOf(attachment)) };
}

function identityIn({ duid, iaid }: Pick<LeaseState, 'duid' | 'iaid'>): Identity {
  return { duid: Uint8Array.from(Buffer.from(duid, 'hex')), iaid: Uint8Array.from(Buffer.from(iaid, 'hex')) };
}

/**
 * Prepares the interface, before it comes up.
 * @returns a function that begins to listen to routers, to be called as soon as it is up: the kernel asks them then, and they need not
 * answer twice
 */
export function startIpv6(call: Call, conf: DhcpConf, link: Link) {
  const { ipv6: way, timeout = DEFAULT_TIMEOUT_S } = conf.ipam;
  const giveUpAt = performance.now() + timeout * 1000;
  acceptAdvertisements(call, link.name, conf.ipam);
  return () => {
    const place = { netns: call.containerNetns, link, socket: call.container };
    const routers = watchRouters(place);
    const obtain = way === 'dhcp' ? obtainLease : obtainFormed;
    return { obtain: () => obtain(call, conf, { place, routers, giveUpAt }), close: routers.close };
  };
}

/** How often routers are asked once a server has answered, or the kernel has heard one. */
const ASK_ROUTERS = 2;
/** The plugin that called addresses the interface soon after ADD; then the address gets its lifetimes. */
const FIRST_LOOK_S = 3;

/** Where and until when addresses are sought. */
interface Search {
  readonly place: OpenInterface;
  readonly routers: RouterWatch;
  /** In milliseconds of `performance.now()`. */
  readonly giveUpAt: number;
}

/**
 * Obtains a lease by DHCPv6, and notes it. Gateway and prefix length are what routers advertise.
 * @throws CniError 11 when there is no lease in time
 */
async function obtainLease(call: Call, conf: DhcpConf, search: Search): Promise<Result> {
  const { place, routers, giveUpAt } = search;
  const { timeout = DEFAULT_TIMEOUT_S, priority } = conf.ipam;
  const client = clientFor(call);
  routers.solicit();
  const policy = askMeanwhile(policyFor(conf, place), routers);
  const limit = { link: place.link, timeoutS: timeout };
  const lease = await requireLease(call, IPV6_LEASES, limit, (former, _, refusals) =>
    withClient(place, identityIn(client), giveUpAt, one => acquire(one, policy, former, giveUpAt, refusals)),
  );
  const state = { lease, ...client, prefix: HOST_PREFIX, unseen: true };
  releaseOnFailure(call, IPV6_LEASES, place, state);
  const heard = await awaitRouters(routers, policy.findHolder ? ASK_ROUTERS - 1 : ASK_ROUTERS);
  const prefix = prefixFor(parseIp(lease.address), heard);
  // It is called again for this lease alone: the one of IPv4 has a note of its own.
  const ipam = { ...(call.request.ipam as object), ipv4: false };
  const stdin = JSON.stringify({ ...call.request, ipam });
  noteLease(call, IPV6_LEASES, { ...state, prefix }, bootClock() + FIRST_LOOK_S, stdin);
  const advertised = advertisedResolvers(heard);
  const { nameservers, search: domains } = lease;
  return resultOf({
    addresses: [parseCidr(`${lease.address}/${prefix}`)],
    routers: heard,
    resolvers: {
      nameservers: nameservers.length ? nameservers : advertised.nameservers,
      search: domains.length ? domains : advertised.search,
    },
    priority,
    version: call.version,
  });
}

/** A server's grant shows that packets pass, so routers are asked again; they answer while the kernel probes for the address. */
function askMeanwhile(policy: ClientPolicy6, routers: RouterWatch): ClientPolicy6 {
  const { findHolder: probe } = policy;
  if (probe === undefined) return policy;
  const findHolder = (lease: Lease) => {
    if (routers.heard().length === 0) routers.solicit();
    return probe(lease);
  };
  return { ...policy, findHolder };
}

function policyFor({ ipam }: DhcpConf, place: OpenInterface): ClientPolicy6 {
  const { servers, detectConflicts = true, rapidCommit = false } = ipam;
  return {
    servers: serversOf(servers, 6),
    rapidCommit,
    ...(detectConflicts ? { findHolder: (lease: Lease) => findHolder(place, lease) } : {}),
  };
}

/** The kernel probes once, and waits a second, after a delay of up to one second (RFC 4862). */
const DEADLINE_MS = 4_000;
const PROBE_POLL_MS = 25;

/**
 * Has the kernel probe for the address of a lease on an interface that does not have it (RFC 9915, section 18.2.10.1). The interface
 * has the address for that long only: the plugin that called will add it.
 * @returns what stands against the address, in text; undefined if no host answers
 */
async function findHolder({ socket, link }: OpenInterface, { address }: Lease): Promise<string | undefined> {
  const cidr = parseCidr(`${address}/128`);
  const find = () => listAddresses(socket, link.index).find(one => sameIp(one.cidr.ip, cidr.ip));
  // An attachment that is added again may have it still.
  if (find()) return undefined;
  addAddress(socket, link.index, cidr);
  try {
    for (const giveUpAt = performance.now() + DEADLINE_MS; performance.now() < giveUpAt; ) {
      const { flags = 0 } = find() ?? {};
      if (flags & IFA_F_DADFAILED) return `another host on the network has ${address}`;
      if (!(flags & IFA_F_TENTATIVE)) return undefined;
      await Bun.sleep(PROBE_POLL_MS);
    }
    return undefined;
  } finally {
    removeAddress(socket, link.index, cidr);
  }
}

/** linux/ipv6_route.h, IP6_RT_PRIO_USER: the metric of default routes that the kernel learns. */
const LEARNED = 1024;
const HOST_PREFIX = 128;
const PRIORITY_SINCE = '1.1.0';

interface Findings {
  readonly addresses: readonly Cidr[];
  readonly routers: readonly Advertisement[];
  readonly resolvers: Resolvers;
  readonly priority: number | undefined;
  /** Of the result. */
  readonly version: SpecVersion;
}

/**
 * The IPAM result. Its default route comes after the one that the kernel learns: the plugin that called takes the interface down to
 * address it, and until the next advertisement there would be none. With the same metric, the kernel could not add its own, and would
 * leave the rest of the advertisement unread; so results that cannot state a metric have no default route.
 */
export function resultOf({ addresses, routers, resolvers, priority, version }: Findings): Result {
  const gateway = routers.find(({ isDefault }) => isDefault)?.router;
  const dns = dnsOf({ domain: undefined, ...resolvers });
  return {
    ips: addresses.map(cidr => resultIp({ cidr, gateway })),
    routes:
      gateway && atLeast(version, PRIORITY_SINCE)
        ? [{ dst: '::/0', gw: renderIp(gateway), priority: (priority || LEARNED) + 1 }]
        : [],
    ...(dns ? { dns } : {}),
  };
}

export function advertisedResolvers(routers: readonly Advertisement[]): Resolvers {
  const nameservers = routers.flatMap(one => one.nameservers.map(renderIp));
  return { nameservers: [...new Set(nameservers)], search: [...new Set(routers.flatMap(one => one.search))] };
}

/** The prefix length of a leased address: that of the prefix that routers say is on the link, or of the address alone. */
export function prefixFor(ip: Ip, routers: readonly Advertisement[]): number {
  const onLink = routers.flatMap(({ prefixes }) =>
    prefixes.filter(one => one.onLink && cidrContains(one.cidr, ip)),
  );
  return Math.max(0, ...onLink.map(({ cidr }) => cidr.prefix)) || HOST_PREFIX;
}

/** Resolvers are worth less than the container's start. */
const INFORMATION_MS = 4_000;

/**
 * Waits for addresses that the kernel forms from advertisements. They are taken from the interface again: the plugin that called adds
 * what it is told, and the reference's fail if the interface has it already. The next advertisement gives them their lifetimes.
 * @throws CniError 11 when there is none in time
 */
async function obtainFormed(call: Call, conf: DhcpConf, search: Search): Promise<Result> {
  const { place, routers } = search;
  const { priority, timeout = DEFAULT_TIMEOUT_S } = conf.ipam;
  const addresses = await awaitFormed(search, timeout);
  // The kernel may have formed them before this listened.
  const heard = await awaitRouters(routers, ASK_ROUTERS);
  const advertised = advertisedResolvers(heard);
  const resolvers =
    conf.ipam.ipv6 === 'stateless' ? ((await askServers(call, conf, search)) ?? advertised) : advertised;
  for (const cidr of addresses) removeAddress(place.socket, place.link.index, cidr);
  return resultOf({ addresses, routers: routers.heard(), resolvers, priority, version: call.version });
}

async function askServers(call: Call, conf: DhcpConf, { place }: Search): Promise<Resolvers | undefined> {
  const giveUpAt = performance.now() + INFORMATION_MS;
  const policy = { servers: serversOf(conf.ipam.servers, 6) };
  let why = 'no answer';
  try {
    const told = await withClient(place, identityIn(clientFor(call)), giveUpAt, client =>
      askResolvers(client, policy, giveUpAt),
    );
    if (told) return told;
  } catch (thrown) {
    why = describeError(thrown);
  }
  call.log.warn(
    `No DHCPv6 server named resolvers for "${place.link.name}": ${why}; the result has those of routers, if any`,
  );
  return undefined;
}

/** Accept advertisements although the namespace forwards packets. */
const EVEN_IF_FORWARDING = '2';

/**
 * Enables IPv6 on the interface, and that the kernel learns routers from advertisements, prefixes of the link too, and addresses if
 * they are to be formed. What was there before is put back when ADD fails.
 * @throws CniError 7 when the interface cannot have IPv6, Error when the parameters cannot be written
 */
function acceptAdvertisements(call: Call, name: string, { ipv6: way, priority }: DhcpConf['ipam']): void {
  const conf = `net/ipv6/conf/${name}`;
  const { containerNetns } = call;
  inNetns(containerNetns, () => {
    const isForwarding = findSysctl(`${conf}/forwarding`) === '1';
    const accepts = findSysctl(`${conf}/accept_ra`);
    if (accepts === undefined) throw withoutIpv6(name);
    const wanted: [string, string][] = [
      ['accept_ra', isForwarding || accepts === EVEN_IF_FORWARDING ? EVEN_IF_FORWARDING : '1'],
      ...['accept_ra_defrtr', 'accept_ra_pinfo'].map((key): [string, string] => [key, '1']),
      ['autoconf', way === 'dhcp' ? '0' : '1'],
      ['disable_ipv6', '0'],
    ];
    for (const [key, value] of wanted) change(call, `${conf}/${key}`, value);
    // Of default routes that the kernel learns (Linux 5.12).
    const metric = `${conf}/ra_defrtr_metric`;
    if (priority && findSysctl(metric) !== undefined) change(call, metric, String(priority));
  });
}

/** To be called in the container's namespace. */
function change(call: Call, path: string, value: string): void {
  const before = findSysctl(path);
  if (before === value) return;
  writeSysctl(path, value);
  if (before === undefined) return;
  const { containerNetns } = call;
  call.onFailure(`restore sysctl "${path}"`, () => inNetns(containerNetns, () => trySysctl(path, before)));
}

/** @throws Error naming what is missing, or what has replaced it */
export function checkIpv6(call: Call, way: NonNullable<DhcpConf['ipam']['ipv6']>): void {
  if (way === 'dhcp') checkLease(call, IPV6_LEASES);
  else checkFormed(call);
}

/** Lifetimes come with each advertisement; the address must exist, and new connections must use it. */
function checkFormed(call: Call): void {
  const { ifname } = call.env;
  const addresses = (call.prevResult?.ips ?? []).flatMap(({ address }) => findCidr(address) ?? []);
  const reported = addresses.filter(({ ip }) => ip.family === 6);
  const link = findLink(call.container, ifname);
  const formed = link ? formedAddresses({ socket: call.container, link }).map(({ cidr }) => cidr) : [];
  const missing = reported.find(({ ip }) => !formed.some(one => sameIp(one.ip, ip)));
  if (missing === undefined && formed.length > 0) return;
  const what = missing ? renderCidr(missing) : 'an IPv6 address';
  const found = formed.length ? formed.map(renderCidr).join(', ') : 'none that is preferred';
  throw new Error(`Cannot confirm ${what} of "${ifname}": the interface has ${found}; run DEL and ADD`);
}

/** As {@link keepLease}, with the lifetimes of the address. */
export function keepIpv6(call: Call, conf: DhcpConf, restarted: boolean): Promise<void> {
  const { timeout: timeoutS = DEFAULT_TIMEOUT_S } = conf.ipam;
  return keepLease(call, IPV6_LEASES, { restarted, timeoutS }, (place, state) => {
    const policy = policyFor(conf, place);
    const talk = <T>(giveUpAt: number, work: (client: Client) => Promise<T>) =>
      withClient(place, identityIn(state), giveUpAt, work);
    return {
      ask: (question, lease, giveUpAt) =>
        talk(giveUpAt, client => askAbout(client, policy, question, lease, giveUpAt)),
      acquire: (former, giveUpAt, refusals) =>
        talk(giveUpAt, client => acquire(client, policy, former, giveUpAt, refusals)),
      missing: () => [],
      apply: lease => applyLease(place, lease, state.prefix),
    };
  });
}

/**
 * Gives the interface the address of a lease, with what is left of its lifetimes: the kernel itself removes the address of a lease that
 * has ended, whether a daemon runs or not.
 * @param prefix length
 */
function applyLease(
  { socket, link }: OpenInterface,
  { address, since, duration, preferred }: Lease,
  prefix: number,
): void {
  const age = Math.floor(bootClock() - since);
  const left = (lifetime: number | undefined) =>
    lifetime === undefined ? FOREVER : Math.max(0, lifetime - age);
  // The kernel refuses an address that is valid for no time.
  const valid = Math.max(1, left(duration));
  const lifetimes = { valid, preferred: Math.min(valid, left(preferred)) };
  limitAddress(socket, link.index, parseCidr(`${address}/${prefix}`), lifetimes);
}

const POLL_MS = 50;
/** A packet may be lost, and a router may wait half a second; the kernel itself asks again after four. */
const SOLICIT_EVERY_MS = 2_000;

/** The global addresses that the interface itself uses: those of privacy extensions come and go. */
function formedAddresses({ socket, link }: Pick<OpenInterface, 'socket' | 'link'>): Address[] {
  return listAddresses(socket, link.index).filter(
    ({ cidr, flags }) => isGlobal(cidr.ip) && !(flags & (IFA_F_TEMPORARY | IFA_F_DEPRECATED)),
  );
}

/**
 * Waits until the kernel has formed an address, and has probed for it.
 * @param timeoutS the seconds that the end of waiting was set to
 * @throws CniError 11 when there is none by then, which says what was heard
 */
async function awaitFormed({ place, routers, giveUpAt }: Search, timeoutS: number): Promise<Cidr[]> {
  for (let solicitAt = performance.now(); ; ) {
    if (performance.now() >= solicitAt) {
      routers.solicit();
      solicitAt += SOLICIT_EVERY_MS;
    }
    const formed = formedAddresses(place);
    const usable = formed.filter(({ flags }) => !(flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)));
    const isDecided = formed.every(({ flags }) => flags & IFA_F_DADFAILED || !(flags & IFA_F_TENTATIVE));
    if (isDecided && usable.length > 0) return usable.map(({ cidr }) => cidr);
    if (performance.now() >= giveUpAt) throw noAddress(place, timeoutS, formed, routers.heard());
    await Bun.sleep(POLL_MS);
  }
}

function noAddress(
  { link }: OpenInterface,
  timeoutS: number,
  formed: readonly Address[],
  heard: readonly Advertisement[],
): CniError {
  const taken = formed.find(({ flags }) => flags & IFA_F_DADFAILED);
  const autonomous = heard.some(({ prefixes }) => prefixes.some(one => one.autonomous));
  const what = taken
    ? `another host on the network has ${renderCidr(taken.cidr)}`
    : heard.length === 0
      ? 'no router advertised itself'
      : autonomous
        ? 'the kernel formed none of the prefix that a router advertised'
        : `routers advertise no prefix to form addresses in${heard.some(({ managed }) => managed) ? '; they refer to DHCPv6: use "ipv6": "dhcp"' : ''}`;
  return tryAgainLater(`Cannot obtain an IPv6 address for "${link.name}" within ${timeoutS} s: ${what}`, {
    details: 'the router must be on the network of the interface, and be let through by packet filters',
  });
}
