// What do people and programs get to see of the record of a request?
import type { AnswerOf } from '../answers/kinds.ts';
import type { RequestRecord } from './record.ts';

/** A record on disk has its time as a number. */
export function toRequest({ startedAt, ...record }: RequestRecord): AnswerOf<'Request'> {
  return { ...record, startedAt: new Date(startedAt).toISOString() };
}
