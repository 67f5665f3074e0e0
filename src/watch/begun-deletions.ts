// Has the runtime of an attachment begun to delete it?
import { isNoteGone, noteOf } from '../chain/records/foreign.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { fileOf, type WatchedAttachment } from './attachments.ts';

/** A DEL takes less. What is still there then is checked like an attachment that never had a note. */
const DEL_MAY_TAKE_MS = 60_000;

/**
 * Remembers the notes of ADDs (attachments/generation.ts). The first plugin of a DEL removes the note, so a missing one tells something only if
 * it was there before.
 */
export class BegunDeletions {
  readonly #runtime: Pick<ChainRuntime, 'env'>;
  /** By what was read from the attachment's file, which is another object after another ADD. */
  readonly #notes = new WeakMap<object, string | undefined>();
  readonly #goneSince = new WeakMap<object, number>();

  constructor(runtime: Pick<ChainRuntime, 'env'>) {
    this.#runtime = runtime;
  }

  /** Reads the notes of attachments that are new, of those of which no journal tells that their DEL has begun. */
  look(attachments: Iterable<WatchedAttachment>): void {
    for (const one of attachments) {
      const file = theirFile(one);
      if (file !== undefined && !this.#notes.has(file)) this.#notes.set(file, noteOf(one.id, this.#runtime));
    }
  }

  /** @param now milliseconds of one clock */
  has(one: WatchedAttachment, now: number): boolean {
    const file = theirFile(one);
    if (file === undefined) return false;
    if (!isNoteGone(one.id, this.#notes.get(file), this.#runtime)) {
      this.#goneSince.delete(file);
      return false;
    }
    const since = this.#goneSince.get(file) ?? now;
    this.#goneSince.set(file, since);
    return now - since < DEL_MAY_TAKE_MS;
  }
}

/** What was read of an attachment that its runtime deletes without our knowledge. */
function theirFile(one: WatchedAttachment): object | undefined {
  return one.record === undefined ? fileOf(one) : undefined;
}
