// What has a server granted and until when, and by which messages is that obtained, confirmed, renewed and released?

import * as z from 'zod/mini';
import { parseMac, renderMac } from '../../src/net/interface.ts';
import { ipFromBytes, ipToBytes, parseIp, renderIp } from '../../src/net/ip.ts';
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
  ask,
  type Client,
  type Destination,
  type Dhcp4Answer,
  extend,
  noteRefusal,
  type Question,
  type Refusals,
  tell,
} from './conversation.ts';

/** A route, in text. Without a gateway, the destination is on the link. */
const LeasedRoute = z.object({ dst: z.string(), gw: z.optional(z.string()) });

/** A lease, as it is kept on disk. */
export const Lease = z.object({
  /** With the prefix length of the subnet. */
  address: z.string(),
  gateway: z.optional(z.string()),
  routes: z.array(LeasedRoute),
  nameservers: z.array(z.string()),
  domain: z.optional(z.string()),
  search: z.array(z.string()),
  /** Bytes; not bounded by the interface's own yet. */
  mtu: z.optional(z.number()),
  server: z.string(),
  /** Hardware address from which the server answered: its own, or that of the router to it. */
  serverMac: z.string(),
  /** Seconds since the boot when the granted request was sent; what follows counts from there. */
  since: z.number(),
  /** Seconds; absent for a lease without end. */
  duration: z.optional(z.number()),
  /** Seconds after which it is renewed (T1), and after which any server is asked (T2). */
  renewAfter: z.optional(z.number()),
  rebindAfter: z.optional(z.number()),
});
export type Lease = z.output<typeof Lease>;

/** RFC 2132, 9.2: a lease without end. */
const FOREVER = 0xffffffff;
/** The reference's, for a server that names none. */
const DEFAULT_DURATION_S = 3600;
/** A shorter lease would keep the node busy with nothing else. */
const MIN_DURATION_S = 10;
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
    ...(gateway ? { gateway } : {}),
    routes: routesOf(options, gateway),
    nameservers: addressesOf(options.get(Code.nameservers)).map(renderIp),
    ...domainOf(options),
    search: searchOf(options.get(Code.domainSearch)),
    ...mtuOf(options),
    server: renderIp(ipFromBytes(server)),
    serverMac: renderMac(mac),
    since,
    ...timesOf(options),
  };
}

/** The address of the server that sent a message, in 4 bytes. */
function serverOf(options: Dhcp4Answer['message']['options']): Uint8Array | undefined {
  const value = options.get(Code.serverId);
  return value?.length === 4 && isHost(ipFromBytes(value)) ? value : undefined;
}

/** Option 121 replaces 33 and 3 (RFC 3442). */
function routesOf(options: Dhcp4Answer['message']['options'], gateway: string | undefined): Lease['routes'] {
  const classless = classlessRoutesOf(options.get(Code.classlessRoutes));
  if (classless?.length) return classless.map(renderRoute);
  const fixed = staticRoutesOf(options.get(Code.staticRoutes)).map(renderRoute);
  return gateway ? [...fixed, { dst: '0.0.0.0/0', gw: gateway }] : fixed;
}

function renderRoute({ dst, gateway }: ServedRoute): Lease['routes'][number] {
  return { dst: `${renderIp(dst.ip)}/${dst.prefix}`, ...(gateway ? { gw: renderIp(gateway) } : {}) };
}

function domainOf(options: Dhcp4Answer['message']['options']): Pick<Lease, 'domain'> {
  const domain = nameOf(options.get(Code.domainName));
  return domain ? { domain } : {};
}

function mtuOf(options: Dhcp4Answer['message']['options']): Pick<Lease, 'mtu'> {
  const mtu = numberOf(options.get(Code.interfaceMtu));
  return mtu !== undefined && mtu >= MIN_MTU && mtu <= 0xffff ? { mtu } : {};
}

function timesOf(options: Dhcp4Answer['message']['options']): Partial<Lease> {
  const granted = numberOf(options.get(Code.leaseTime)) ?? DEFAULT_DURATION_S;
  if (granted === FOREVER) return {};
  const duration = Math.max(granted, MIN_DURATION_S);
  const t1 = numberOf(options.get(Code.renewalTime));
  const t2 = numberOf(options.get(Code.rebindingTime));
  const rebindAfter = t2 !== undefined && t2 > 0 && t2 < duration ? t2 : Math.floor(duration * T2);
  const renewAfter = t1 !== undefined && t1 > 0 && t1 <= rebindAfter ? t1 : Math.floor(duration * T1);
  return { duration, rebindAfter, renewAfter: Math.min(renewAfter, rebindAfter) };
}

