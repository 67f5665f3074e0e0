// What has an IPv4 server granted and until when, by which messages is that obtained, confirmed, renewed and released, and which
// result follows from it?

import * as z from 'zod/mini';
import { findHolderMac } from '../../src/attach/conflict.ts';
import { defined } from '../../src/cni/json.ts';
import type { Result, ResultDns } from '../../src/cni/result.ts';
import { parseMac, renderMac } from '../../src/net/interface.ts';
import { cidrContains, ipFromBytes, ipToBytes, parseCidr, parseIp, renderIp } from '../../src/net/ip.ts';
import { RT_SCOPE_LINK } from '../../src/netlink/rtnl/addr.ts';
import { bootClock } from '../../src/node/upkeep/note.ts';
import { pause } from '../../src/wait.ts';
import {
  addressesOf,
  Code,
  classlessRoutesOf,
  isHost,
  MAX_MESSAGE_BYTES,
  MessageType,
  nameOf,
  numberOf,
  type Options,
  prefixOf,
  type ServedRoute,
  searchOf,
  staticRoutesOf,
  textOf,
} from './codec.ts';
import type { Wishes } from './config.ts';
import {
  acquireBy,
  ask,
  type Client,
  type ClientPolicy,
  type Destination,
  type Dhcp4Answer,
  extend,
  isTrusted,
  type LeaseQuestion,
  newTransaction,
  noteRefusal,
  type Question,
  type Refusals,
  type Response,
  tell,
  withClient,
} from './conversation.ts';
import { CommonLease, CommonState, type LeaseFamily, MIN_DURATION_S, type OpenInterface } from './upkeep.ts';

/** A route, in text. Without a gateway, the destination is on the link. */
const LeasedRoute = z.object({ dst: z.string(), gw: z.optional(z.string()) });

/** A lease, as it is kept on disk. */
export const Lease = z.extend(CommonLease, {
  gateway: z.optional(z.string()),
  routes: z.array(LeasedRoute),
  domain: z.optional(z.string()),
  /** Bytes; not bounded by the interface's own yet. */
  mtu: z.optional(z.number()),
  /** Hardware address from which the server answered: its own, or that of the router to it. */
  serverMac: z.string(),
});
export type Lease = z.output<typeof Lease>;

/** RFC 2132, 9.2: a lease without end. */
const FOREVER = 0xffffffff;
/** The reference's, for a server that names none. */
const DEFAULT_DURATION_S = 3600;
/** RFC 2131, 4.4.5 */
const T1 = 0.5;
const T2 = 0.875;
/** Every IPv4 host accepts this much (RFC 791); less is a mistake or an attack. */
const MIN_MTU = 576;

/**
 * The lease that an acknowledgement grants.
 * @param since seconds since the boot when it was requested
 * @returns a text that says why it cannot be used, if it cannot
 */
export function leaseOf({ message, mac }: Dhcp4Answer, since: number): Lease | string {
  const { options, yiaddr } = message;
  const ip = ipFromBytes(yiaddr);
  const prefix = prefixOf(options.get(Code.subnetMask));
  const server = serverOf(message.options);
  if (!isHost(ip)) return `no host can have the address ${renderIp(ip)}`;
  if (prefix === undefined) return `${renderIp(ip)} came without a subnet mask`;
  if (server === undefined) return `${renderIp(ip)} came without the address of the server`;
  const [router] = addressesOf(options.get(Code.routers)).filter(({ value }) => value !== ip.value);
  const gateway = router && renderIp(router);
  return {
    address: `${renderIp(ip)}/${prefix}`,
    ...defined({ gateway }),
    routes: routesOf(options, gateway),
    nameservers: addressesOf(options.get(Code.nameservers)).map(renderIp),
    ...defined({ domain: nameOf(options.get(Code.domainName)) }),
    search: searchOf(options.get(Code.domainSearch)),
    ...defined({ mtu: mtuOf(options) }),
    server: renderIp(ipFromBytes(server)),
    serverMac: renderMac(mac),
    since,
    ...timesOf(options),
  };
}

