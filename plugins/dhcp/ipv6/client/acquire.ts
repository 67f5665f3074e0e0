// By which messages is an IPv6 lease obtained, extended and released?
import { parseIp } from '../../../../src/net/ip.ts';
import { pause } from '../../../../src/wait.ts';
import { extend, noteRefusal, type Refusals } from '../../client/exchange.ts';
import type { Response as KeptResponse } from '../../upkeep.ts';
import { encodeAssociation } from '../codec/association.ts';
import { MessageType } from '../codec/message.ts';
import { Code, findOption, type Options, Status } from '../codec/options.ts';
import { grantIn, type Lease } from '../lease.ts';
import { type Answer, ask, type Client, type Question } from './conversation.ts';

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
  const isReply = ({ message }: Answer) => message.type === MessageType.reply || undefined;
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
): (answer: Answer) => Offer | undefined {
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
  const accept = (answer: Answer): { lease?: Lease } | undefined => {
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
  return extend<Answer, NonNullable<Response>>(
    (accept, deadline) => ask(client, question, accept, deadline),
    answer => {
      if (answer.message.type !== MessageType.reply || !isTrusted(manner, answer)) return undefined;
      return { response: responseIn(client, lease, answer, since), isOwn: serverOf(answer) === lease.server };
    },
    giveUpAt,
  );
}

/** An extension keeps the address; another one, which was not asked for, counts only if the server takes the first one back. */
function responseIn({ iaid }: Client, lease: Lease, answer: Answer, since: number): Response {
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

function serverOf({ server }: Answer): string {
  return Buffer.from(server).toString('hex');
}

/** Whether a server's answers count. */
export function isTrusted({ servers }: Pick<Manner, 'servers'>, { from }: Answer): boolean {
  return servers === undefined || servers.includes(from);
}
