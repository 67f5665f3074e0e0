// What does the watch report about itself?
import type { AttachmentId } from '../cni/attachment.ts';
import type { Policy } from './policy.ts';

/** An attachment that is not as its ADD made it. */
export interface Drift extends AttachmentId {
  /** What CHECK reports. */
  readonly problem: string;
  /** Since when, in ISO 8601. */
  readonly since: string;
}

/** The watch, as `GET /v1/state` shows it. */
export interface WatchState {
  readonly policy: Policy;
  /** Number of attachments that are watched. */
  readonly attachments: number;
  /** When an attachment was last checked, in ISO 8601. */
  readonly lastCheck?: string;
  readonly drifted: readonly Drift[];
  /** Those that repairs could not put right, or that are damaged again each time. */
  readonly givenUp: readonly Drift[];
  /** Attachments that outlived their namespace or an earlier boot. */
  readonly outlived: number;
  /** How many times notifications were lost. */
  readonly lost: number;
  /** Checks by outcome, and repairs by outcome, since the daemon began to watch. */
  readonly checks?: Readonly<Record<string, number>>;
  readonly repairs?: Readonly<Record<string, number>>;
  /** Deletions of those that outlived their namespace, by outcome. */
  readonly deletions?: Readonly<Record<string, number>>;
}