/** The address of the server that sent a message, in 4 bytes. */
function serverOf(options: Options): Uint8Array | undefined {
  const value = options.get(Code.serverId);
  return value?.length === 4 && isHost(ipFromBytes(value)) ? value : undefined;
}

/** Option 121 replaces 33 and 3 (RFC 3442). */
function routesOf(options: Options, gateway: string | undefined): Lease['routes'] {
  const classless = classlessRoutesOf(options.get(Code.classlessRoutes));
  if (classless?.length) return classless.map(renderRoute);
  const fixed = staticRoutesOf(options.get(Code.staticRoutes)).map(renderRoute);
  return gateway ? [...fixed, { dst: '0.0.0.0/0', gw: gateway }] : fixed;
}

function renderRoute({ dst, gateway }: ServedRoute): Lease['routes'][number] {
  return { dst: `${renderIp(dst.ip)}/${dst.prefix}`, ...(gateway ? { gw: renderIp(gateway) } : {}) };
}

function mtuOf(options: Options): number | undefined {
  const mtu = numberOf(options.get(Code.interfaceMtu));
  return mtu !== undefined && mtu >= MIN_MTU && mtu <= 0xffff ? mtu : undefined;
}

function timesOf(options: Options): Partial<Lease> {
  const granted = numberOf(options.get(Code.leaseTime)) ?? DEFAULT_DURATION_S;
  if (granted === FOREVER) return {};
  const duration = Math.max(granted, MIN_DURATION_S);
  const t1 = numberOf(options.get(Code.renewalTime));
  const t2 = numberOf(options.get(Code.rebindingTime));
  const rebindAfter = t2 !== undefined && t2 > 0 && t2 < duration ? t2 : Math.floor(duration * T2);
  const renewAfter = t1 !== undefined && t1 > 0 && t1 <= rebindAfter ? t1 : Math.floor(duration * T1);
  return { duration, rebindAfter, renewAfter: Math.min(renewAfter, rebindAfter) };
}

const LeaseState = z.extend(CommonState, {
  lease: Lease,
  unapplied: z.optional(Lease),
  /** Value of option 61, in hexadecimal digits. */
  clientId: z.string(),
  /** MTU of the interface before ADD lowered it to the server's. */
  ownMtu: z.number(),
});
type LeaseState = z.output<typeof LeaseState>;

export const IPV4_LEASES: LeaseFamily<LeaseState> = {
  family: 4,
  schema: LeaseState,
  cidrOf: ({ lease }) => lease.address,
  // Servers of one network may name the same in another order.
  routesOf: ({ lease }) => lease.routes.map(({ dst, gw }) => (gw ? `${dst} via ${gw}` : dst)).sort(),
  release,
};

/** A bridge's port forwards tens of milliseconds after its other end came up, on a busy machine; a server ignores what it knows. */
const REPEAT_PAUSES_MS = [30, 100, 300];
const NO_ADDRESS = new Uint8Array(4);

/** How a client asks for IPv4 leases. */
export interface ClientPolicy4 extends ClientPolicy<Lease>, Wishes {
  /** The interface shares its hardware address with others, so the answer must be a broadcast. */
  readonly broadcast: boolean;
}

export function acquire(
  client: Client,
  policy: ClientPolicy4,
  wanted: string | undefined,
  giveUpAt: number,
  refusals: Refusals,
): Promise<Lease | undefined> {
  // RFC 2131, 4.4.1: a request has the transaction of the offer.
  let xid = newTransaction();
  const messages = {
    discover(hint: string | undefined) {
      xid = newTransaction();
      const what = discover(client, policy, hint);
      return ask(client, what, offerFor(policy, refusals), { at: giveUpAt }, { xid });
    },
    request: (offer: Offer, deadline: number) =>
      request(client, policy, { ...offer, xid }, deadline, refusals),
    decline: (lease: Lease) => decline(client, lease),
  };
  return acquireBy(messages, policy, wanted, giveUpAt, refusals);
}

/**
 * Asks whether an address from before is still right here (RFC 2131, section 3.2: INIT-REBOOT); the server of a lease to extend it
 * (4.4.5: RENEWING); or every server (REBINDING).
 */
