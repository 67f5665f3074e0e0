// What is told of requests, to whom, and where are recent ones kept for later inspection?

import { readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { RequestWatcher } from '../chain/run/runtime.ts';
import { findTraceParent } from '../chain/run/trace-context.ts';
import type { Request } from '../cli/answers/daemon.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type ValueOf } from '../cni/json.ts';
import { putFile, sweepUnfinished } from '../files/put-file.ts';
import { namesIfThere } from '../files/read-file.ts';
import { noteRequest } from './history.ts';
import { type RecordingWatcher, type RequestRecord, startRequest } from './record.ts';

/** How much is kept; the oldest records are deleted first. */
export interface RingLimits {
  readonly maxRecords: number;
  readonly maxBytes: number;
}

export const RING_LIMITS: RingLimits = { maxRecords: 500, maxBytes: 16 * 1024 * 1024 };

/** Larger records are stored without the plugins' output and kernel transactions. */
const MAX_RECORD_BYTES = 256 * 1024;

/** Other processes write into the same directory, so it is listed again after this many writes. */
const WRITES_BETWEEN_LOOKS = 100;

/** Corrections of a clock that are no jump. */
const CLOCK_MS = 60_000;

/** A name starts with the time at which the request began. */
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
   * Stores a record: written to a temporary file, then renamed, with mode 0600.
   * @throws Error of the file system; a partial record is never left behind
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
    const found = tracesIn(this.#dir);
    this.#sizes = new Map(found.map(({ name, size }) => [name, size]));
    this.#bytes = found.reduce((sum, { size }) => sum + size, 0);
    this.#untilLook = WRITES_BETWEEN_LOOKS;
  }

  #prune(): void {
    for (const [name, size] of this.#sizes) {
      // The youngest record is kept, however large.
      if (this.#sizes.size <= 1) return;
      if (this.#sizes.size <= this.#limits.maxRecords && this.#bytes <= this.#limits.maxBytes) return;
      rmSync(join(this.#dir, name), { force: true });
      this.#sizes.delete(name);
      this.#bytes -= size;
    }
  }
}

/** The records of a directory, oldest first, and the names of invalid files. */
export function listTraces(dir: string): { records: RequestRecord[]; damaged: string[] } {
  const damaged: string[] = [];
  const records = tracesIn(dir).flatMap(({ name }) => {
    const record = readRecord(join(dir, name));
    if (record === 'damaged') damaged.push(join(dir, name));
    return record === 'damaged' || record === undefined ? [] : [record];
  });
  return { records, damaged };
}

const OTHERWISE =
  'catena log --requests lists the ids, catena log --container shows what happened to a container';

/**
 * The record whose id has this prefix.
 * @throws CniError 0 if there is none, or more than one
 */
export function findTrace(dir: string, start: string): RequestRecord {
  const names = namesIfThere(dir, 'traces').filter(name => NAME.test(name) && name.startsWith(start));
  const [name] = names;
  const record = name === undefined ? undefined : readRecord(join(dir, name));
  const cannot = (what: string, why: string) =>
    new CniError(ErrorCode.unknown, `Cannot ${what} trace "${start}": ${why}`);
  if (record === 'damaged') throw cannot('read', `"${join(dir, name ?? '')}" is damaged`);
  if (names.length > 1) throw cannot('find', `${names.length} ids in "${dir}" start with it`);
  if (record === undefined) throw cannot('find', `"${dir}" has no trace of that id; ${OTHERWISE}`);
  return record;
}

/** Traces by their age. Names are times of requests, which a clock that was ahead for a while leaves behind out of order. */
function tracesIn(dir: string): { readonly name: string; readonly size: number; readonly at: number }[] {
  const now = Date.now();
  return namesIfThere(dir, 'traces')
    .filter(name => NAME.test(name))
    .map(name => {
      const { size = 0, mtimeMs = 0 } = statSync(join(dir, name), { throwIfNoEntry: false }) ?? {};
      // Written while the clock was ahead: of unknown age, so the first to go.
      return { name, size, at: mtimeMs > now + CLOCK_MS ? 0 : mtimeMs };
    })
    .sort((a, b) => a.at - b.at || (a.name < b.name ? -1 : 1));
}

/** Undefined if the file no longer exists. */
function readRecord(file: string): RequestRecord | 'damaged' | undefined {
  try {
    const value: unknown = JSON.parse(readFileSync(file, 'utf8'));
    const whole = isObject(value) && typeof value.startedAt === 'number' && Array.isArray(value.plugins);
    return whole ? (value as unknown as RequestRecord) : 'damaged';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? undefined : 'damaged';
  }
}

function render(record: RequestRecord): string {
  const text = JSON.stringify(record);
  if (Buffer.byteLength(text) <= MAX_RECORD_BYTES) return text;
  const { result: _, args: __, finishes: ___, ...small } = record;
  const plugins = record.plugins.map(({ result, stderr, transactions, ...plugin }) => plugin);
  return JSON.stringify({ ...small, plugins });
}

/** A record on disk has its time as a number. */
export function toRequest({ startedAt, ...record }: RequestRecord): ValueOf<typeof Request> {
  return { ...record, startedAt: new Date(startedAt).toISOString() };
}

/**
 * Only keeps a trace of each request, for commands that run without a daemon.
 * @param onProblem called if a trace cannot be kept
 * @param stateDir whose history notes the request, too
 */
export function openTraceWatcher(
  dir: string,
  onProblem: (error: Error) => void,
  stateDir?: string,
): RecordingWatcher {
  const ring = new TraceRing(dir);
  return {
    begin(facts, env) {
      const { id, end, ...watch } = startRequest({ ...facts, traceId: findTraceParent(env)?.traceId });
      return {
        id,
        env,
        watch: { ...watch, tracesKernel: true },
        end(outcome) {
          const record = end(outcome);
          try {
            ring.write(record);
          } catch (error) {
            onProblem(error as Error);
          }
          if (stateDir !== undefined) noteRequest(stateDir, record, 'command');
          return record;
        },
      };
    },
  };
}

/** Verbs that change no attachment of theirs. */
const READING = new Set(['CHECK', 'STATUS', 'GC', 'VERSION']);
/** Runtimes give up long before that. */
const LONGEST_MS = 10 * 60_000;
const YOUNG_MS = 1_000;

/** Knows the requests that a daemon serves at present. */
export class CallsInProgress {
  /** By container: when each of its requests began. */
  readonly #begun = new Map<string, Set<{ readonly at: number }>>();

  has(containerId: string): boolean {
    const since = performance.now() - LONGEST_MS;
    return [...(this.#begun.get(containerId) ?? [])].some(({ at }) => at > since);
  }

  /** Whether any has begun a moment ago: one that takes longer waits for something itself. */
  hasYoung(): boolean {
    const since = performance.now() - YOUNG_MS;
    return [...this.#begun.values()].some(all => [...all].some(({ at }) => at > since));
  }

  /** The same watcher, whose requests are noted. */
  noting<Kept>(watcher: RequestWatcher<Kept>): RequestWatcher<Kept> {
    return {
      begin: (facts, env) => {
        const request = watcher.begin(facts, env);
        const { verb, containerId } = facts;
        if (containerId === '' || READING.has(verb)) return request;
        const forget = this.#note(containerId);
        return {
          ...request,
          end(outcome) {
            forget();
            return request.end(outcome);
          },
        };
      },
    };
  }

  #note(containerId: string): () => void {
    const one = { at: performance.now() };
    const begun = this.#begun.get(containerId) ?? new Set();
    this.#begun.set(containerId, begun.add(one));
    return () => {
      begun.delete(one);
      if (begun.size === 0 && this.#begun.get(containerId) === begun) this.#begun.delete(containerId);
    };
  }
}
