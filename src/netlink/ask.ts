// How are several different questions sent to the kernel at once?
import type { Request } from './codec/message.ts';
import type { NetlinkSocket } from './socket.ts';

/** A question, and how to read its answer. */
export interface Question<T> extends Request {
  readonly absent: readonly number[];
  /** Reads an answer; undefined when the object does not exist after all. */
  readonly read: (body: Uint8Array) => T | undefined;
}

/**
 * Asks all questions at once and returns the answers in their order; undefined for what does not exist.
 * @throws NetlinkError of the first refusal that means anything else
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
