// What has a DHCPv6 server granted and until when, and by which messages is that obtained, extended and released?

import * as z from 'zod/mini';
import { type Ip, parseIp, renderIp } from '../../../src/net/ip.ts';
import { pause } from '../../../src/wait.ts';
import { searchOf } from '../codec.ts';
import { extend, noteRefusal, type Refusals } from '../conversation.ts';
import { type Identity, IPV6_PART, type LeaseKind } from '../record.ts';
import type { Response as KeptResponse } from '../upkeep.ts';
import {
  type Association,
  addressesOf,
  Code,
  encodeAssociation,
  findAssociation,
  findOption,
  type GrantedAddress,
  isGlobal,
  MessageType,
  type Options,
  Status,
  statusIn,
} from './codec.ts';
import { ask, type Client, type Dhcp6Answer, type Question } from './conversation.ts';

/** A lease, as it is kept on disk. */
export const Lease = z.object({
  /** Without a prefix length, which servers do not know. */
  address: z.string(),
  nameservers: z.array(z.string()),
  search: z.array(z.string()),
  /** DUID of the server, in hexadecimal digits. */
  server: z.string(),
  /** Seconds since the boot when the granted request was sent; what follows counts from there. */
  since: z.number(),
  /** Seconds for which the address is valid, and for which new connections use it; absent for ever. */
  duration: z.optional(z.number()),
  preferred: z.optional(z.number()),
  /** Seconds after which it is renewed (T1), and after which any server is asked (T2). */
  renewAfter: z.optional(z.number()),
  rebindAfter: z.optional(z.number()),
});
export type Lease = z.output<typeof Lease>;

/** RFC 9915, section 7.7: without end. */
export const FOREVER = 0xffffffff;
/** A shorter lease would keep the node busy with nothing else. */
const MIN_DURATION_S = 10;
/** RFC 9915, section 14.2: of the preferred lifetime, if the server leaves the times to the client. */
const T1 = 0.5;
const T2 = 0.8;

/** What an answer says about a client's address. */
interface Granted {
  /** A lease of an address. */
  readonly lease?: Lease;
  /** What the server says against it, in text. */
  readonly refusal?: string;
  /** The code of what it says, or that of success. */
  readonly code: number;
  /** Addresses that it ends. */
  readonly ended: readonly string[];
}

/**
 * What an answer grants or ends.
 * @param server its DUID
 * @param since seconds since the boot when it was asked for
 */
export function grantIn(answer: Dhcp6Answer, iaid: Uint8Array, since: number): Granted {
  const { options } = answer.message;
  const whole = statusIn(options);
  const own = findAssociation(options, iaid);
  const ended = (own?.addresses ?? []).filter(({ valid }) => valid === 0).map(({ ip }) => renderIp(ip));
  const found = own?.addresses.find(one => flawOf(one) === undefined);
  const [refused] = [whole, own?.status, ...(own?.addresses ?? []).map(one => one.status)].filter(
    one => one !== undefined && one.code !== Status.success,
  );
  if (found && own && whole.code === Status.success && own.status.code === Status.success)
    return { lease: leaseOf(answer, own, found, since), code: Status.success, ended };
  const [flaw = 'it granted no address'] = (own?.addresses ?? []).flatMap(one => flawOf(one) ?? []);
  return { refusal: refused?.text ?? flaw, code: refused?.code ?? Status.success, ended };
}

/** Why an address cannot be used, in text; undefined if it can. Lifetimes: RFC 9915, section 18.2.10.1. */
function flawOf({ ip, preferred, valid, status }: GrantedAddress): string | undefined {
  if (status.code !== Status.success) return status.text;
  if (!isGlobal(ip)) return `no host can have the address ${renderIp(ip)}`;
  if (valid === 0) return `it has ended ${renderIp(ip)}`;
  return preferred > valid
    ? `${renderIp(ip)} would be preferred for ${preferred} s, but valid for only ${valid} s`
    : undefined;
}

function leaseOf(
  answer: Dhcp6Answer,
  own: Association,
  { ip, preferred, valid }: GrantedAddress,
  since: number,
): Lease {
  const { options } = answer.message;
  return {
    address: renderIp(ip),
    nameservers: resolversOf(options).map(renderIp),
    search: searchOf(findOption(options, Code.domainSearch)),
    server: Buffer.from(answer.server).toString('hex'),
    since,
    ...timesOf(own, preferred, valid),
  };
}

/** The resolvers of an answer. */
function resolversOf(options: Dhcp6Answer['message']['options']): Ip[] {
  return addressesOf(findOption(options, Code.nameservers));
}

