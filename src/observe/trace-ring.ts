// Where are the recent requests kept, so that they can be looked at afterwards, and how do they stay few?
import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { isObject } from '../cni/json.ts';
import { putFile } from '../files/put-file.ts';
import { sweepUnfinished } from '../files/unfinished.ts';
import type { RequestRecord } from './record.ts';

/** How much is kept; the oldest goes first. */
export interface RingLimits {
  readonly maxRecords: number;
  readonly maxBytes: number;
}

/** Limits that hold unless told otherwise. */
export const RING_LIMITS: RingLimits = { maxRecords: 500, maxBytes: 16 * 1024 * 1024 };

/** Larger records lose what links printed, and what they did in the kernel. */
const MAX_RECORD_BYTES = 256 * 1024;

/** Others write into the same directory: after so many writes it is looked at anew. */
const WRITES_BETWEEN_LOOKS = 100;

/** A name says when the request began: names sort by time. */
const NAME = /^([\da-z]{12})\.json$/;

/** A directory of records, one file each. */
export class TraceRing {
  readonly #dir: string;
  readonly #limits: RingLimits;
  /** Sizes by name, the oldest first. */
  #sizes = new Map<string, number>();
  #bytes = 0;
  #untilLook = 0;

  constructor(dir: string, limits: RingLimits = RING_LIMITS) {
    this.#dir = dir;
    this.#limits = limits;
  }

  /**
   * Keeps a record: written beside its place, then renamed, for its owner only (0600).
   * @throws Error of the file system; half a record is never left
   */
  write(record: RequestRecord): void {
    const text = render(record);
    const name = `${record.id}.json`;
    putFile(join(this.#dir, name), text);
    this.#sizes.set(name, Buffer.byteLength(text));
    this.#bytes += Buffer.byteLength(text);
    if (this.#untilLook === 0) this.#look();
    this.#untilLook -= 1;
    this.#prune();
  }

  #look(): void {
    sweepUnfinished(this.#dir);
    const sizes = namesIn(this.#dir).map(name => {
      return [name, statSync(join(this.#dir, name), { throwIfNoEntry: false })?.size ?? 0] as const;
    });
    this.#sizes = new Map(sizes);
    this.#bytes = sizes.reduce((sum, [, size]) => sum + size, 0);
    this.#untilLook = WRITES_BETWEEN_LOOKS;
  }

  #prune(): void {
    for (const [name, size] of this.#sizes) {
      // The youngest stays, however large.
      if (this.#sizes.size <= 1) return;
      if (this.#sizes.size <= this.#limits.maxRecords && this.#bytes <= this.#limits.maxBytes) return;
      rmSync(join(this.#dir, name), { force: true });
      this.#sizes.delete(name);
      this.#bytes -= size;
    }
  }
}

/** The records of a directory, the oldest first, and the names of files that are none. */
export function listTraces(dir: string): { records: RequestRecord[]; damaged: string[] } {
  const damaged: string[] = [];
  const records = namesIn(dir).flatMap(name => {
    const record = readRecord(join(dir, name));
    if (record === 'damaged') damaged.push(join(dir, name));
    return record === 'damaged' || record === undefined ? [] : [record];
  });
  return { records, damaged };
}

/**
 * The record whose id begins like this.
 * @throws Error when there is none, or more than one
 */
export function findTrace(dir: string, start: string): RequestRecord {
  const names = namesIn(dir).filter(name => name.startsWith(start));
  const [name] = names;
  const record = name === undefined ? undefined : readRecord(join(dir, name));
  if (record === 'damaged')
    throw new Error(`Cannot read trace "${start}": "${join(dir, name ?? '')}" is damaged`);
  if (names.length > 1)
    throw new Error(`Cannot find trace "${start}": ${names.length} of "${dir}" begin like this`);
  if (record === undefined) throw new Error(`Cannot find trace "${start}": "${dir}" has none of that id`);
  return record;
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir)
      .filter(name => NAME.test(name))
      .sort();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/** Undefined when it went meanwhile. */
function readRecord(file: string): RequestRecord | 'damaged' | undefined {
  try {
    const value: unknown = JSON.parse(readFileSync(file, 'utf8'));
    const whole = isObject(value) && typeof value.startedAt === 'number' && Array.isArray(value.links);
    return whole ? (value as unknown as RequestRecord) : 'damaged';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? undefined : 'damaged';
  }
}

function render(record: RequestRecord): string {
  const text = JSON.stringify(record);
  if (Buffer.byteLength(text) <= MAX_RECORD_BYTES) return text;
  const { result: _, args: __, finishes: ___, ...small } = record;
  const links = record.links.map(({ result, stderr, transactions, ...link }) => link);
  return JSON.stringify({ ...small, links });
}
