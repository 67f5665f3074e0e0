// How does the daemon keep watch over the attachments of this host, and when does it delete those that outlived their namespace?
import { join } from 'node:path';
import { isNoteGone, noteOf } from '../chain/records/foreign.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { VisitQueue } from '../chain/run/visits.ts';
import { runDir } from '../cni/directories.ts';
import { describeError } from '../cni/errors.ts';
import { changesOnly, type LogFields } from '../log.ts';
import { holdFlock } from '../sys/flock.ts';
import { letGoFirst, makeTimers } from '../wait.ts';
import {
  attachmentLister,
  fileOf,
  isPodHeld,
  podLister,
  type WatchedAttachment,
  withPods,
} from './attachments.ts';
import { Caretaker, type CaretakerEvents, fieldsOf, type Work } from './caretaker.ts';
import { findGone, type Gone, type GoneOutcome } from './collect-gone.ts';
import { Allowance, SweepPacer, startRounds, visitInside } from './pacing.ts';
import { describeListChanges, ListRestorer } from './restore-lists.ts';
import {
  changedLists,
  isOfList,
  keepLists,
  type Policy,
  policyOf,
  readLists,
  recallLists,
  type WatchSettings,
  type WatchState,
} from './settings.ts';
import {
  chooseConcerned,
  chooseSweep,
  devicesChangedInside,
  type Hint,
  openSources,
  withDevices,
} from './sources.ts';

interface WatchParts extends CaretakerEvents {
  /** With the journal of the command. */
  readonly runtime: ChainRuntime & { readonly stateDir: string };
  /** Journals of the delegate runner. */
  readonly journals: readonly string[];
  /** Its journal of pods. */
  readonly podsDir: string;
  readonly cacheDir: string;
  readonly confDir: string;
  /** Whether requests of clients are being served, apart from those that take long. */
  isBusy(): boolean;
  /** Whether a request is in progress that attaches or detaches this container. */
  isInCall(containerId: string): boolean;
}

export interface Watching {
  readonly state: WatchState;
  /** Applies other settings from now on. */
  change(settings: WatchSettings): void;
  /** Stops it; checks and repairs in progress are finished first, unless they hang. */
  stop(): Promise<void>;
}

/** Visits at the same time; each has a worker to itself, which other requests need too. */
const AT_ONCE = 2;
/** A change is seldom alone: those that follow within this time are looked at together. */
const DEBOUNCE_MS = 50;
/** Longest time that a visit, or a look at what there is, lets other requests go first. */
const YIELD_MS = 2_000;
/** Share of the time that checks may take which follow changes inside namespaces and find nothing: 1 %. */
const INSIDE_SHARE = 100;
/** A device that was made is mostly that of an ADD, which has ended then. */
const ARRIVAL_MS = 1_000;
/** Time for visits in progress when the watch ends. */
const FINISH_MS = 2_000;
/** How often the lock of another daemon is tried. */
const SEAT_EVERY_MS = 3_000;

/** Begins to watch. If another daemon does so already, it takes over when that one ends. */
export function startWatching(parts: WatchParts, first: WatchSettings): Watching {
  let settings = first;
  let watch: Watch | undefined;
  let ending: Promise<void> = Promise.resolve();
  let release: (() => void) | undefined;
  const complain = changesOnly(problem =>
    parts.log('warn', 'cannot watch for changes of attachments', { problem }),
  );
  const takeSeat = (): void => {
    if (watch || settings.policy === 'off') return;
    try {
      release ??= holdFlock(join(runDir(parts.runtime.env), 'watch.lock'), {
        mode: 0o600,
        directoryMode: 0o700,
      });
      if (release) watch = new Watch(parts, () => settings);
      complain(undefined);
    } catch (error) {
      complain(describeError(error));
    }
  };
  takeSeat();
  const timer = setInterval(takeSeat, SEAT_EVERY_MS);
  timer.unref();
  const leave = (): void => {
    const own = watch;
    watch = undefined;
    if (own) ending = ending.then(() => own.close());
  };
  return {
    get state() {
      return { policy: settings.policy, ...(watch?.state ?? NOTHING) };
    },
    change(next) {
      settings = next;
      if (next.policy === 'off') leave();
      else if (watch) watch.reconsider();
      else takeSeat();
    },
    async stop() {
      clearInterval(timer);
      leave();
      await ending;
      release?.();
    },
  };
}

