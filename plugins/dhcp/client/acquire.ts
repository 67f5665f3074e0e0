// By which messages is a lease obtained, confirmed, renewed and released?

import { parseMac } from '../../../src/net/interface.ts';
import { ipFromBytes, ipToBytes, parseIp, renderIp } from '../../../src/net/ip.ts';
import { pause } from '../../../src/wait.ts';
import { MAX_MESSAGE_BYTES, MessageType } from '../codec/message.ts';
import { Code, type Options } from '../codec/options.ts';
import { isHost, textOf } from '../codec/values.ts';
import type { Wishes } from '../config.ts';
import { type Lease, leaseOf, serverOf } from '../lease.ts';
import { type Answer, ask, type Client, type Destination, type Question, tell } from './conversation.ts';
import { extend, noteRefusal, type Refusals } from './exchange.ts';

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

function offerFor(manner: Manner, refusals: Refusals): (answer: Answer) => Offer | undefined {
  return answer => {
    const { message } = answer;
    const server = serverOf(message.options);
    if (message.type !== MessageType.offer || server === undefined || !isTrusted(manner, server))
      return undefined;
    const lease = leaseOf(answer, 0);
    if (typeof lease === 'object') return { address: message.yiaddr, server };
    noteRefusal(refusals, `${nameOf(server)}: ${lease}`);
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
  const accept = (answer: Answer): Response => {
    const { message } = answer;
    const from = serverOf(message.options);
    if (from === undefined || Buffer.compare(from, server) !== 0) return undefined;
    if (message.type === MessageType.nak) {
      noteRefusal(refusals, `${nameOf(server)} refused: ${textOf(message.options.get(Code.message))}`);
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
  return extend<Answer, NonNullable<Response>>(
    (accept, deadline) => ask(client, what, accept, deadline, to),
    answer => {
      const from = serverOf(answer.message.options);
      if (from === undefined || !isTrusted(manner, from)) return undefined;
      return { response: responseIn(lease, answer, since), isOwn: nameOf(from) === lease.server };
    },
    giveUpAt,
  );
}

/** An extension keeps the address; a grant of another one, which was not asked for, is ignored. */
function responseIn(lease: Lease, answer: Answer, since: number): Response {
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
  return servers === undefined || servers.includes(nameOf(server));
}

function nameOf(address: Uint8Array): string {
  const ip = ipFromBytes(address);
  return isHost(ip) ? renderIp(ip) : 'a server';
}
