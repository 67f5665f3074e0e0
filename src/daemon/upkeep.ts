// How are plugins called again for the attachments that they keep, while a daemon runs?
import { VisitQueue } from '../chain/run/visits.ts';
import { UPKEEP_VARIABLE } from '../cni/env.ts';
import { describeError, ErrorCode } from '../cni/errors.ts';
import { tryParse } from '../cni/json.ts';
import type { LogFields, LogLevel } from '../log.ts';
import { becomeKeeper, bootClock, type UpkeepNote, upkeepLister } from '../node/upkeep/note.ts';
import { type PluginRequest, type RunAnswer, SERVED_VARIABLE } from './protocol.ts';

/** Interval between two looks at the notes. */
const INTERVAL_MS = 3_000;
/** Calls at the same time; each has a worker to itself, which other requests need too. */
const AT_ONCE = 4;
/** Pause after a call that failed; doubled with each further failure. */
const FIRST_PAUSE_S = 15;
const LONGEST_PAUSE_S = 600;

export interface UpkeepParts {
  readonly stateDir: string;
  /** The boot that notes must be of. */
  readonly boot: string;
  readonly call: (call: PluginRequest, signal: AbortSignal) => Promise<RunAnswer>;
  /** Added to the environment of each call: directories. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: (level: LogLevel, message: string, fields?: LogFields) => void;
}

/**
 * Calls plugins for their notes when those are due, and for every note once at the start. If another daemon does so already, it
 * takes over when that one ends.
 */
export class Upkeep {
  readonly #parts: UpkeepParts;
  readonly #end = new AbortController();
  readonly #listNotes: ReturnType<typeof upkeepLister>;
  readonly #met = new Set<string>();
  /** Those that the first look found: what is noted later is of ADDs that were made under this daemon. A call may begin long after that look. */
  #earlier: Set<string> | undefined;
  readonly #failures = new Map<string, { count: number; notBefore: number }>();
  readonly #wanted = new Map<string, { readonly plugin: string; readonly note: UpkeepNote }>();
  readonly #visits: VisitQueue;
  /** Short calls, which must not wait for those that hang. */
  readonly #urgent: VisitQueue;
  readonly #timer: ReturnType<typeof setInterval>;
  #release: (() => void) | undefined;
  #kept = 0;
  #running: Promise<void> | undefined;

  constructor(parts: UpkeepParts) {
    this.#parts = parts;
    this.#listNotes = upkeepLister(parts.stateDir);
    this.#visits = new VisitQueue(id => this.#visitWanted(id), {
      atOnce: AT_ONCE,
      groupOf: id => this.#wanted.get(id)?.note.network ?? '',
    });
    this.#urgent = new VisitQueue(id => this.#visitWanted(id), { atOnce: AT_ONCE, groupOf: id => id });
    this.#look();
    this.#timer = setInterval(() => this.#look(), INTERVAL_MS);
  }

  /** Notes for which a plugin will be called; as of the last look. */
  get kept(): number {
    return this.#kept;
  }

  /** Stops it; calls in progress are finished first. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#end.abort();
    await this.#running;
    await Promise.all([this.#visits.close(), this.#urgent.close()]);
    this.#release?.();
  }

  #look(): void {
    this.#running ??= this.#round()
      .catch(thrown => {
        const problem = describeError(thrown);
        this.#parts.log('warn', 'cannot look for attachments to keep', { problem });
      })
      .finally(() => (this.#running = undefined));
  }

  async #round(): Promise<void> {
    const { stateDir, boot } = this.#parts;
    this.#release ??= becomeKeeper(stateDir);
    if (this.#release === undefined) return;
    const now = bootClock();
    const notBefore = ({ id }: UpkeepNote) => this.#failures.get(id)?.notBefore ?? 0;
    const all = this.#listNotes();
    const ids = new Set(all.map(({ note }) => note.id));
    for (const known of [this.#met, this.#failures])
      for (const id of known.keys()) if (!ids.has(id)) known.delete(id);
    const own = all.filter(({ note }) => {
      const isMeant = note.boot === boot || note.outlivesBoot === true;
      return isMeant && note.dueAt !== undefined && notBefore(note) !== Infinity;
    });
    this.#kept = own.length;
    this.#earlier ??= new Set(own.map(({ note }) => note.id));
    const due = own.filter(({ note }) => {
      // A time of an earlier boot says nothing: such a note is due until a call for it has succeeded.
      const isPast = note.boot === boot ? (note.dueAt ?? 0) <= now : this.#failures.has(note.id);
      return (isPast || !this.#met.has(note.id)) && notBefore(note) <= now;
    });
    // One that hangs, as without a DHCP server, holds up those of its network alone.
    for (const one of due) {
      const { id, urgentAt } = one.note;
      const isUrgent = urgentAt !== undefined && urgentAt <= now && one.note.boot === boot;
      if (this.#urgent.has(id) || (isUrgent ? !this.#visits.withdraw(id) : this.#visits.has(id))) continue;
      this.#wanted.set(id, one);
      (isUrgent ? this.#urgent : this.#visits).add([id]);
    }
    await this.#visits.whenIdle();
  }

  async #visitWanted(id: string): Promise<void> {
    const one = this.#wanted.get(id);
    if (one && !this.#end.signal.aborted) await this.#visit(one.plugin, one.note);
    this.#wanted.delete(id);
  }

  async #visit(plugin: string, note: UpkeepNote): Promise<void> {
    const restarted = this.#earlier?.delete(note.id) ?? false;
    this.#met.add(note.id);
    const problem = await callFor(this.#parts, plugin, note, restarted, this.#end.signal);
    if (problem === undefined) {
      this.#failures.delete(note.id);
      return;
    }
    const { network, containerId, ifname } = note;
    const place = { network, container_id: containerId, ifname };
    const fields = { plugin, ...place, problem: problem.text };
    const count = (this.#failures.get(note.id)?.count ?? 0) + 1;
    const pause = problem.isGone ? Infinity : Math.min(FIRST_PAUSE_S * 2 ** (count - 1), LONGEST_PAUSE_S);
    this.#failures.set(note.id, { count, notBefore: bootClock() + pause });
    const { log } = this.#parts;
    if (problem.isGone) log('info', 'the namespace of an attachment to be kept is gone', fields);
    else log('warn', 'cannot keep an attachment', fields);
  }
}

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