const LeaseState = z.object({
  lease: Lease,
  /** Value of option 61, in hexadecimal digits. */
  clientId: z.string(),
  /** The lease is over, and its address was taken from the interface. */
  withdrawn: z.optional(z.boolean()),
  /** The address that ADD reported, if the interface has another one since. */
  reported: z.optional(z.string()),
});
export type LeaseState = z.output<typeof LeaseState>;

/** Records of IPv4 leases. */
export const IPV4_LEASES = { schema: LeaseState };

/** The client identifier that a lease is for. */
export function clientIdIn({ clientId }: LeaseState): Uint8Array {
  return Uint8Array.from(Buffer.from(clientId, 'hex'));
}

/** How long an offer is worth repeating the request for: at least this, and a slow server so many times as long as its offer took. */
const REQUEST_MS = 4_000;
const SLOWER = 4;
/** RFC 2131, 3.1.5: pause after a refused request, before it all begins again. */
const REFUSED_PAUSE_MS = 1_000;
/** A bridge's port forwards tens of milliseconds after its other end came up, on a busy machine; a server ignores what it knows. */
const REPEAT_PAUSES_MS = [30, 100, 300];
const NO_ADDRESS = new Uint8Array(4);

/** How this client asks. */
export interface Manner extends Wishes {
  /** The interface shares its hardware address with others, so the answer must be a broadcast. */
  readonly broadcast: boolean;
  /** Servers whose answers count, in text; undefined for any. */
  readonly servers: readonly string[] | undefined;
  /** Says in text who has the address of a new lease already; undefined if no host has. Absent where that cannot be found out. */
  readonly findHolder?: (lease: Lease) => Promise<string | undefined>;
  /** Reads the clock that leases count by, in seconds. */
  readonly clock: () => number;
}

/** What a server said to a request: the lease, that the client must not use the address, or nothing. */
type Response = { readonly lease: Lease } | 'over' | undefined;

/**
 * Obtains a lease from the first server that offers one (RFC 2131, section 3.1).
 * @param wanted the address that the client had before, to be asked for
 * @param giveUpAt in milliseconds of `performance.now()`
 * @returns undefined when time was up; `refusals` then says what was heard
 */
export async function acquire(
  client: Client,
  manner: Manner,
  wanted: string | undefined,
  giveUpAt: number,
  refusals: Refusals,
): Promise<Lease | undefined> {
  for (let hint = wanted; performance.now() < giveUpAt; hint = undefined) {
    const asked = performance.now();
    const offer = await ask(client, discover(client, manner, hint), offerFor(manner, refusals), {
      at: giveUpAt,
    });
    if (offer === undefined) return undefined;
    const offered = performance.now();
    const deadline = Math.min(giveUpAt, offered + Math.max(REQUEST_MS, SLOWER * (offered - asked)));
    const response = await request(client, manner, offer, deadline, refusals);
    if (typeof response === 'object') {
      const holder = await manner.findHolder?.(response.lease);
      if (holder === undefined) return response.lease;
      noteRefusal(refusals, holder);
      decline(client, response.lease);
    }
    if (response !== undefined) await pause(Math.min(REFUSED_PAUSE_MS, giveUpAt - performance.now()));
  }
  return undefined;
}

/** Asks whether an address from before is still right here (RFC 2131, section 3.2: INIT-REBOOT). */
export function confirm(client: Client, manner: Manner, lease: Lease, giveUpAt: number): Promise<Response> {
  const options = { [Code.requestedAddress]: addressOf(lease) };
  return extendBy(client, manner, lease, question(client, manner, MessageType.request, options), giveUpAt);
}

/** Asks the server of a lease to extend it (RFC 2131, 4.4.5: RENEWING). */
export function renew(client: Client, manner: Manner, lease: Lease, giveUpAt: number): Promise<Response> {
  return extendBy(client, manner, lease, inUse(client, manner, lease), giveUpAt, serverAt(lease));
}

/** Asks every server to extend a lease (RFC 2131, 4.4.5: REBINDING). */
export function rebind(client: Client, manner: Manner, lease: Lease, giveUpAt: number): Promise<Response> {
  return extendBy(client, manner, lease, inUse(client, manner, lease), giveUpAt);
}

/**
 * Tells the server that the address is free. There is no answer.
 * @param isFresh the interface has just come up, so its other end may drop packets for some time: it is said several times
 * @throws SystemError when the interface is gone or down
 */
