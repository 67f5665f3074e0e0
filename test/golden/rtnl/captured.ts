// How are captured messages written down in a test, and how does a test see what an operation sends?
import {
  decodeMessages,
  type Envelope,
  encodeMessages,
  NLM_F_ACK,
  NLM_F_REQUEST,
  type Request,
} from '../../../src/netlink/codec.ts';
import {
  NetlinkError,
  type NetlinkSocket,
  type Outcome,
  type Question,
} from '../../../src/netlink/socket.ts';

/**
 * The bytes of a listing: one field per line, bytes in hexadecimal, two spaces, then what they mean. Braces mark
 * attributes that hold attributes.
 */
export function bytesOf(listing: string): Uint8Array {
  const hex = listing
    .split('\n')
    .map(line => /^ *((?:[0-9a-f]{2} )*[0-9a-f]{2})(?: {2}|$)/.exec(line)?.[1] ?? '');
  return Uint8Array.from(hex.join(' ').trim().split(/ +/), byte => Number.parseInt(byte, 16));
}

/** The one message of a listing. */
export function messageOf(listing: string): Envelope {
  const [message, ...more] = decodeMessages(bytesOf(listing));
  if (message === undefined || more.length) throw new Error('Cannot read listing: expected one message');
  return message;
}

/** What follows the envelope in the one message of a listing. */
export function bodyOf(listing: string): Uint8Array {
  return messageOf(listing).body;
}

/** The whole message that an operation sends, with sequence number and port zero. */
export function sentBy(operation: (socket: NetlinkSocket) => unknown): Uint8Array {
  let sent: Request | undefined;
  answering(request => {
    sent ??= request;
    return [];
  }, operation);
  if (sent === undefined) throw new Error('Cannot show what was sent: nothing was');
  const { type, flags = 0, body } = sent;
  return encodeMessages([{ type, flags: flags | NLM_F_REQUEST | NLM_F_ACK, seq: 0, body }]).slice();
}

/** Runs an operation against a function from request to the bodies that the kernel would answer with. */
export function answering<T>(
  answer: (request: Request) => readonly Uint8Array[],
  operation: (socket: NetlinkSocket) => T,
): T {
  const socket = {
    request: (request: Request) => answer(request),
    requestAll: (requests: readonly Request[]) => requests.flatMap(answer),
    attemptAll: (requests: readonly Request[]) => requests.map(request => attempt(() => answer(request))),
    ask: (question: Question<unknown>) => askOnce(answer, question),
    askAll: (questions: readonly Question<unknown>[]) => questions.map(one => askOnce(answer, one)),
    dump: (request: Request) => answer(request),
  };
  return operation(socket as unknown as NetlinkSocket);
}

function askOnce(answer: (request: Request) => readonly Uint8Array[], question: Question<unknown>): unknown {
  const outcome = attempt(() => answer(question));
  if (!(outcome instanceof NetlinkError)) return outcome[0] && question.read(outcome[0]);
  if (question.absent.includes(outcome.errno)) return undefined;
  throw outcome;
}

function attempt(request: () => Outcome): Outcome {
  try {
    return request();
  } catch (thrown) {
    if (thrown instanceof NetlinkError) return thrown;
    throw thrown;
  }
}
