// How often is the node read for a page that asks every two seconds?
import { createHash } from 'node:crypto';

/** What was read, as the text that is sent. */
export interface Snapshot {
  readonly text: string;
  /** Changes with the content. */
  readonly etag: string;
  /** Unix time in milliseconds at which reading ended. */
  readonly at: number;
}

/** A reading rests for at least so many times as long as it took, so it costs a bounded share of a processor. */
const REST_FACTOR = 9;

/** Something that is read when it is asked for, at most once at a time, and again only after a rest. */
export class Reading {
  #latest: Snapshot | undefined;
  #readAgainAt = 0;
  #tookMs = 0;
  #hurriedMs: number | undefined;
  #running: Promise<Snapshot> | undefined;
  readonly #read: () => Promise<string>;
  readonly #restMs: number;
  readonly #now: () => number;

  /** @param restMs the shortest time between the end of a reading and the start of the next */
  constructor(read: () => Promise<string>, restMs: number, now: () => number = Date.now) {
    this.#read = read;
    this.#restMs = restMs;
    this.#now = now;
  }

  /** The latest snapshot, whatever its age. */
  get latest(): Snapshot | undefined {
    return this.#latest;
  }

  /** A snapshot that is recent. @throws what reading throws; it is tried again at the next call */
  async get(): Promise<Snapshot> {
    if (this.#latest !== undefined && this.#now() < this.#readAgainAt) return this.#latest;
    this.#running ??= this.#readNow().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /** Shortens the rest because something has changed, to this time or to that which the reading took if that is longer. */
  hurry(restMs: number): void {
    // One that is running may have begun before the change.
    if (this.#running !== undefined) this.#hurriedMs = restMs;
    else if (this.#latest !== undefined) {
      const earliest = this.#latest.at + Math.max(restMs, this.#tookMs);
      this.#readAgainAt = Math.min(this.#readAgainAt, earliest);
    }
  }

  async #readNow(): Promise<Snapshot> {
    const started = this.#now();
    this.#hurriedMs = undefined;
    const text = await this.#read();
    const at = this.#now();
    this.#latest = { text, etag: etagOf(text), at };
    this.#tookMs = at - started;
    const usual = Math.max(this.#restMs, REST_FACTOR * this.#tookMs);
    this.#readAgainAt = at + Math.min(usual, Math.max(this.#hurriedMs ?? usual, this.#tookMs));
    return this.#latest;
  }
}

/** A tag for a text, as HTTP wants it. */
export function etagOf(text: string): string {
  return `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"`;
}
