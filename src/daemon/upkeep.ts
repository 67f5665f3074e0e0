// How are plugins called again for the attachments that they keep, while a daemon runs?
import { VisitQueue } from '../chain/run/visits.ts';
import { UPKEEP_VARIABLE } from '../cni/env.ts';
import { describeError, ErrorCode } from '../cni/errors.ts';
import { tryParse } from '../cni/json.ts';
import type { LogFields, LogLevel } from '../log.ts';
import { bootClock } from '../upkeep/boot-clock.ts';
import { becomeKeeper } from '../upkeep/keeper.ts';
import { type UpkeepNote, upkeepLister } from '../upkeep/note.ts';
import { type PluginRequest, type RunAnswer, SERVED_VARIABLE } from './protocol.ts';

/** Interval between two looks at the notes. */
const INTERVAL_MS = 3_000;
/** Calls at the same time; each has a worker to itself, which other requests need too. */
const AT_ONCE = 4;
/** Pause after a call that failed; doubled with each further failure. */
const FIRST_PAUSE_S = 15;
const LONGEST_PAUSE_S = 600;

/** What the upkeep needs of the daemon. */
export interface UpkeepParts {
  readonly stateDir: string;
  /** The boot that notes must be of. */
  readonly boot: string;
  readonly call: (call: PluginRequest, signal: AbortSignal) => Promise<RunAnswer>;
  /** Added to the environment of each call: directories. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: (level: LogLevel, message: string, fields?: LogFields) => void;
}

/** Upkeep that runs in the background. */
export interface Upkeeping {
  /** Notes for which a plugin will be called; as of the last look. */
  kept(): number;
  /** Stops it; calls in progress are finished first. */
  stop(): Promise<void>;
}

/**
 * Calls plugins for their notes when those are due, and for every note once at the start. If another daemon does so already, it
 * takes over when that one ends.
 */
export function startUpkeep(parts: UpkeepParts): Upkeeping {
  const end = new AbortController();
  const listNotes = upkeepLister(parts.stateDir);
  const met = new Set<string>();
  const failures = new Map<string, { count: number; notBefore: number }>();
  let release: (() => void) | undefined;
  let kept = 0;
  const visit = async (plugin: string, note: UpkeepNote): Promise<void> => {
    const restarted = !met.has(note.id);
    met.add(note.id);
    const problem = await callFor(parts, plugin, note, restarted, end.signal);
    if (problem === undefined) {
      failures.delete(note.id);
      return;
    }
    const { network, containerId, ifname } = note;
    const place = { network, container_id: containerId, ifname };
    const fields = { link: plugin, ...place, problem: problem.text };
    const count = (failures.get(note.id)?.count ?? 0) + 1;
    const pause = problem.isGone ? Infinity : Math.min(FIRST_PAUSE_S * 2 ** (count - 1), LONGEST_PAUSE_S);
    failures.set(note.id, { count, notBefore: bootClock() + pause });
    if (problem.isGone) parts.log('info', 'the namespace of an attachment to be kept is gone', fields);
    else parts.log('warn', 'cannot keep an attachment', fields);
  };
  const wanted = new Map<string, { readonly plugin: string; readonly note: UpkeepNote }>();
  const visits = new VisitQueue(
    async id => {
      const one = wanted.get(id);
      if (one && !end.signal.aborted) await visit(one.plugin, one.note);
      wanted.delete(id);
    },
    { atOnce: AT_ONCE, groupOf: id => wanted.get(id)?.note.network ?? '' },
  );
  const round = async (): Promise<void> => {
    release ??= becomeKeeper(parts.stateDir);
    if (release === undefined) return;
    const now = bootClock();
    const notBefore = ({ id }: UpkeepNote) => failures.get(id)?.notBefore ?? 0;
    const own = listNotes().filter(({ note }) => {
      const isMeant = note.boot === parts.boot || note.outlivesBoot === true;
      return isMeant && note.dueAt !== undefined && notBefore(note) !== Infinity;
    });
    kept = own.length;
    const due = own.filter(({ note }) => {
      // A time of an earlier boot says nothing: such a note is due until a call for it has succeeded.
      const isPast = note.boot === parts.boot ? (note.dueAt ?? 0) <= now : failures.has(note.id);
      return (isPast || !met.has(note.id)) && notBefore(note) <= now;
    });
    // One that hangs, as without a DHCP server, holds up those of its network alone.
    for (const one of due.filter(({ note }) => !visits.has(note.id))) {
      wanted.set(one.note.id, one);
      visits.add([one.note.id]);
    }
    await visits.settled();
  };
  const safely = async (): Promise<void> => {
    try {
      await round();
    } catch (thrown) {
      parts.log('warn', 'cannot look for attachments to keep', { problem: describeError(thrown) });
    }
  };
  let running = safely();
  let isRunning = true;
  void running.then(() => {
    isRunning = false;
  });
  const timer = setInterval(() => {
    if (isRunning) return;
    isRunning = true;
    running = safely().then(() => {
      isRunning = false;
    });
  }, INTERVAL_MS);
  return {
    kept: () => kept,
    async stop() {
      clearInterval(timer);
      end.abort();
      await running;
      await visits.close();
      release?.();
    },
  };
}

/** Why a call failed. */
interface Problem {
  readonly text: string;
  /** The namespace no longer exists, or is another container's: no further call could succeed. */
  readonly isGone?: boolean;
}

async function callFor(
  { call, env }: UpkeepParts,
  plugin: string,
  note: UpkeepNote,
  restarted: boolean,
  signal: AbortSignal,
): Promise<Problem | undefined> {
  const own = {
    CNI_COMMAND: 'CHECK',
    [UPKEEP_VARIABLE]: restarted ? 'restart' : 'due',
    [SERVED_VARIABLE]: '1',
  };
  const invocation = { env: { ...env, ...note.call.env, ...own }, stdin: note.call.stdin, cwd: '/' };
  try {
    const answer = await call({ plugin, ...invocation }, signal);
    if (answer.declined !== undefined) return { text: String(answer.error) };
    if (answer.exitCode === 0) return undefined;
    const { code, msg } = (tryParse(answer.stdout) ?? {}) as { code?: unknown; msg?: unknown };
    return { text: String(msg ?? answer.stdout), isGone: code === ErrorCode.invalidNetns };
  } catch (thrown) {
    return { text: describeError(thrown) };
  }
}
