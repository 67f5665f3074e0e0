// What surrounds everything that the tool and the daemon print for programs?
import type { AnswerKind, AnswerOf } from './kinds.ts';

/** The version of all shapes together. A change that takes a key away, or gives it another type, needs another one. */
export const API_VERSION = 'catena/v1';

/** An answer as it is printed. */
export type Enveloped<K extends AnswerKind> = {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: K;
} & AnswerOf<K>;

/** Says what a value is. Its keys stand beside `kind`: a reader needs no further step to reach them. */
export function inEnvelope<K extends AnswerKind>(kind: K, value: AnswerOf<K>): Enveloped<K> {
  return { apiVersion: API_VERSION, kind, ...value };
}

/** What is inside, for a process that asks another one. */
export function outOfEnvelope<T extends object>(enveloped: T): Omit<T, 'apiVersion' | 'kind'> {
  const { apiVersion: _, kind: __, ...value } = enveloped as T & Record<'apiVersion' | 'kind', unknown>;
  return value as Omit<T, 'apiVersion' | 'kind'>;
}
