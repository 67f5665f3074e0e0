// What does the watch report about itself?
import type { AnswerOf } from '../cli/answers/kinds.ts';

/** An attachment that is not as its ADD made it. */
export type Drift = WatchState['drifted'][number];

/** The watch, as `GET /v1/state` shows it. */
export type WatchState = NonNullable<AnswerOf<'DaemonState'>['watch']>;