export async function release(client: Client, lease: Lease, isFresh = false): Promise<void> {
  sayReleased(client, lease);
  if (!isFresh) return;
  for (const ms of REPEAT_PAUSES_MS) {
    await pause(ms);
    sayReleased(client, lease);
  }
}

function sayReleased(client: Client, lease: Lease): void {
  const to = serverAt(lease);
  const options = new Map<number, Uint8Array>([
    [Code.messageType, Uint8Array.of(MessageType.release)],
    [Code.serverId, to.server],
    [Code.clientId, client.clientId],
  ]);
  tell(client, { broadcast: false, ciaddr: addressOf(lease), options }, to);
}

/** Tells the server that another host has the address (RFC 2131, 4.4.4). There is no answer. */
function decline(client: Client, lease: Lease): void {
  const options = new Map<number, Uint8Array>([
    [Code.messageType, Uint8Array.of(MessageType.decline)],
    [Code.requestedAddress, addressOf(lease)],
    [Code.serverId, serverAt(lease).server],
    [Code.clientId, client.clientId],
  ]);
  tell(client, { broadcast: false, ciaddr: NO_ADDRESS, options });
}

interface Offer {
  readonly address: Uint8Array;
  readonly server: Uint8Array;
}

function discover(client: Client, manner: Manner, hint: string | undefined): Question {
  const wanted = hint ? { [Code.requestedAddress]: ipToBytes(parseIp(hint)) } : {};
  return question(client, manner, MessageType.discover, wanted);
}

function offerFor(manner: Manner, refusals: Refusals): (answer: Dhcp4Answer) => Offer | undefined {
  return answer => {
    const { message } = answer;
    const server = serverOf(message.options);
    if (message.type !== MessageType.offer || server === undefined || !isTrusted(manner, server))
      return undefined;
    const lease = leaseOf(answer, 0);
    if (typeof lease === 'object') return { address: message.yiaddr, server };
    noteRefusal(refusals, `${serverName(server)}: ${lease}`);
    return undefined;
  };
}

function request(
  client: Client,
  manner: Manner,
  { address, server }: Offer,
  giveUpAt: number,
  refusals: Refusals,
): Promise<Response> {
  const since = manner.clock();
  const options = { [Code.requestedAddress]: address, [Code.serverId]: server };
  const accept = (answer: Dhcp4Answer): Response => {
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
  return ask(client, question(client, manner, MessageType.request, options), accept, { at: giveUpAt });
}

function extendBy(
  client: Client,
  manner: Manner,
  lease: Lease,
  what: Question,
  giveUpAt: number,
  to?: Destination,
): Promise<Response> {
  const since = manner.clock();
  return extend<Dhcp4Answer, NonNullable<Response>>(
    (accept, deadline) => ask(client, what, accept, deadline, to),
    answer => {
      const from = serverOf(answer.message.options);
      if (from === undefined || !isTrusted(manner, from)) return undefined;
      return { response: responseIn(lease, answer, since), isOwn: serverName(from) === lease.server };
    },
    giveUpAt,
  );
}

/** An extension keeps the address; a grant of another one, which was not asked for, is ignored. */
function responseIn(lease: Lease, answer: Dhcp4Answer, since: number): Response {
  const { type, yiaddr } = answer.message;
  if (type === MessageType.nak) return 'over';
  if (type !== MessageType.ack || Buffer.compare(yiaddr, addressOf(lease)) !== 0) return undefined;
  const granted = leaseOf(answer, since);
  return typeof granted === 'object' ? { lease: granted } : undefined;
}

/** With its address in use, a client names it in the header only. */
function inUse(client: Client, manner: Manner, lease: Lease): Question {
  return { ...question(client, manner, MessageType.request, {}), ciaddr: addressOf(lease) };
}

function question(
  { clientId }: Client,
  { broadcast, provide, request: codes }: Manner,
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

function serverAt({ server, serverMac }: Lease): Destination {
  return { server: ipToBytes(parseIp(server)), mac: parseMac(serverMac) };
}

function addressOf({ address }: Lease): Uint8Array {
  return ipToBytes(parseIp(address.slice(0, address.indexOf('/'))));
}

function isTrusted({ servers }: Manner, server: Uint8Array): boolean {
  return servers === undefined || servers.includes(serverName(server));
}

function serverName(address: Uint8Array): string {
  const ip = ipFromBytes(address);
  return isHost(ip) ? renderIp(ip) : 'a server';
}
