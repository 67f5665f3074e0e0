// How does the daemon keep watch over the attachments of this host?

import { join } from 'node:path';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { VisitQueue } from '../chain/run/visits.ts';
import { runDir } from '../cni/directories.ts';
import { describeError } from '../cni/errors.ts';
import type { LogFields, LogLevel } from '../log.ts';
import { holdFlock } from '../sys/flock.ts';
import { letGoFirst } from '../wait.ts';
import { attachmentLister, fileOf, type WatchedAttachment } from './attachments.ts';
import { BegunDeletions } from './begun-deletions.ts';
import { Caretaker, type CaretakerEvents, type Work } from './caretaker.ts';
import { chooseConcerned, chooseSweep, devicesChangedInside, type Hint, withDevices } from './hints.ts';
import { Leftovers } from './leftovers.ts';
import { Credit, makeTimers, SweepPacer, startRounds, visitInside } from './pacing.ts';
import { isPodHeld, podLister, withPods } from './pods.ts';
import { changedLists, isOfList, policyOf, readLists } from './policy.ts';
import type { WatchSettings } from './settings.ts';
import { openSources } from './sources.ts';
import type { WatchState } from './state.ts';

/** What the watch needs of the daemon. */
export interface WatchParts extends CaretakerEvents {
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
  log(level: LogLevel, message: string, fields?: LogFields): void;
}