export async function askAbout(
  client: Client,
  policy: ClientPolicy4,
  about: LeaseQuestion,
  lease: Lease,
  giveUpAt: number,
): Promise<Response<Lease>> {
  const to = about === 'renew' ? await serverAt(client, lease) : undefined;
  const since = bootClock();
  const address = addressOf(lease);
  const isUsed = about !== 'confirm';
  const options = isUsed ? {} : { [Code.requestedAddress]: address };
  const asked = question(client, policy, MessageType.request, options);
  // With its address in use, a client names it in the header only.
  const what = isUsed ? { ...asked, ciaddr: address } : asked;
  return extend<Dhcp4Answer, Lease>(
    (accept, deadline) => ask(client, what, accept, deadline, { to }),
    answer => {
      const from = serverOf(answer.message.options);
      if (from === undefined || !isTrusted(policy, serverName(from))) return undefined;
      const response = responseIn(lease, answer, since);
      const isOwn = serverName(from) === lease.server;
      // Servers refuse what they do not know. Until the lease is rebound, its own one decides, also if it is away for now.
      if (about === 'confirm' && response === 'over' && !isOwn) return undefined;
      return { response, isOwn };
    },
    giveUpAt,
  );
}

/** There is no answer. On an interface that has just come up, the other end may drop packets for some time: it is said several times. */
function release(place: OpenInterface, { clientId, lease }: LeaseState): Promise<boolean> {
  return withClient(place, Uint8Array.from(Buffer.from(clientId, 'hex')), async client => {
    const to = await serverAt(client, lease);
    for (const ms of [0, ...(place.isFresh ? REPEAT_PAUSES_MS : [])]) {
      if (ms) await pause(ms);
      const options = farewell(client, MessageType.release, lease);
      tell(client, { broadcast: false, ciaddr: addressOf(lease), options }, to);
    }
    return true;
  });
}

/** Tells the server that another host has the address (RFC 2131, 4.4.4). There is no answer. */
function decline(client: Client, lease: Lease): void {
  const options = farewell(client, MessageType.decline, lease);
  options.set(Code.requestedAddress, addressOf(lease));
  tell(client, { broadcast: false, ciaddr: NO_ADDRESS, options });
}

function farewell({ clientId }: Client, type: number, { server }: Lease): Map<number, Uint8Array> {
  return new Map([
    [Code.messageType, Uint8Array.of(type)],
    [Code.serverId, ipToBytes(parseIp(server))],
    [Code.clientId, clientId],
  ]);
}

interface Offer {
  readonly address: Uint8Array;
  readonly server: Uint8Array;
}

function discover(client: Client, policy: ClientPolicy4, hint: string | undefined): Question {
  const wanted = hint ? { [Code.requestedAddress]: ipToBytes(parseIp(hint)) } : {};
  return question(client, policy, MessageType.discover, wanted);
}

function offerFor(policy: ClientPolicy4, refusals: Refusals): (answer: Dhcp4Answer) => Offer | undefined {
  return answer => {
    const { message } = answer;
    const server = serverOf(message.options);
    if (message.type !== MessageType.offer || server === undefined || !isTrusted(policy, serverName(server)))
      return undefined;
    const lease = leaseOf(answer, 0);
    if (typeof lease === 'object') return { address: message.yiaddr, server };
    noteRefusal(refusals, `${serverName(server)}: ${lease}`);
    return undefined;
  };
}

function request(
  client: Client,
  policy: ClientPolicy4,
  { address, server, xid }: Offer & { readonly xid: number },
  giveUpAt: number,
  refusals: Refusals,
): Promise<Response<Lease>> {
  const since = bootClock();
  const options = { [Code.requestedAddress]: address, [Code.serverId]: server };
  const accept = (answer: Dhcp4Answer): Response<Lease> => {
    const { message } = answer;
    const from = serverOf(message.options);
    if (from === undefined || Buffer.compare(from, server) !== 0) return undefined;
    if (message.type === MessageType.nak) {
      noteRefusal(refusals, `${serverName(server)} refused: ${textOf(message.options.get(Code.message))}`);
      return 'over';
    }
    if (message.type !== MessageType.ack || Buffer.compare(message.yiaddr, address) !== 0) return undefined;
    const lease = leaseOf(answer, since);
    return typeof lease === 'object' ? { lease } : undefined;
  };
  const what = question(client, policy, MessageType.request, options);
  return ask(client, what, accept, { at: giveUpAt }, { xid });
}

