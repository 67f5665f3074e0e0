// Which attachments of a network already existed when GC began?
// README.md, "GC while ADDs run", says what for.
import { readFileSync, statSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { type AttachmentId, directoryOf } from '../cni/attachment.ts';
import { notesDirs } from '../cni/directories.ts';
import { attempt } from '../cni/errors.ts';
import { putFile, sweepUnfinished, unfinishedName, writeNewFile } from '../files/put-file.ts';
import { findGeneration, listGenerations } from './generation.ts';

/** The clock of the kernel's file times is up to this many milliseconds behind the clock that requests are dated by. */
export const FILE_CLOCK_LAG_MS = 10;

/** The notes of a network at one moment. */
export interface Snapshot {
  readonly tokens: ReadonlySet<string>;
  /** When it was taken, in milliseconds of the clock of the kernel's file times. */
  readonly time: number;
}

export function hasBegunSince({ tokens }: Snapshot, runDir: string, id: AttachmentId): boolean {
  const note = findGeneration(runDir, id);
  return note !== undefined && !tokens.has(note.token);
}

/**
 * Takes a snapshot and writes it to a file for the plugins of one run of GC.
 * @param since leaves out notes from this time on, in milliseconds since the epoch
 * @returns undefined if the run directory cannot be written: then no ADD writes a note either
 */
export function takeSnapshot(runDir: string, network: string, since = Number.POSITIVE_INFINITY) {
  const dir = notesDirs(runDir).gc;
  // The name contains the process id, so the file of a killed process is recognised and removed here.
  const path = join(dir, unfinishedName());
  let time: number;
  const tokens = tokensBefore(since, runDir, network);
  try {
    sweepUnfinished(dir);
    writeNewFile(path, tokens.join('\n'));
    time = statSync(path).mtimeMs;
  } catch {
    return undefined;
  }
  return {
    snapshot: { tokens: new Set(tokens), time: Math.min(time, since) },
    path,
    // Otherwise the next run of GC removes it.
    remove: () => attempt(() => unlinkSync(path)),
  };
}

/** Reads what {@link takeSnapshot} wrote; undefined if it does not exist. */
export function readSnapshot(path: string): Snapshot | undefined {
  return attempt(() => {
    const tokens = new Set(readFileSync(path, 'utf8').split('\n'));
    return { tokens, time: statSync(path).mtimeMs };
  });
}

/** Longest time between two plugins of one run. */
const SAME_RUN_MS = 60_000;

/**
 * The snapshot of the run of GC that a call belongs to. Other runtimes do not identify their runs: calls with the same list of
 * valid attachments, each of a different plugin, count as one run as long as they follow each other closely. An attachment that
 * is begun between two of them is then left alone by both, or by neither.
 * @param call.list distinguishes lists of valid attachments
 * @param call.plugin distinguishes the plugins of the network's list
 * @param since as for {@link takeSnapshot}
 */
export function joinRun(
  runDir: string,
  { network, list, plugin }: Readonly<Record<'network' | 'list' | 'plugin', string>>,
  since = Number.POSITIVE_INFINITY,
): Snapshot {
  const path = join(notesDirs(runDir).gc, directoryOf(network));
  const run = readRun(path);
  const now = Date.now();
  const isSame =
    run?.list === list && !run.plugins.includes(plugin) && Math.abs(now - run.time) < SAME_RUN_MS;
  const tokens = isSame ? run.tokens : tokensBefore(since, runDir, network);
  const plugins = isSame ? [...run.plugins, plugin] : [plugin];
  let begun = isSame ? run.begun : Math.min(now, since);
  const write = () =>
    putFile(path, JSON.stringify({ list, plugins, begun, time: now, tokens } satisfies Run));
  try {
    write();
    if (!isSame) {
      // The kernel's file times are some milliseconds behind the clock.
      begun = Math.min(statSync(path).mtimeMs, since);
      write();
    }
  } catch {
    // The next plugin takes its own snapshot.
  }
  return { tokens: new Set(tokens), time: begun };
}

function tokensBefore(since: number, runDir: string, network: string): string[] {
  const before = since - FILE_CLOCK_LAG_MS;
  return listGenerations(runDir, network).flatMap(({ token, time }) => (time < before ? token : []));
}

interface Run {
  readonly list: string;
  /** Those already called. */
  readonly plugins: readonly string[];
  /** Time of the first call, in milliseconds. */
  readonly begun: number;
  /** Time of the last call, in milliseconds. */
  readonly time: number;
  readonly tokens: readonly string[];
}

function readRun(path: string): Run | undefined {
  const run = attempt(() => JSON.parse(readFileSync(path, 'utf8')) as Partial<Run> | null);
  const isRun =
    typeof run?.list === 'string' &&
    typeof run.begun === 'number' &&
    typeof run.time === 'number' &&
    Array.isArray(run.plugins) &&
    Array.isArray(run.tokens);
  return isRun ? (run as Run) : undefined;
}
