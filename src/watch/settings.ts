// What may an operator decide about the watch, and what does it report about itself?

import type { AnswerOf } from '../cli/answers/kinds.ts';
import type { ListPolicy, Policy } from './policy.ts';

/** What an operator decides. */
export interface WatchSettings {
  /** For networks whose list names no policy. `off` turns the watch off altogether. */
  readonly policy: Policy;
  /** What is done about a list that lost plugins and names no policy. */
  readonly lists: ListPolicy;
  /** Least time between two checks of an attachment on the timer, in milliseconds. */
  readonly everyMs: number;
  /** How long after its namespace has gone an attachment is deleted (`repair`) or reported (`observe`), in milliseconds; 0: never. */
  readonly leftoverMs: number;
}

/** Default settings. Runtimes call DEL within minutes of the end of a pod, if they call it at all. */
export const WATCH_SETTINGS: WatchSettings = {
  policy: 'observe',
  lists: 'tell',
  everyMs: 60_000,
  leftoverMs: 60 * 60_000,
};

/** An attachment that is not as its ADD made it. */
export type Drift = WatchState['drifted'][number];

/** The watch, as `GET /v1/state` shows it. */
export type WatchState = NonNullable<AnswerOf<'DaemonState'>['watch']>;
