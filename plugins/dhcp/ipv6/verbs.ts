// What does dhcp do for IPv6, for each verb?

import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import type { Result } from '../../../src/cni/result.ts';
import { type Cidr, findCidr, parseCidr, parseIp, renderCidr, sameIp } from '../../../src/net/ip.ts';
import {
  type Address,
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
import { attachmentOf, checkLease, duidOf, iaidOf } from '../record.ts';
import {
  collectLeases,
  type Keeping,
  keepLease,
  type OpenInterface,
  type Release,
  returnLease,
} from '../upkeep.ts';
import { type Advertisement, isGlobal } from './codec.ts';
import { awaitRouters, type Client, type RouterWatch, watchRouters, withClient } from './conversation.ts';
import {
  acquire,
  askResolvers,
  FOREVER,
  IPV6_LEASES,
  identityIn,
  type Lease,
  type LeaseState,
  type Resolvers,
  rebind,
  release,
  renew,
} from './lease.ts';
import { advertisedResolvers, mannerFor, obtainLease, resultOf, type Search } from './obtain.ts';

/** The link-local address of an interface that was down is there after two seconds. */
const RELEASE_MS = 3_000;

/** What is left to do on an interface that is up. */
interface Ipv6Search {
  obtain(): Promise<Result>;
  close(): void;
}

/**
 * Prepares the interface, before it comes up.
 * @returns a function that begins to listen to routers, to be called as soon as it is up: the kernel asks them then, and they need not
 * answer twice
 */
export function startIpv6(call: Call, conf: DhcpConf, link: Link): () => Ipv6Search {
  const { ipv6: way, priority, timeout = DEFAULT_TIMEOUT_S } = conf.ipam;
  const giveUpAt = performance.now() + timeout * 1000;
  acceptAdvertisements(call, link.name, { autoconf: way !== 'dhcp', priority });
  return () => {
    const place = { netns: call.containerNetns, link, socket: call.container };
    const routers = watchRouters(place);
    const obtain = way === 'dhcp' ? obtainLease : obtainFormed;
    return { obtain: () => obtain(call, conf, { place, routers, giveUpAt }), close: routers.close };
  };
}

/** DEL. */
export function returnIpv6(call: Call): Promise<void> {
  return returnLease(call, IPV6_LEASES, releaseFor(call));
}

/** GC. */
export function collectIpv6(call: Call): Promise<void> {
  return collectLeases(call, IPV6_LEASES, releaseFor(call));
}

function releaseFor(call: Call): Release<LeaseState> {
  return async (place, state) => {
    const { lease } = state;
    const isHeard = await withClient(place, identityIn(state), performance.now() + RELEASE_MS, client =>
      release(client, lease),
    );
    if (!isHeard)
      call.log.info(
        `The server did not acknowledge the release of ${lease.address}; it may keep the address`,
      );
  };
}

/** Resolvers are worth less than the container's start. */
const INFORMATION_MS = 4_000;
/** How often the router that the kernel has heard is asked. */
const ASK_ROUTERS = 2;

/**
 * Waits for addresses that the kernel forms from advertisements. They are taken from the interface again: the plugin that called adds
 * what it is told, and the reference's fail if the interface has it already. The next advertisement gives them their lifetimes.
 * @throws CniError 11 when there is none in time
 */
async function obtainFormed(call: Call, conf: DhcpConf, search: Search): Promise<Result> {
  const { place, routers, giveUpAt } = search;
  const { priority, timeout = DEFAULT_TIMEOUT_S } = conf.ipam;
  const addresses = await awaitFormed(place, routers, { timeoutS: timeout, giveUpAt });
  // The kernel may have formed them before this listened.
  const heard = await awaitRouters(routers, ASK_ROUTERS);
  const advertised = advertisedResolvers(heard);
  const resolvers =
    conf.ipam.ipv6 === 'stateless' ? ((await askServers(call, conf, search)) ?? advertised) : advertised;
  for (const cidr of addresses) removeAddress(place.socket, place.link.index, cidr);
  return resultOf({ addresses, routers: routers.heard(), resolvers, priority, version: call.version });
}

async function askServers(
  call: Call,
  conf: DhcpConf,
  { place, giveUpAt }: Search,
): Promise<Resolvers | undefined> {
  const identity = { duid: duidOf(attachmentOf(call)), iaid: iaidOf(attachmentOf(call)) };
  const until = Math.max(giveUpAt, performance.now() + INFORMATION_MS);
  const manner = { servers: serversOf(conf.ipam.servers, 6) };
  const told = await withClient(place, identity, until, client =>
    askResolvers(client, manner, performance.now() + INFORMATION_MS),
  );
  if (told === undefined)
    call.log.warn(
      `No DHCPv6 server named resolvers for "${place.link.name}"; the result has those of routers, if any`,
    );
  return told;
}

/** Accept advertisements although the namespace forwards packets. */
const EVEN_IF_FORWARDING = '2';

/** What a way of getting addresses needs. */
interface Needs {
  /** The kernel forms addresses from advertised prefixes. */
  readonly autoconf: boolean;
  /** Metric of default routes that the kernel learns from advertisements; undefined for its own. */
  readonly priority: number | undefined;
}

/**
 * Enables IPv6 on the interface, and that the kernel learns routers from advertisements, prefixes of the link too, and addresses if
 * they are to be formed. What was there before is put back when ADD fails.
 * @throws Error when the kernel has no IPv6, or the parameters cannot be written
 */
function acceptAdvertisements(call: Call, name: string, { autoconf, priority }: Needs): void {
  const conf = `net/ipv6/conf/${name}`;
  const { containerNetns } = call;
  inNetns(containerNetns, () => {
    const isForwarding = findSysctl(`${conf}/forwarding`) === '1';
    const accepts = findSysctl(`${conf}/accept_ra`);
    if (accepts === undefined) throw new Error(`Cannot use IPv6 on "${name}": this kernel has no IPv6`);
    const wanted: [string, string][] = [
      ['accept_ra', isForwarding || accepts === EVEN_IF_FORWARDING ? EVEN_IF_FORWARDING : '1'],
      ...['accept_ra_defrtr', 'accept_ra_pinfo'].map((key): [string, string] => [key, '1']),
      ['autoconf', autoconf ? '1' : '0'],
      ['disable_ipv6', '0'],
    ];
    for (const [key, value] of wanted) change(call, `${conf}/${key}`, value);
    // Linux 5.12
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
  const reported = (call.prevResult?.ips ?? []).flatMap(({ address }) => findCidr(address) ?? []);
  const own = reported.filter(({ ip }) => ip.family === 6);
  if (way === 'dhcp') {
    const addresses = call.prevResult && own.map(renderCidr);
    checkLease(
      call,
      IPV6_LEASES,
      'an IPv6 lease',
      addresses,
      ({ lease, prefix }) => `${lease.address}/${prefix}`,
    );
  } else checkFormed(call, own);
}

/** Lifetimes come with each advertisement; the address must exist, and new connections must use it. */
function checkFormed(call: Call, reported: readonly Cidr[]): void {
  const { ifname } = call.env;
  const link = findLink(call.container, ifname);
  const formed = link ? formedAddresses({ socket: call.container, link }).map(({ cidr }) => cidr) : [];
  const missing = reported.find(({ ip }) => !formed.some(one => sameIp(one.ip, ip)));
  if (missing === undefined && formed.length > 0) return;
  const what = missing ? renderCidr(missing) : 'an IPv6 address';
  const found = formed.length ? formed.map(renderCidr).join(', ') : 'none that is preferred';
  throw new Error(`Cannot confirm ${what} of "${ifname}": the interface has ${found}; run DEL and ADD`);
}

const QUESTIONS = { confirm: rebind, renew, rebind };

/** As {@link keepLease}, with the lifetimes of the address. */
export function keepIpv6(call: Call, conf: DhcpConf, restarted: boolean): Promise<void> {
  return keepLease(call, IPV6_LEASES, restarted, (place, state): Keeping<Lease> => {
    const manner = mannerFor(conf, place);
    const talk = <T>(giveUpAt: number, work: (client: Client) => Promise<T>) =>
      withClient(place, identityIn(state), giveUpAt, work);
    return {
      what: 'IPv6 address',
      ask: (question, giveUpAt) =>
        talk(giveUpAt, client => QUESTIONS[question](client, manner, state.lease, giveUpAt)),
      acquire: (former, giveUpAt, refusals) =>
        talk(giveUpAt, client => acquire(client, manner, former, giveUpAt, refusals)),
      release: (lease, giveUpAt) => talk(giveUpAt, client => release(client, lease)),
      hasAddress: lease => findAddress(place, lease) !== undefined,
      withdraw: lease => withdrawAddress(place, lease),
      apply(lease, before) {
        if (before.address !== lease.address) withdrawAddress(place, before);
        applyLease(place, lease, state.prefix);
      },
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

function withdrawAddress(place: OpenInterface, lease: Lease): void {
  const found = findAddress(place, lease);
  if (found) removeAddress(place.socket, place.link.index, found.cidr);
}

function findAddress({ socket, link }: OpenInterface, { address }: Lease): Address | undefined {
  const ip = parseIp(address);
  return listAddresses(socket, link.index).find(one => sameIp(one.cidr.ip, ip));
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
 * @param until the end of waiting in milliseconds of `performance.now()`, and the seconds that it was set to
 * @throws CniError 11 when there is none by then, which says what was heard
 */
async function awaitFormed(
  place: OpenInterface,
  routers: RouterWatch,
  { giveUpAt, timeoutS }: { readonly giveUpAt: number; readonly timeoutS: number },
): Promise<Cidr[]> {
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
  return new CniError(
    ErrorCode.tryAgainLater,
    `Cannot obtain an IPv6 address for "${link.name}" within ${timeoutS} s: ${what}`,
    { details: 'the router must be on the network of the interface, and be let through by packet filters' },
  );
}