function timesOf(own: Association, preferred: number, valid: number): Partial<Lease> {
  if (valid === FOREVER) return preferred === FOREVER ? {} : { preferred };
  const duration = Math.max(valid, MIN_DURATION_S);
  const base = Math.min(Math.max(preferred, MIN_DURATION_S), duration);
  const [t1, t2] = [own.renewAfter, own.rebindAfter];
  const isInOrder = t1 > 0 && t1 <= t2 && t2 < duration;
  return {
    duration,
    preferred: Math.min(preferred, duration),
    renewAfter: isInOrder ? t1 : Math.floor(base * T1),
    rebindAfter: isInOrder ? t2 : Math.floor(base * T2),
  };
}

const LeaseState = z.object({
  lease: Lease,
  /** Who the client is: DUID and IAID, in hexadecimal digits. */
  duid: z.string(),
  iaid: z.string(),
  /** Prefix length of the address on the interface. */
  prefix: z.number(),
  /** The interface has not been seen with the address yet: ADD, or the plugin that called it, may still be at work. */
  unseen: z.optional(z.boolean()),
  /** The lease is over, and its address was taken from the interface. */
  withdrawn: z.optional(z.boolean()),
  /** The address that ADD reported, if the interface has another one since. */
  reported: z.optional(z.string()),
});
export type LeaseState = z.output<typeof LeaseState>;

/** Records of IPv6 leases. */
export const IPV6_LEASES: LeaseKind<LeaseState> = { part: IPV6_PART, schema: LeaseState };

/** The client that a lease is for. */
export function identityIn({ duid, iaid }: LeaseState): Identity {
  return { duid: Uint8Array.from(Buffer.from(duid, 'hex')), iaid: Uint8Array.from(Buffer.from(iaid, 'hex')) };
}

/** How long an advertisement is worth repeating the request for. */
const REQUEST_MS = 4_000;
/** Pause after a refused request, before it all begins again. */
const REFUSED_PAUSE_MS = 1_000;
/** Servers acknowledge what a client gives back; the client does not depend on it. */
const FAREWELL_MS = 1_000;
/** What is asked for besides addresses. */
const WISHES = Uint8Array.of(0, Code.nameservers, 0, Code.domainSearch);
const NOTHING = new Uint8Array(0);

/** How this client asks. */
export interface Manner {
  /** Servers whose answers count, by link-local address in text; undefined for any. */
  readonly servers: readonly string[] | undefined;
  readonly rapidCommit: boolean;
  /** Says in text that another host has the address of a new lease; undefined if none has. */
  readonly findHolder?: (lease: Lease) => Promise<string | undefined>;
  /** Reads the clock that leases count by, in seconds. */
  readonly clock: () => number;
}

type Response = KeptResponse<Lease>;

/**
 * Obtains a lease from the first server that advertises an address (RFC 9915, section 18.2.1).
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
    const since = manner.clock();
    const offer = await ask(
      client,
      solicit(client, manner, hint),
      offerFor(client, manner, since, refusals),
      {
        at: giveUpAt,
      },
    );
    if (offer === undefined) return undefined;
    const deadline = Math.min(giveUpAt, performance.now() + REQUEST_MS);
    const lease = offer.isBound
      ? offer.lease
      : await request(client, manner, offer.lease, deadline, refusals);
    if (lease) {
      const holder = await manner.findHolder?.(lease);
      if (holder === undefined) return lease;
      noteRefusal(refusals, holder);
      await decline(client, lease);
    }
    await pause(Math.min(REFUSED_PAUSE_MS, giveUpAt - performance.now()));
  }
  return undefined;
}

/** Asks the server of a lease to extend it (RFC 9915, section 18.2.4). */
export function renew(client: Client, manner: Manner, lease: Lease, giveUpAt: number): Promise<Response> {
  const question = about(client, MessageType.renew, lease, [serverOption(lease)]);
  return extendBy(client, manner, lease, question, giveUpAt);
}

/** Asks every server to extend a lease (RFC 9915, section 18.2.5). */
export function rebind(client: Client, manner: Manner, lease: Lease, giveUpAt: number): Promise<Response> {
  return extendBy(client, manner, lease, about(client, MessageType.rebind, lease), giveUpAt);
}

/**
 * Tells the server that the address is free (RFC 9915, section 18.2.7).
 * @returns whether it acknowledged that
 * @throws SystemError when the interface is gone or down
 */
export function release(client: Client, lease: Lease): Promise<boolean> {
  return giveUp(client, MessageType.release, lease);
}

/** Tells the server that another host has the address (RFC 9915, section 18.2.8). */
function decline(client: Client, lease: Lease): Promise<boolean> {
  return giveUp(client, MessageType.decline, lease);
}

async function giveUp(client: Client, type: number, lease: Lease): Promise<boolean> {
  const question = { type, options: [serverOption(lease), association(client, lease.address)] };
  const isReply = ({ message }: Dhcp6Answer) => message.type === MessageType.reply || undefined;
  return (await ask(client, question, isReply, { at: performance.now() + FAREWELL_MS })) ?? false;
}

