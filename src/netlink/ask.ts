// How are questions about different things asked in one go?
import type { NetlinkSocket, Request } from './socket.ts';

/** A question, and how its answer is read. */
export interface Question<T> extends Request {
  readonly absent: readonly number[];
  /** What an answer tells, or undefined when there is nothing after all. */
  readonly read: (body: Uint8Array) => T | undefined;
}

/**
 * Asks all at once, and has the answers in the order of the questions; undefined for what does not exist.
 * @throws NetlinkError of the first refusal that means something else
 */
export function askAll<const T extends readonly Question<unknown>[]>(
  socket: NetlinkSocket,
  questions: T,
): { [K in keyof T]: T[K] extends Question<infer V> ? V | undefined : never } {
  const bodies = socket.findAll(questions);
  return questions.map(({ read }, i) => {
    const body = bodies[i];
    return body && read(body);
  }) as { [K in keyof T]: T[K] extends Question<infer V> ? V | undefined : never };
}