const NOTHING = { attachments: 0, drifted: [], givenUp: [], outlived: 0, lost: 0 };

/** A watch that has its sockets. */
class Watch {
  readonly #parts: WatchParts;
  readonly #settings: () => WatchSettings;
  readonly #end = new AbortController();
  readonly #timers = makeTimers(this.#end.signal);
  readonly #list: ReturnType<typeof attachmentLister>;
  readonly #pods: ReturnType<typeof podLister>;
  readonly #unlisted = changesOnly(problem =>
    this.#parts.log('warn', 'cannot list the attachments', { problem }),
  );
  readonly #doubted = new WeakSet<object>();
  readonly #deletions: BegunDeletions;
  readonly #caretaker: Caretaker;
  readonly #leftovers: Leftovers;
  readonly #restorer: ListRestorer;
  readonly #queue: VisitQueue;
  readonly #pacer = new SweepPacer();
  readonly #allowance = new Allowance(INSIDE_SHARE);
  readonly #visitInside: ReturnType<typeof visitInside>;
  readonly #lookForNew: () => void;
  readonly #closeSources: () => void;
  readonly #stopRounds: () => Promise<void>;
  #attachments = new Map<string, WatchedAttachment>();
  /** Those that are not checked in parts. */
  #checked: readonly string[] = [];
  #lists: ReturnType<typeof readLists>;
  #pending: Hint[] = [];
  #isSweeping = false;
  #lost = 0;

  constructor(parts: WatchParts, settings: () => WatchSettings) {
    [this.#parts, this.#settings] = [parts, settings];
    const { signal } = parts.runtime;
    const both = signal ? AbortSignal.any([signal, this.#end.signal]) : this.#end.signal;
    const runtime = { ...parts.runtime, signal: both };
    const journals = [parts.runtime.stateDir, ...parts.journals];
    this.#list = attachmentLister(journals, parts.cacheDir, file => this.#doubted.has(file));
    this.#pods = podLister(parts.podsDir);
    this.#lists = recallLists(this.#listsFile, parts.confDir) ?? readLists(parts.confDir);
    this.#restorer = new ListRestorer(parts.confDir, this.#lists);
    this.#deletions = new BegunDeletions(runtime);
    this.#caretaker = this.#openCaretaker(runtime);
    this.#leftovers = new Leftovers({
      runtime,
      policyOf: one => this.#policyOf(one),
      deleted: one => parts.acted('deleted', one, ''),
      traced: parts.traced,
      log: parts.log,
    });
    this.#queue = new VisitQueue((key, rest) => this.#caretaker.visit(key, rest), {
      atOnce: AT_ONCE,
      groupOf: key => this.#attachments.get(key)?.network ?? '',
      idle: () => this.#idle(),
    });
    this.#visitInside = visitInside({
      allowance: this.#allowance,
      visit: key => this.#visit(key),
      found: () => this.#caretaker.found,
      later: this.#timers.later,
    });
    this.#lookForNew = this.#once(() => this.#relist('new'), ARRIVAL_MS);
    this.#relist('all');
    this.#closeSources = this.#openSources();
    this.#stopRounds = this.#startRounds();
    this.#readChanged();
    // While no daemon listened anything may have changed, and a repair by one that was killed may be incomplete.
    this.#pacer.want(true);
    this.#timers.later(() => this.#sweepWhenDue(), DEBOUNCE_MS);
  }

  get state(): Omit<WatchState, 'policy'> {
    const { size } = this.#attachments;
    return { attachments: size, lost: this.#lost, ...this.#leftovers.state, ...this.#caretaker.state };
  }

  /** Policies have changed: what was given up is tried again. */
  reconsider(): void {
    this.#caretaker.reconsider(() => true);
    this.#pacer.want(false);
    this.#sweepWhenDue();
  }

  async close(): Promise<void> {
    this.#closeSources();
    this.#timers.clear();
    const done = Promise.all([this.#stopRounds(), this.#queue.close(), this.#leftovers.close()]);
    // What hangs is ended, as its next visit finds it.
    await Promise.race([done, Bun.sleep(FINISH_MS)]);
    this.#end.abort();
    await done;
  }

  #openCaretaker(runtime: WatchParts['runtime']): Caretaker {
    return new Caretaker(
      { ...this.#parts, runtime },
      {
        find: key => this.#attachments.get(key),
        policyOf: one => this.#policyOf(one),
        workOn: one => this.#workOn(one),
        doubt: one => {
          this.#doubted.add(fileOf(one));
          this.#lookForNew();
        },
        again: (key, afterMs) => this.#timers.later(() => this.#queue.add([key]), afterMs),
      },
    );
  }

  #openSources(): () => void {
    const { confDir, log } = this.#parts;
    return openSources(confDir, {
      hints: hints => this.#note(hints),
      lost: why => {
        this.#lost += 1;
        log('info', 'notifications of changes were lost: every attachment is checked', { problem: why });
        this.#note([{ of: 'all', isLikely: true, why }]);
      },
      interrupted: why =>
        log('warn', 'cannot listen for changes at present: only the timer finds damage', { problem: why }),
      missed: why => {
        log('info', 'changes inside of namespaces were not heard for a while', { problem: why });
        this.#note([{ of: 'all', isLikely: false, why }]);
      },
      configured: this.#once(() => this.#readChanged(), DEBOUNCE_MS),
    });
  }

  #startRounds(): () => Promise<void> {
    return startRounds({
      everyMs: () => this.#settings().everyMs,
      list: () => {
        this.#relist('all');
        return this.#checked;
      },
      checkedAt: key => this.#caretaker.checkedAt(key),
      visit: key => this.#visit(key),
      atEnd: () => this.#leftovers.collect(this.#attachments.values(), this.#settings().leftoverMs),
    });
  }

  /** Resolves after the calls of clients. */
  #idle(): Promise<void> {
    return letGoFirst(() => this.#parts.isBusy() && !this.#end.signal.aborted, YIELD_MS);
  }

  #afterCalls(work: () => void): void {
    void this.#idle().then(() => this.#end.signal.aborted || work());
  }

  /** Work that is done once, after a time and the calls of clients, however often it is asked for until then. */
  #once(work: () => void, ms: number): () => void {
    return this.#timers.once(() => this.#afterCalls(work), ms);
  }

  #policyOf(one: WatchedAttachment): ReturnType<typeof policyOf> {
    return policyOf(one, this.#lists, this.#settings().policy);
  }

  #workOn(one: WatchedAttachment): Work | undefined {
    if (this.#parts.isInCall(one.containerId) || (one.pod && isPodHeld(one.pod))) return 'in progress';
    return this.#deletions.has(one, performance.now()) ? 'being deleted' : undefined;
  }

  #relist(scope: 'all' | 'new'): void {
    try {
      this.#attachments = withPods(this.#list(scope), this.#pods(scope));
      this.#unlisted(undefined);
    } catch (error) {
      // For want of descriptors or memory: those that were listed last are watched until the next look.
      this.#unlisted(describeError(error));
      return;
    }
    const all = [...this.#attachments.values()];
    this.#checked = all.flatMap(({ key, isCheckedInParts }) => (isCheckedInParts ? [] : key));
    this.#caretaker.forgetAllBut(new Set(this.#checked));
    this.#deletions.look(all);
  }

  async #visit(key: string): Promise<void> {
    this.#queue.add([key]);
    await this.#queue.whenIdle();
  }

  #sweepWhenDue(): void {
    const pause = this.#isSweeping ? undefined : this.#pacer.due(performance.now());
    if (pause === undefined) return;
    if (pause > 0) this.#timers.later(() => this.#sweepWhenDue(), pause);
    else void this.#sweep();
  }

  async #sweep(): Promise<void> {
    this.#isSweeping = true;
    this.#pacer.begun();
    await this.#idle();
    const startedAt = performance.now();
    const before = this.#caretaker.found;
    this.#relist('all');
    this.#queue.add(this.#checked);
    await this.#queue.whenIdle();
    const now = performance.now();
    this.#pacer.ended(now, now - startedAt, this.#caretaker.found === before);
    this.#isSweeping = false;
    this.#sweepWhenDue();
  }

  #note(hints: readonly Hint[]): void {
    if (this.#pending.length === 0)
      this.#timers.later(() => this.#afterCalls(() => this.#actOnPending()), DEBOUNCE_MS);
    // One of each kind is enough, however many there are.
    if (this.#pending.length < MAX_PENDING) this.#pending.push(...hints);
    else if (!this.#pending.some(({ of }) => of === 'all'))
      this.#pending.push({ of: 'all', isLikely: true, why: 'many changes' });
  }

  #actOnPending(): void {
    const hints = this.#pending;
    this.#pending = [];
    const concerned = chooseConcerned(hints, this.#attachments, () => {
      this.#relist('new');
      return this.#attachments;
    });
    this.#queue.add(concerned);
    this.#visitInside(this.#findInside(hints));
    if (hints.some(({ of }) => of === 'arrival')) this.#lookForNew();
    const sweepIs = chooseSweep(hints);
    if (sweepIs) this.#pacer.want(sweepIs === 'likely');
    this.#sweepWhenDue();
  }

  #findInside(hints: readonly Hint[]): ReadonlySet<string> {
    const names = new Set(hints.flatMap(hint => (hint.of === 'inside' ? hint.name : [])));
    if (names.size === 0) return names;
    const now = performance.now();
    // One of them may be new, but containers without an attachment of ours have such devices, too.
    if (!withDevices(this.#attachments, names).isComplete && this.#allowance.pause(now) <= 0) {
      this.#relist('new');
      this.#allowance.spend(performance.now(), performance.now() - now);
    }
    return withDevices(this.#attachments, devicesChangedInside(hints, this.#attachments)).keys;
  }

  /** A directory of configurations is written to for many reasons: only attachments of a list that is another one now are looked at. */
  #readChanged(): void {
    const before = this.#lists;
    this.#lists = readLists(this.#parts.confDir);
    const changed = changedLists(before, this.#lists);
    if (changed.size > 0) this.#relist('new');
    const { confDir, log } = this.#parts;
    for (const fields of describeListChanges(confDir, before, this.#lists, this.#attachments.values()))
      log('warn', 'a list has other plugins than before', fields);
    this.#restoreLists();
    const concerned = new Set(
      this.#checked.filter(key => {
        const one = this.#attachments.get(key);
        return one !== undefined && isOfList(one, changed);
      }),
    );
    this.#caretaker.reconsider(key => concerned.has(key));
    this.#queue.add(concerned);
    this.#keepLists();
  }

  get #listsFile(): string {
    return join(this.#parts.runtime.stateDir, 'history', 'lists');
  }

  #keepLists(): void {
    try {
      keepLists(this.#listsFile, this.#parts.confDir, this.#lists);
    } catch (error) {
      this.#parts.log('warn', 'what changes in lists while no daemon runs will not be noticed', {
        problem: describeError(error),
      });
    }
  }

  /** What is logged of a list that was restored names the pods that were made in between. */
  #restoreLists(): void {
    const { confDir, log } = this.#parts;
    const damaged = this.#lists;
    const tell = (problem: string, fields: LogFields) =>
      log('warn', 'a list cannot get its plugins back', { ...fields, problem });
    if (!this.#restorer.restore(damaged, this.#settings().lists, tell)) return;
    this.#lists = readLists(confDir);
    this.#relist('new');
    for (const fields of describeListChanges(confDir, damaged, this.#lists, this.#attachments.values()))
      log('warn', 'a list has got its plugins back', { ...fields, advice: LEAVE_OUT });
  }
}

/** Whether an operator or another program took a plugin out, no file tells. */
const LEAVE_OUT = 'to leave a plugin out, write "catena": {"lists": "tell"} into the list as well';

/** More hints than this are as good as "everything". */
const MAX_PENDING = 10_000;

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
      if (file !== undefined && !this.#notes.has(file)) this.#notes.set(file, noteOf(one, this.#runtime));
    }
  }

  /** @param now milliseconds of one clock */
  has(one: WatchedAttachment, now: number): boolean {
    const file = theirFile(one);
    if (file === undefined) return false;
    if (!isNoteGone(one, this.#notes.get(file), this.#runtime)) {
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
  return one.stateDir === undefined ? fileOf(one) : undefined;
}

/** Deletions per round: none of them is urgent. */
const DELETED_AT_ONCE = 8;
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
class Leftovers {
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

  /** Attachments that outlived their namespace, as of the last round; deletions by outcome, since the daemon began to watch. */
  get state(): Required<Pick<WatchState, 'outlived' | 'deletions'>> {
    return { outlived: this.#known.size, deletions: this.#deletions };
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
    for (const gone of chosen.slice(0, DELETED_AT_ONCE)) this.#due.set(gone.one.key, gone);
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