interface Offer {
  readonly lease: Lease;
  /** The server has committed itself already. */
  readonly isBound: boolean;
}

function solicit(client: Client, { rapidCommit }: Manner, hint: string | undefined): Question {
  const options: Options = [
    association(client, hint),
    [Code.optionRequest, WISHES],
    ...(rapidCommit ? [[Code.rapidCommit, NOTHING] as const] : []),
  ];
  return { type: MessageType.solicit, options };
}

function offerFor(
  { iaid }: Client,
  manner: Manner,
  since: number,
  refusals: Refusals,
): (answer: Dhcp6Answer) => Offer | undefined {
  return answer => {
    const { type, options } = answer.message;
    const isBound = type === MessageType.reply;
    const isCommit = manner.rapidCommit && findOption(options, Code.rapidCommit) !== undefined;
    if (!isTrusted(manner, answer) || (isBound && !isCommit)) return undefined;
    const { lease, refusal } = grantIn(answer, iaid, since);
    if (lease) return { lease, isBound };
    noteRefusal(refusals, `${answer.from}: ${refusal}`);
    return undefined;
  };
}

async function request(
  client: Client,
  manner: Manner,
  offered: Lease,
  giveUpAt: number,
  refusals: Refusals,
): Promise<Lease | undefined> {
  const since = manner.clock();
  const accept = (answer: Dhcp6Answer): { lease?: Lease } | undefined => {
    if (answer.message.type !== MessageType.reply || serverOf(answer) !== offered.server) return undefined;
    const { lease, refusal } = grantIn(answer, client.iaid, since);
    if (lease === undefined) noteRefusal(refusals, `${answer.from}: ${refusal}`);
    return lease ? { lease } : {};
  };
  const question = about(client, MessageType.request, offered, [serverOption(offered)]);
  return (await ask(client, question, accept, { at: giveUpAt }))?.lease;
}

function extendBy(
  client: Client,
  manner: Manner,
  lease: Lease,
  question: Question,
  giveUpAt: number,
): Promise<Response> {
  const since = manner.clock();
  return extend<Dhcp6Answer, NonNullable<Response>>(
    (accept, deadline) => ask(client, question, accept, deadline),
    answer => {
      if (answer.message.type !== MessageType.reply || !isTrusted(manner, answer)) return undefined;
      return { response: responseIn(client, lease, answer, since), isOwn: serverOf(answer) === lease.server };
    },
    giveUpAt,
  );
}

/** An extension keeps the address; another one, which was not asked for, counts only if the server takes the first one back. */
function responseIn({ iaid }: Client, lease: Lease, answer: Dhcp6Answer, since: number): Response {
  const { lease: granted, code, ended } = grantIn(answer, iaid, since);
  const isOver = ended.includes(lease.address) || code === Status.notOnLink;
  if (granted && (isOver || granted.address === lease.address)) return { lease: granted };
  if (isOver) return 'over';
  return code === Status.noBinding ? 'unknown' : undefined;
}

function about({ iaid }: Client, type: number, { address }: Lease, more: Options = []): Question {
  return { type, options: [...more, association({ iaid }, address), [Code.optionRequest, WISHES]] };
}

function association({ iaid }: Pick<Client, 'iaid'>, address: string | undefined): Options[number] {
  return [Code.iaNa, encodeAssociation(iaid, address ? [parseIp(address)] : [])];
}

function serverOption({ server }: Lease): Options[number] {
  return [Code.serverId, Uint8Array.from(Buffer.from(server, 'hex'))];
}

function serverOf({ server }: Dhcp6Answer): string {
  return Buffer.from(server).toString('hex');
}

/** Whether a server's answers count. */
function isTrusted({ servers }: Pick<Manner, 'servers'>, { from }: Dhcp6Answer): boolean {
  return servers === undefined || servers.includes(from);
}

/** Names of servers and domains, in text. */
export interface Resolvers {
  readonly nameservers: string[];
  readonly search: string[];
}

/**
 * Asks for information only (RFC 9915, section 18.2.6).
 * @param giveUpAt in milliseconds of `performance.now()`
 * @returns undefined when no server answered in time
 */
export function askResolvers(
  client: Client,
  manner: Pick<Manner, 'servers'>,
  giveUpAt: number,
): Promise<Resolvers | undefined> {
  const wishes = Uint8Array.of(0, Code.nameservers, 0, Code.domainSearch);
  const question = { type: MessageType.informationRequest, options: [[Code.optionRequest, wishes]] as const };
  return ask(
    client,
    question,
    answer => {
      const { type, options } = answer.message;
      if (type !== MessageType.reply || !isTrusted(manner, answer)) return undefined;
      const nameservers = resolversOf(options).map(renderIp);
      return { nameservers, search: searchOf(findOption(options, Code.domainSearch)) };
    },
    { at: giveUpAt },
  );
}
