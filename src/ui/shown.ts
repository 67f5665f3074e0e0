// What does the server send to the page, besides the JSON of the commands?
import type { AnswerOf } from '../cli/answers/kinds.ts';
import type { NodeModel } from '../node/model.ts';

/** `api/node`: what `catena ls` prints, with the health that the last CHECK reported. */
export interface ShownNode extends NodeModel {
  /** ISO time at which the last CHECK of all attachments ended; absent before the first. */
  readonly checkedAt?: string;
  /** Why CHECK could not be run. */
  readonly checkProblem?: string;
}

/** `api/traces/<id>`. */
export type ShownRequest = AnswerOf<'Request'>;

export type ShownCall = ShownRequest['plugins'][number];

/** `api/traces`: an array of these. */
export type RequestSummary = Pick<
  ShownRequest,
  'id' | 'verb' | 'network' | 'containerId' | 'ifname' | 'startedAt' | 'durationMs' | 'code'
>;

/** `api/lists/<network>`: what `catena validate --explain` prints, or no plugins. */
export type ShownList = Pick<AnswerOf<'NetworkExplanation'>, 'plugins'>;

export type ShownPlugin = ShownList['plugins'][number];

/** `api/leases`: an array of these, as `catena ipam ls` prints them. */
export type ShownLease = Omit<AnswerOf<'Lease'>, 'writtenAt'>;

/** `api/log`: `items` of these, oldest first, as `catena log` prints them. */
export type ShownEvent = AnswerOf<'LogEntry'>;