/** An extension keeps the address; a grant of another one, which was not asked for, is ignored. */
function responseIn(lease: Lease, answer: Dhcp4Answer, since: number): Response<Lease> {
  const { type, yiaddr } = answer.message;
  if (type === MessageType.nak) return 'over';
  if (type !== MessageType.ack || Buffer.compare(yiaddr, addressOf(lease)) !== 0) return undefined;
  const granted = leaseOf(answer, since);
  return typeof granted === 'object' ? { lease: granted } : undefined;
}

function question(
  { clientId }: Client,
  { broadcast, provide, request: codes }: ClientPolicy4,
  type: number,
  own: Readonly<Record<number, Uint8Array>>,
): Question {
  const options: Map<number, Uint8Array> = new Map([
    [Code.messageType, Uint8Array.of(type)],
    [Code.clientId, clientId],
    ...Object.entries(own).map(([code, value]) => [Number(code), value] as const),
    [Code.maxMessageSize, Uint8Array.of(MAX_MESSAGE_BYTES >> 8, MAX_MESSAGE_BYTES & 0xff)],
    ...(codes.length ? [[Code.parameterList, Uint8Array.from(codes)] as const] : []),
    ...provide,
  ]);
  return { broadcast, ciaddr: NO_ADDRESS, options: options satisfies Options };
}

/**
 * Where the server of a lease is now. Hardware addresses change while a lease lasts: that of a Linux bridge with each of its ports, that of
 * a router when another one takes its place.
 */
async function serverAt({ place }: Client, lease: Lease): Promise<Destination> {
  const server = parseIp(lease.server);
  const isNeighbour = cidrContains(parseCidr(lease.address), server);
  const next = isNeighbour || !lease.gateway ? server : parseIp(lease.gateway);
  const mac = (await findHolderMac(place, next)) ?? lease.serverMac;
  return { server: ipToBytes(server), mac: parseMac(mac) };
}

function addressOf({ address }: Lease): Uint8Array {
  return ipToBytes(parseIp(address.slice(0, address.indexOf('/'))));
}

function serverName(address: Uint8Array): string {
  const ip = ipFromBytes(address);
  return isHost(ip) ? renderIp(ip) : 'a server';
}

/** The IPAM result. @param priority metric of all routes */
export function resultOf(lease: Lease, priority: number | undefined): Result {
  const { address, gateway } = lease;
  const dns = dnsOf(lease);
  return {
    ips: [{ address, ...(gateway ? { gateway } : {}) }],
    routes: lease.routes.map(({ dst, gw }) => ({
      dst,
      ...(gw ? { gw } : { scope: RT_SCOPE_LINK }),
      ...(priority ? { priority } : {}),
    })),
    ...(dns ? { dns } : {}),
  };
}

/** One result of several, for different families. Resolvers keep the order of the results. */
export function mergeResults(results: readonly Result[]): Result {
  const [first = {}, ...more] = results;
  if (more.length === 0) return first;
  const dns = results.flatMap(one => one.dns ?? []);
  const joined = (key: 'nameservers' | 'search') => [...new Set(dns.flatMap(one => one[key] ?? []))];
  const [domain] = dns.flatMap(one => one.domain ?? []);
  const merged = dnsOf({ nameservers: joined('nameservers'), domain, search: joined('search') });
  return {
    ips: results.flatMap(({ ips = [] }) => ips),
    routes: results.flatMap(({ routes = [] }) => routes),
    ...(merged ? { dns: merged } : {}),
  };
}

/** Resolver settings for a result; undefined if there are none. */
export function dnsOf({
  nameservers,
  domain,
  search,
}: Pick<Lease, 'nameservers' | 'domain' | 'search'>): ResultDns | undefined {
  if (nameservers.length === 0 && !domain && search.length === 0) return undefined;
  return {
    ...(nameservers.length ? { nameservers: [...nameservers] } : {}),
    ...(domain ? { domain } : {}),
    ...(search.length ? { search: [...search] } : {}),
  };
}