/** A watch that runs in the background. */
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
  const takeSeat = (): void => {
    if (watch || settings.policy === 'off') return;
    try {
      release ??= holdFlock(lockOf(parts), { mode: 0o600, directoryMode: 0o700 });
      if (release) watch = openWatch(parts, () => settings);
    } catch (error) {
      parts.log('warn', 'cannot watch for changes of attachments', { problem: describeError(error) });
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

function lockOf({ runtime }: WatchParts): string {
  return join(runDir(runtime.env), 'watch.lock');
}

/** A watch that has its sockets. */
interface Watch {
  readonly state: Omit<WatchState, 'policy'>;
  /** Policies have changed: what was given up is tried again. */
  reconsider(): void;
  close(): Promise<void>;
}

function openWatch(parts: WatchParts, settings: () => WatchSettings): Watch {
  const end = new AbortController();
  const { signal } = parts.runtime;
  const runtime = { ...parts.runtime, signal: signal ? AbortSignal.any([signal, end.signal]) : end.signal };
  const doubted = new WeakSet<object>();
  const list = attachmentLister([parts.runtime.stateDir, ...parts.journals], parts.cacheDir, file =>
    doubted.has(file),
  );
  const { later, once, clear } = makeTimers(end.signal);
  const pods = podLister(parts.podsDir);
  const deletions = new BegunDeletions(runtime);
  let attachments = new Map<string, WatchedAttachment>();
  let lists = readLists(parts.confDir);
  let lost = 0;
  const ownPolicy = (one: WatchedAttachment) => policyOf(one, lists, settings().policy);
  const caretaker = new Caretaker(
    { ...parts, runtime },
    {
      find: key => attachments.get(key),
      policyOf: ownPolicy,
      workOn,
      doubt(one) {
        doubted.add(fileOf(one));
        lookForNew();
      },
      again: (key, afterMs) => later(() => queue.add([key]), afterMs),
    },
  );
  const leftovers = new Leftovers({
    runtime,
    policyOf: ownPolicy,
    deleted: one => parts.acted('deleted', one, ''),
    traced: parts.traced,
    log: parts.log,
  });
  const idle = () => letGoFirst(() => parts.isBusy() && !end.signal.aborted, YIELD_MS);
  const afterCalls = (work: () => void) => () => void idle().then(() => end.signal.aborted || work());
  const queue = new VisitQueue((key, rest) => caretaker.visit(key, rest), {
    atOnce: AT_ONCE,
    groupOf: key => attachments.get(key)?.id.network ?? '',
    idle,
  });
  /** Those that are not checked in parts. */
  let checked: readonly string[] = [];
  const relist = (scope: 'all' | 'new'): void => {
    attachments = withPods(list(scope), pods(scope));
    checked = [...attachments.values()].flatMap(({ key, isCheckedInParts }) => (isCheckedInParts ? [] : key));
    caretaker.forgetAllBut(new Set(checked));
    deletions.look(attachments.values());
  };
  function workOn(one: WatchedAttachment): Work | undefined {
    if (parts.isInCall(one.id.containerId) || (one.pod && isPodHeld(one.pod))) return 'in progress';
    return deletions.has(one, performance.now()) ? 'being deleted' : undefined;
  }

  const pacer = new SweepPacer();
  const credit = new Credit(INSIDE_SHARE);
  const visit = async (key: string): Promise<void> => {
    queue.add([key]);
    await queue.settled();
  };
  const inside = visitInside({ credit, visit, found: () => caretaker.found, later });
  const findInside = (hints: readonly Hint[]): ReadonlySet<string> => {
    const names = new Set(hints.flatMap(hint => (hint.of === 'inside' ? hint.name : [])));
    if (names.size === 0) return names;
    const now = performance.now();
    // One of them may be new, but containers without an attachment of ours have such devices, too.
    if (!withDevices(attachments, names).isComplete && credit.pause(now) <= 0) {
      relist('new');
      credit.spend(performance.now(), performance.now() - now);
    }
    return withDevices(attachments, devicesChangedInside(hints, attachments)).keys;
  };
  let isSweeping = false;
  const sweepWhenDue = (): void => {
    const pause = isSweeping ? undefined : pacer.due(performance.now());
    if (pause === undefined) return;
    if (pause > 0) later(sweepWhenDue, pause);
    else void sweep();
  };
  const sweep = async (): Promise<void> => {
    isSweeping = true;
    pacer.begun();
    await idle();
    const startedAt = performance.now();
    const before = caretaker.found;
    relist('all');
    queue.add(checked);
    await queue.settled();
    const now = performance.now();
    pacer.ended(now, now - startedAt, caretaker.found === before);
    isSweeping = false;
    sweepWhenDue();
  };

  const lookForNew = once(
    afterCalls(() => relist('new')),
    ARRIVAL_MS,
  );
  let pending: Hint[] = [];
  const actOnPending = (): void => {
    const hints = pending;
    pending = [];
    const concerned = chooseConcerned(hints, attachments, () => {
      relist('new');
      return attachments;
    });
    queue.add(concerned);
    inside(findInside(hints));
    if (hints.some(({ of }) => of === 'arrival')) lookForNew();
    const sweepIs = chooseSweep(hints);
    if (sweepIs) pacer.want(sweepIs === 'likely');
    sweepWhenDue();
  };
  const note = (hints: readonly Hint[]): void => {
    if (pending.length === 0) later(afterCalls(actOnPending), DEBOUNCE_MS);
    // One of each kind is enough, however many there are.
    if (pending.length < MAX_PENDING) pending.push(...hints);
    else if (!pending.some(({ of }) => of === 'all'))
      pending.push({ of: 'all', isLikely: true, why: 'many changes' });
  };

  const reconsider = (): void => {
    caretaker.reconsider(() => true);
    pacer.want(false);
    sweepWhenDue();
  };
  /** A directory of configurations is written to for many reasons: only attachments of a list that is another one now are looked at. */
  const readChanged = (): void => {
    const before = lists;
    lists = readLists(parts.confDir);
    const changed = changedLists(before, lists);
    const concerned = new Set(
      checked.filter(key => {
        const one = attachments.get(key);
        return one !== undefined && isOfList(one, changed);
      }),
    );
    caretaker.reconsider(key => concerned.has(key));
    queue.add(concerned);
  };
  relist('all');
  const closeSources = openSources(parts.confDir, {
    hints: note,
    lost(why) {
      lost += 1;
      parts.log('info', 'notifications of changes were lost: every attachment is checked', { problem: why });
      note([{ of: 'all', isLikely: true, why }]);
    },
    interrupted(why) {
      parts.log('warn', 'cannot listen for changes at present: only the timer finds damage', {
        problem: why,
      });
    },
    missed(why) {
      parts.log('info', 'changes inside of namespaces were not heard for a while', { problem: why });
      note([{ of: 'all', isLikely: false, why }]);
    },
    configured: once(afterCalls(readChanged), DEBOUNCE_MS),
  });
  const stopRounds = startRounds({
    everyMs: () => settings().everyMs,
    list() {
      relist('all');
      return checked;
    },
    checkedAt: key => caretaker.checkedAt(key),
    visit,
    atEnd: () => leftovers.collect(attachments.values(), settings().leftoverMs),
  });
  // While no daemon listened anything may have changed, and a repair by one that was killed may be incomplete.
  pacer.want(true);
  later(sweepWhenDue, DEBOUNCE_MS);
  return {
    get state() {
      const { count, deletions } = leftovers;
      return { attachments: attachments.size, lost, outlived: count, deletions, ...caretaker.state };
    },
    reconsider,
    async close() {
      closeSources();
      clear();
      const done = Promise.all([stopRounds(), queue.close(), leftovers.close()]);
      // What hangs is ended, as its next visit finds it.
      await Promise.race([done, Bun.sleep(FINISH_MS)]);
      end.abort();
      await done;
    },
  };
}

/** More hints than this are as good as "everything". */
const MAX_PENDING = 10_000;
