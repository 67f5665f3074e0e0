// How is a question put to servers, and which of their answers counts?

/** First pause before a question is repeated; each further one is twice as long. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 8_000;
/** Longest time in which this thread does nothing else. */
const SLICE_MS = 100;
/** How long the lease's own server may contradict another one. */
const SECOND_OPINION_MS = 500;

/** When to give up, in milliseconds of `performance.now()`; an answer may bring it forward. */
export interface Deadline {
  at: number;
}

/** Why there is no lease, for the error. */
export interface Refusals {
  /** One line for each answer that could not be used. */
  readonly reasons: string[];
}

/** A client's socket, and what it sends. */
export interface Exchange<A> {
  send(): void;
  /** Whether a packet is there, waiting for at most so many milliseconds. */
  wait(ms: number): boolean;
  /** The next packet; undefined if it does not answer this client's question. */
  receive(): A | undefined;
  /** By which part a pause is longer or shorter, so that clients that started together do not go on together. */
  readonly jitter: number;
}

/**
 * Puts a question, and repeats it until an answer is accepted or time is up.
 * @param accept what the answer means; undefined to wait for another one
 * @returns undefined when time was up
 * @throws SystemError when the interface is gone or down
 */
export async function exchange<A, T>(
  ends: Exchange<A>,
  accept: (answer: A) => T | undefined,
  deadline: Deadline,
): Promise<T | undefined> {
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    ends.send();
    const again = performance.now() + pause * (1 + ends.jitter * (2 * Math.random() - 1));
    const outcome = await listen(ends, accept, () => Math.min(again, deadline.at));
    if (outcome !== undefined || performance.now() >= deadline.at) return outcome;
  }
}

async function listen<A, T>(
  ends: Exchange<A>,
  accept: (answer: A) => T | undefined,
  until: () => number,
): Promise<T | undefined> {
  let yielded = performance.now();
  for (let left = until() - performance.now(); left > 0; left = until() - performance.now()) {
    const isThere = ends.wait(Math.min(left, SLICE_MS));
    if (!isThere || performance.now() - yielded > SLICE_MS) {
      // Signals and timers get their turn, however much there is to read.
      await Bun.sleep(0);
      yielded = performance.now();
      continue;
    }
    const answer = ends.receive();
    const outcome = answer && accept(answer);
    if (outcome !== undefined) return outcome;
  }
  return undefined;
}

/**
 * Puts a question about a lease. What its own server says counts at once. Any host can answer, so after another's answer the own
 * server gets the time to say otherwise; then a grant, which is an object, counts more than a refusal.
 * @param ask puts the question, with what accepts an answer
 */
export async function extend<A, V extends object | string>(
  ask: (accept: (answer: A) => V | undefined, deadline: Deadline) => Promise<V | undefined>,
  responseIn: (answer: A) => { readonly response: V | undefined; readonly isOwn: boolean } | undefined,
  giveUpAt: number,
): Promise<V | undefined> {
  const deadline = { at: giveUpAt };
  let other: V | undefined;
  const accept = (answer: A): V | undefined => {
    const { response, isOwn } = responseIn(answer) ?? {};
    if (response === undefined || isOwn) return response;
    if (other === undefined) deadline.at = Math.min(giveUpAt, performance.now() + SECOND_OPINION_MS);
    if (typeof other !== 'object') other = response;
    return undefined;
  };
  return (await ask(accept, deadline)) ?? other;
}

/** A server that repeats itself is noted once, and a flood of them is not kept. */
export function noteRefusal({ reasons }: Refusals, reason: string): void {
  if (reasons.length < 5 && !reasons.includes(reason)) reasons.push(reason);
}
