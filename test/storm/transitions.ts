// What do the answers of a round promise from now on?

import type { Outcome } from './actors/outcome.ts';
import type { Action, Add, Change, Del, Gc, Violation } from './history.ts';
import { type Entry, isUnsure, type Model, ratesOf } from './model.ts';
import { keyOf, NETS, podId } from './networks.ts';

/** An action of a round with its answer, and what was so at its beginning. */
export interface Done {
  readonly action: Action;
  readonly outcome: Outcome;
  /** Keys that the callers knew of when it began; with an old list, of some rounds before. */
  readonly known: ReadonlySet<string>;
  /** Keys whose ADD had begun in this round when it began. */
  readonly begun: ReadonlySet<string>;
  /** Milliseconds, by one clock. */
  readonly started: number;
  readonly ended: number;
  /** The namespace at its path. */
  readonly generation: number;
  /** Its attachment stood, and nothing had happened to it. */
  readonly wasSound: boolean;
}

/** An attachment that stands and that nothing has happened to. */
export function isSound({ state, damaged, leaseLost }: Entry): boolean {
  return state === 'present' && !damaged && !leaseLost;
}

/** CHECKs that refused what stands and what nothing has happened to. */
export function findWrongChecks(model: Model, round: readonly Done[]): Violation[] {
  const lost = round.some(({ action }) => action.kind === 'loss' || action.kind === 'swap');
  return round.flatMap(({ action, outcome, generation, wasSound }) => {
    if (action.kind !== 'check' || !wasSound || outcome.how !== 'failed' || lost) return [];
    const entry = model.entry(action);
    const isSame = model.isInPlace(entry) && entry.generation === generation;
    if (!isSound(entry) || entry.by === 'reference' || !isSame || round.some(one => isOn(one.action, entry)))
      return [];
    return [{ rule: 'CHECK refuses what stands', text: `${keyOf(entry)} (${entry.by}): ${outcome.said}` }];
  });
}

/** Takes the answers of a round into the model. */
export function settle(model: Model, round: readonly Done[]): void {
  const done = round.filter(({ outcome }) => outcome.how !== 'skipped');
  const losses = new Set(done.flatMap(({ action }) => (action.kind === 'loss' ? [action.what] : [])));
  for (const entry of model.entries.values()) {
    const own = done.filter(({ action }) => isOn(action, entry));
    const { journalled } = entry;
    if (own.length) takeAnswers(model, entry, own);
    // A runtime's DEL and a repair know nothing of each other.
    const repaired = done.some(({ action }) => action.kind === 'repair' && action.net === entry.net);
    if (own.length && journalled && repaired && entry.state === 'absent' && entry.staleRecord)
      entry.state = 'unknown';
    for (const one of done) if (one.action.kind === 'gc') takeCollection(entry, one.action, one, own);
    for (const one of done) {
      if (own.length === 0 && losses.size === 0) takeUpkeep(model, entry, one.action, one.outcome);
    }
    takeLosses(entry, losses);
  }
}

function isOn(action: Action, entry: Entry): boolean {
  const { kind } = action;
  return (
    (kind === 'add' || kind === 'del' || kind === 'set') &&
    action.pod === entry.pod &&
    action.net === entry.net
  );
}

/** Answers to the callers of the attachment itself. */
function takeAnswers(model: Model, entry: Entry, own: readonly Done[]): void {
  const adds = own.filter(({ action }) => action.kind === 'add');
  const dels = own.filter(({ action }) => action.kind === 'del');
  if (adds.length + dels.length === 0) {
    for (const change of own) takeChange(entry, change.action as Change, change.outcome);
    return;
  }
  const before = entry.state;
  for (const add of adds) noteCaller(model, entry, add);
  const succeeded = adds.filter(({ outcome }) => outcome.how === 'ok');
  if (adds.length && dels.length) {
    // Any order is right, but not a half of each, unless it is unknown in which namespace.
    for (const add of succeeded) takeResult(model, entry, add);
    const isWhole = own.every(({ outcome }) => outcome.how === 'ok') && !entry.placeUnsure;
    entry.state = isWhole ? 'whole' : 'unknown';
    return;
  }
  if (dels.length) {
    takeDels(entry, dels);
    return;
  }
  const last = succeeded.at(-1);
  if (last !== undefined) {
    takeResult(model, entry, last);
    entry.state = model.isInPlace(entry) ? 'present' : 'unknown';
    return;
  }
  if (before === 'present') {
    // How far it came is unknown, and it sets the limits of the list.
    entry.rates = [...new Set([...entry.rates, ...ratesOf(entry.net)])];
    // Where its namespace is gone, ADD first takes down what was there.
    if (!model.isInPlace(entry)) entry.state = 'unknown';
    return;
  }
  const undone = adds.every(({ action, outcome }) => {
    return (
      (action as Add).by === 'command' && outcome.how === 'failed' && !outcome.undoFailed && !outcome.isBusy
    );
  });
  entry.state = before === 'absent' && undone && adds.length === 1 ? 'absent' : 'unknown';
}

