// When does the daemon delete attachments that outlived their namespace?

import type { ChainRuntime } from '../chain/run/runtime.ts';
import { VisitQueue } from '../chain/run/visits.ts';
import { describeError } from '../cni/errors.ts';
import type { LogFields } from '../log.ts';
import type { WatchedAttachment } from './attachments.ts';
import type { CaretakerEvents } from './caretaker.ts';
import { findGone, type Gone, type GoneOutcome } from './collect-gone.ts';
import type { Policy } from './settings.ts';

/** Deletions per round: none of them is urgent. */
const AT_ONCE = 8;
/** Pause after a deletion that failed. */
const RETRY_MS = 10 * 60_000;

/** An attachment that outlived its namespace. Times are those of performance.now(). */
interface Leftover {
  /** Differs for a later attachment of the same name. */
  readonly life: string;
  readonly since: number;
  notBefore: number;
  isReported: boolean;
}

/** What the collection needs of the watch. */
interface LeftoverParts extends Pick<CaretakerEvents, 'log' | 'traced'> {
  readonly runtime: ChainRuntime;
  policyOf(one: WatchedAttachment): Policy;
  /** Told of each that was deleted. */
  deleted(one: WatchedAttachment): void;
}

/**
 * Does what `catena gc --gone` does, a while after the namespace ended: its runtime may still call DEL, which then finds nothing to
 * do. Under policy `observe` such attachments are reported once; under `off` they are not looked at.
 */
export class Leftovers {
  readonly #parts: LeftoverParts;
  readonly #known = new Map<string, Leftover>();
  readonly #deletions: Record<string, number> = {};
  readonly #due = new Map<string, Gone & { readonly leftover: Leftover }>();
  readonly #deleting = new VisitQueue(key => this.#delete(key), {
    atOnce: 1,
    groupOf: key => key.split('\n')[0] ?? '',
  });

  constructor(parts: LeftoverParts) {
    this.#parts = parts;
  }

  /** Attachments that outlived their namespace, as of the last round. */
  get count(): number {
    return this.#known.size;
  }

  /** Deletions by outcome, since the daemon began to watch. */
  get deletions(): Readonly<Record<string, number>> {
    return this.#deletions;
  }

  /**
   * @param attachments all that there are now
   * @param graceMs how long a namespace must have been gone; 0: nothing is reported or deleted
   */
  async collect(attachments: Iterable<WatchedAttachment>, graceMs: number): Promise<void> {
    const gone = this.#look(attachments);
    if (graceMs === 0) return;
    const now = performance.now();
    const due = gone.filter(({ leftover }) => now >= Math.max(leftover.since + graceMs, leftover.notBefore));
    const isAllowed = ({ one }: (typeof due)[number]) => this.#parts.policyOf(one) === 'repair';
    for (const { one, why, leftover } of due.filter(found => !isAllowed(found)))
      this.#report(leftover, one, { problem: why, advice: 'catena gc --gone' });
    const chosen = due.filter(isAllowed).filter(({ one }) => !this.#deleting.has(one.key));
    for (const gone of chosen.slice(0, AT_ONCE)) this.#due.set(gone.one.key, gone);
    this.#deleting.add(this.#due.keys());
    await this.#deleting.whenIdle();
  }

  /** Begins no further deletion, and waits for those in progress. */
  close(): Promise<void> {
    return this.#deleting.close();
  }

  #look(attachments: Iterable<WatchedAttachment>) {
    const now = performance.now();
    const watched = [...attachments].filter(one => this.#parts.policyOf(one) !== 'off');
    const gone = findGone(watched, this.#parts.runtime).flatMap(found => {
      const { one, life, isSure } = found;
      if (!isSure) return [];
      const before = this.#known.get(one.key);
      const leftover = before?.life === life ? before : { life, since: now, notBefore: 0, isReported: false };
      return [{ ...found, leftover }];
    });
    this.#known.clear();
    for (const { one, leftover } of gone) this.#known.set(one.key, leftover);
    return gone;
  }

  async #delete(key: string): Promise<void> {
    const due = this.#due.get(key);
    this.#due.delete(key);
    if (due === undefined || this.#parts.runtime.signal?.aborted) return;
    const { one, leftover, mend } = due;
    const { runtime, traced } = this.#parts;
    const done = await traced('DEL', one, runtime, mend, problemOf);
    const { state } = done;
    this.#deletions[state] = (this.#deletions[state] ?? 0) + 1;
    const problem = problemOf(done);
    if (problem === undefined) {
      this.#known.delete(one.key);
      this.#parts.log('info', 'deleted an attachment whose namespace had ended without a DEL', fieldsOf(one));
      this.#parts.deleted(one);
      return;
    }
    leftover.notBefore = performance.now() + RETRY_MS;
    this.#report(leftover, one, { problem });
  }

  #report(leftover: Leftover, one: WatchedAttachment, more: LogFields): void {
    if (leftover.isReported) return;
    leftover.isReported = true;
    this.#parts.log('warn', 'an attachment outlived its namespace', { ...fieldsOf(one), ...more });
  }
}

/** Why it was not deleted. */
function problemOf({ state, error, why = '' }: GoneOutcome): string | undefined {
  if (state === 'deleted') return undefined;
  return error ? describeError(error) : why;
}

function fieldsOf({ id: { network, containerId, ifname } }: WatchedAttachment): LogFields {
  return { network, container_id: containerId, ifname };
}