/** All or nothing; only where it was killed, the caller does not know which. */
function takeChange(entry: Entry, { hostPort, rate }: Change, { how, undoFailed = false }: Outcome): void {
  if (how === 'ok') {
    if (hostPort !== undefined) Object.assign(entry, { hostPort, portUnsure: false });
    if (rate !== undefined) entry.rates = [rate];
  } else if (how === 'killed' || undoFailed) {
    // What another runtime made has a record as long as a change is unfinished.
    entry.journalled = true;
    entry.portUnsure ||= hostPort !== undefined;
    if (rate !== undefined) entry.rates = [...new Set([...entry.rates, rate])];
  }
}

function noteCaller(model: Model, entry: Entry, { action, generation }: Done): void {
  if (entry.state === 'present') return;
  const { by, slot, hostPort } = action as Add;
  entry.placeUnsure = model.slot(slot).generation !== generation;
  Object.assign(entry, { by, slot, hostPort, generation, ofEarlierBoot: false, result: entry.result });
}

function takeResult(model: Model, entry: Entry, { action, outcome, generation }: Done): void {
  const { by, slot, hostPort } = action as Add;
  const journalled = by === 'command' || entry.journalled;
  Object.assign(entry, { by, slot, hostPort, generation, result: outcome.result, journalled });
  Object.assign(entry, { damaged: false, leaseLost: false, ofEarlierBoot: false, portUnsure: false });
  entry.rates = ratesOf(entry.net);
  entry.byReference &&= by === 'reference';
  entry.placeUnsure = model.slot(slot).generation !== generation;
  if (entry.placeUnsure) entry.state = 'unknown';
}

function takeDels(entry: Entry, dels: readonly Done[]): void {
  const ok = dels.find(({ outcome }) => outcome.how === 'ok');
  if (ok === undefined) {
    entry.state = 'unknown';
    return;
  }
  const { by } = ok.action as Del;
  entry.state = 'absent';
  // What the reference made, it takes down as a whole.
  entry.byReference = by === 'reference' && (entry.byReference || entry.by !== 'reference');
  entry.staleRecord = by !== 'command' && (entry.staleRecord || entry.journalled);
  entry.journalled = false;
}

/**
 * Whatever begins while a GC starts may still be before the moment from which on it leaves alone what is new: that is a
 * while after its process was started.
 */
const GC_START_SHARE = 0.5;

/** What was there before GC began and is not on its list may have gone, as a whole. */
function takeCollection(entry: Entry, gc: Gc, one: Done, own: readonly Done[]): void {
  const key = keyOf(entry);
  const { outcome, known, begun, started, ended } = one;
  if (entry.net !== gc.net || entry.state === 'absent' || known.has(key)) return;
  if (own.length === 0) {
    entry.state = outcome.how === 'ok' && entry.state !== 'unknown' ? 'whole' : 'unknown';
    return;
  }
  const add = own.findLast(({ action }) => action.kind === 'add');
  // It may have been taken for garbage where an ADD had begun before GC did.
  if (begun.has(key) || add === undefined || add.known.has(key)) entry.state = 'unknown';
  else if (add.started < started + (ended - started) * GC_START_SHARE && entry.state === 'present')
    entry.state = 'whole';
}

function takeUpkeep(model: Model, entry: Entry, action: Action, { how, result }: Outcome): void {
  if (action.kind !== 'repair' || action.net !== entry.net || how !== 'ok') return;
  if (model.isInPlace(entry) && isRepaired(entry, result)) entry.damaged = false;
}

/** What another process works on is skipped, and the report says so. */
function isRepaired({ pod, net }: Entry, report: unknown): boolean {
  const { attachments = [] } = (report ?? {}) as {
    attachments?: { containerId: string; ifname: string; state: string }[];
  };
  return attachments.some(
    one =>
      one.containerId === podId(pod) &&
      one.ifname === NETS[net].ifname &&
      ['sound', 'mended'].includes(one.state),
  );
}

function takeLosses(entry: Entry, losses: ReadonlySet<string>): void {
  if (losses.has('journal')) Object.assign(entry, { journalled: false, staleRecord: false });
  if (entry.state === 'absent') return;
  // With its record goes what would end a change that was killed.
  if (losses.has('rules') || (losses.has('journal') && isUnsure(entry))) entry.damaged = true;
  if (losses.has('leases')) {
    entry.leaseLost = true;
    entry.state = 'unknown';
  }
  if (losses.has('boot')) {
    entry.ofEarlierBoot = true;
    entry.state = 'unknown';
  }
}
