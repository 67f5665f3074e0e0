// How are the settings of an attachment changed while its container runs, and what happens to a change whose runner died?
//
// One transaction over all plugins of the chain: attachments/README.md, "Changes". A plugin may not be able to go back, for example because
// another attachment has taken a port since. Either way the settings on record are those in the kernel.

import { isDeepStrictEqual } from 'node:util';
import {
  type Held,
  type HeldKnown,
  hold,
  type KnownAttachment,
  readAttachment,
  type Settings,
} from '../attachments/store.ts';
import { type AttachmentId, describeAttachment } from '../cni/attachment.ts';
import { cacheDirOf } from '../cni/directories.ts';
import { CHANGE_VARIABLE, type ChangeMode } from '../cni/env.ts';
import { CniError, ErrorCode, invalidConfig, orTell, toCniError } from '../cni/errors.ts';
import { type ChangeReply, FORMER, parseChangeReply } from '../cni/invocation.ts';
import { isObject, type JsonObject, parseObject } from '../cni/json.ts';
import { convertResult, type ResultOf } from '../cni/result.ts';
import {
  type Conflist,
  declaredCapabilities,
  isSinglePlugin,
  type PluginEntry,
  parseFrozen,
} from './config/conflist.ts';
import { findExecutable, isOwnExecutable } from './config/find-plugin.ts';
import { isAbandoned, JUST_DELETED, noteOf, undoIfDeleted } from './records/foreign.ts';
import { findCached } from './records/known-add.ts';
import { buildRequest, callPlugins, withDetails } from './run/call-plugins.ts';
import {
  type Attachment,
  type ChainRuntime,
  hasItsInterface,
  holdCall,
  withRecordedDirs,
} from './run/runtime.ts';
import { inTurn } from './run/turns.ts';

/** What is to change; everything else stays. */
export interface Change {
  /** Arguments by capability, each replaced as a whole; null takes one away. */
  readonly capabilityArgs?: JsonObject;
  /** Options by plugin, which is named by its type or, if several have that type, by its index; null takes an option away. */
  readonly options?: Readonly<Record<string, JsonObject>>;
}

/**
 * Changes an attachment in place: what its plugins get by capability, and options of its plugins. Interface, addresses and
 * connections stay. If a plugin fails, those before it change back, and its error is thrown. CHECK, DEL and repair use the new
 * settings afterwards. Waits while another operation works on the attachment.
 * @param mayChange told which plugins would be called once each has said that it can make the change; false changes nothing
 * @returns the result of the attachment, in the list's version
 * @throws CniError 3 for an attachment that neither journal nor cache has, 7 for what cannot be changed, 8 without its namespace, 11
 *   while another process works on it; of the plugin that failed, with the failures of the undo in its details
 */
export function changeNetwork(
  id: AttachmentId,
  change: Change,
  runtime: ChainRuntime,
  mayChange: (to: Goal, plugins: readonly number[]) => boolean = () => true,
): Promise<ResultOf> {
  return inTurn(id, runtime, async () => {
    const { stateDir } = runtime;
    if (stateDir === undefined) throw unknown(id, 'there is no journal');
    const held = await holdToChange(id, runtime);
    const { record } = held;
    const work: PutBack = {};
    const changing = settleHeld(held, runtime, work).then(settled => {
      if (settled === undefined) throw unknown(id, JUST_DELETED);
      refuseUnreachable(held);
      return changeHeld(held, change, work, withRecordedDirs(runtime, settled), mayChange);
    });
    await whileHeld(held, changing);
    if (await wasDeleted(record, work, runtime)) throw unknown(id, JUST_DELETED);
    return changing;
  });
}

async function changeHeld(
  held: HeldKnown,
  change: Change,
  work: PutBack,
  runtime: ChainRuntime,
  mayChange: (to: Goal, plugins: readonly number[]) => boolean,
): Promise<ResultOf> {
  const { record } = held;
  const from = goalOf(record, record);
  const settings = applyChange(record, change);
  const to = goalOf(record, settings);
  const before = record.result ?? {};
  const plugins = await planChange(from, to, before, runtime);
  if (!mayChange(to, plugins) || plugins.length === 0)
    return convertResult(before, from.list.version, 'recorded result') as ResultOf;
  held.beginChange({ to: settings, plugins });
  work.begun ??= performance.now();
  const begun: number[] = [];
  let result: JsonObject;
  try {
    result = await changeParts({ from, to }, plugins, before, runtime, index => begun.unshift(index));
    held.commit({ ...settings, result });
  } catch (error) {
    throw await undo(error, held, { from: to, to: from }, begun, before, runtime);
  }
  return result as ResultOf;
}

async function undo(
  error: unknown,
  held: HeldKnown,
  back: Way,
  begun: readonly number[],
  before: JsonObject,
  runtime: ChainRuntime,
): Promise<unknown> {
  try {
    // The signal that stopped the change must not stop its undo.
    await changeParts(back, begun, before, { ...runtime, signal: undefined });
    held.abandon();
    return error;
  } catch (failure) {
    orTell(runtime.onWarning, () => held.leave());
    const { message } = toCniError(failure);
    return withDetails(
      error,
      `undoing it failed too, and is tried again by the next verb or catena repair: ${message}`,
    );
  }
}

async function holdToChange(id: AttachmentId, runtime: ChainRuntime): Promise<HeldKnown> {
  // Before its entry is read: a DEL removes the note first.
  const note = noteOf(id, runtime);
  const held = await hold(id, holdCall(runtime, 'change'));
  try {
    if (held.past?.stands === false) throw unknown(id, 'its ADD or DEL was interrupted; run catena repair');
    if (held.known) return held.known;
    const cached = readAttachment({ cacheDir: cacheDirOf(runtime) }, id);
    if (!cached?.source) throw unknown(id, "libcni's cache has no settings of its ADD");
    if (!(await hasItsInterface(cached, runtime)))
      throw unknown(id, `namespace "${cached.netns}" does not have the interface of its ADD; run DEL`);
    return held.adopt(cached, note);
  } catch (error) {
    held.release();
    throw error;
  }
}

function refuseUnreachable({ record, past }: HeldKnown): void {
  const { netns } = record;
  const place = past.netns();
  if (place === 'same') return;
  const state = place === 'gone' ? 'no longer exists' : 'is no longer the namespace of its ADD';
  throw new CniError(
    ErrorCode.invalidNetns,
    `Cannot change ${describeAttachment(record)}: "${netns}" ${state}; run DEL`,
  );
}

function unknown(id: AttachmentId, why: string): CniError {
  return new CniError(ErrorCode.unknownContainer, `Cannot change ${describeAttachment(id)}: ${why}`);
}

/**
 * Undoes or finishes the change of an attachment if its runner died. Waits while the runner lives.
 * @throws CniError of the plugin that can neither go back nor forth; 11 while another process works on the attachment
 */
export async function settleChange(id: AttachmentId, runtime: ChainRuntime): Promise<void> {
  const work: PutBack = {};
  const held = await hold(id, holdCall(runtime, 'change'));
  const { record, known } = held;
  const settling = known && needsWork(known, runtime) && settleHeld(known, runtime, work);
  await whileHeld(held, settling);
  if (!(record && (await wasDeleted(record, work, runtime)))) await settling;
}

/** Without its namespace an attachment cannot be changed, and DEL removes whatever it has. */
function needsWork({ record, past }: HeldKnown, runtime: ChainRuntime): boolean {
  return past.kind === 'changing' && (past.netns() === 'same' || isAbandoned(record, runtime));
}

/** What plugins have put back. */
export interface PutBack {
  /** When the first of them was told to, by the clock of `performance`; undefined before. */
  begun?: number;
}

/**
 * The same for an attachment that is held.
 * @returns its record afterwards; undefined, and its note is dropped, if another runtime made it and has deleted it since
 */
export async function settleHeld(
  held: HeldKnown,
  runtime: ChainRuntime,
  work: PutBack,
): Promise<KnownAttachment | undefined> {
  const { record } = held;
  if (isAbandoned(record, runtime)) {
    held.forget();
    return undefined;
  }
  if (record.change === undefined) return record;
  const reaching = withRecordedDirs(runtime, record);
  await held.awaitOrphans();
  work.begun = performance.now();
  await goBackOrOn(held, reaching);
  return held.record;
}

async function goBackOrOn(held: HeldKnown, runtime: ChainRuntime): Promise<void> {
  const { record } = held;
  const { change, result = {} } = record;
  const { plugins = [], to: settings = record } = change ?? {};
  const [before, after] = [goalOf(record, record), goalOf(record, settings)];
  try {
    await changeParts({ from: after, to: before }, [...plugins].reverse(), result, runtime);
    held.abandon();
  } catch (cannotGoBack) {
    try {
      const on = await changeParts({ from: before, to: after }, plugins, result, runtime);
      held.commit({ ...settings, result: on });
    } catch (cannotGoOn) {
      const { message } = toCniError(cannotGoOn);
      throw withDetails(cannotGoBack, `an interrupted change cannot be finished either: ${message}`);
    }
  }
}

/**
 * Deletes what a change has put back if another runtime made the attachment, and has deleted it since.
 * @param record as it was before the work
 */
async function wasDeleted(
  record: KnownAttachment,
  { begun }: PutBack,
  runtime: ChainRuntime,
): Promise<boolean> {
  if (!record.foreign || begun === undefined) return false;
  const reaching = withRecordedDirs(runtime, record);
  // The change has written it again, with the new settings.
  return undoIfDeleted(findCached(record, reaching) ?? record, record.generation, reaching, begun);
}

/** Releases an attachment once the work on it has ended, in whichever way. */
async function whileHeld(held: Held, work: unknown): Promise<void> {
  await Promise.allSettled([work]);
  held.release();
}

/**
 * The settings after a change.
 * @throws CniError 7 for a plugin that the list does not have, and for a capability that none of its plugins declares
 */
export function applyChange(settings: Settings, { capabilityArgs = {}, options = {} }: Change): Settings {
  const list = parseFrozen(settings.source);
  refuseUndeclared(list, capabilityArgs);
  return {
    capabilityArgs: merge(settings.capabilityArgs, capabilityArgs),
    source: Object.keys(options).length ? withOptions(settings.source, list, options) : settings.source,
  };
}

function refuseUndeclared(list: Conflist, given: JsonObject): void {
  const declared = declaredCapabilities(list);
  const stray = Object.keys(given).find(capability => !declared.includes(capability));
  if (stray === undefined) return;
  const found = declared.length ? `declared are ${quoteAll(declared)}` : 'none is declared';
  throw refusal(`no plugin of network "${list.name}" declares capability "${stray}"; ${found}`);
}

function withOptions(source: string, list: Conflist, options: Readonly<Record<string, JsonObject>>): string {
  const object = parseObject(source, 'configuration');
  const single = isSinglePlugin(object);
  const entries = list.plugins.map(({ conf }) => conf);
  for (const [plugin, given] of Object.entries(options)) {
    if (!isObject(given)) throw refusal(`the options of "${plugin}" must be an object`);
    const index = indexOf(list, plugin);
    entries[index] = merge(entries[index] ?? {}, given);
  }
  return JSON.stringify(single ? entries[0] : { ...object, plugins: entries });
}

function indexOf({ name, plugins }: Conflist, plugin: string): number {
  const places = plugins.flatMap(({ type }, index) => (type === plugin ? [index] : []));
  const [place = plugins.findIndex((_, index) => String(index) === plugin)] = places;
  if (places.length > 1)
    throw refusal(
      `network "${name}" has several plugins "${plugin}"; name one by its index: ${places.join(', ')}`,
    );
  if (place >= 0) return place;
  throw refusal(
    `network "${name}" has no plugin "${plugin}"; it has ${quoteAll(plugins.map(({ type }) => type))}`,
  );
}

/** Plugins read their keys in any case, as the reference's do. */
function merge(before: JsonObject, given: JsonObject): JsonObject {
  const replaced = new Set(Object.keys(given).map(key => key.toLowerCase()));
  const kept = Object.entries(before).filter(([key]) => !replaced.has(key.toLowerCase()));
  return Object.fromEntries([...kept, ...Object.entries(given).filter(([, value]) => value !== null)]);
}

function quoteAll(names: readonly string[]): string {
  return [...new Set(names)].map(name => `"${name}"`).join(', ');
}

function refusal(problem: string): CniError {
  return invalidConfig(`Cannot change the attachment: ${problem}`);
}

/**
 * Indexes of the plugins whose request changes, after each has said that it can make the change.
 * @throws CniError 7 for a foreign plugin and for an option that only ADD can set; of a plugin that cannot make the change
 */
async function planChange(
  from: Goal,
  to: Goal,
  result: JsonObject,
  runtime: ChainRuntime,
): Promise<number[]> {
  const concerned = [...to.list.plugins.keys()].filter(
    index => !isDeepStrictEqual(requestOf(from, index), requestOf(to, index)),
  );
  for (const index of concerned) refuseForeign(to, index, runtime);
  for (const index of concerned) {
    const { options } = await callOne({ from, to }, index, asResultOf(to, result), 'look', runtime);
    refuseFixed(from.list.plugins[index], to.list.plugins[index], options);
  }
  return concerned;
}

function requestOf({ list, capabilityArgs }: Goal, index: number): JsonObject {
  return buildRequest(list, list.plugins[index] as PluginEntry, { capabilityArgs });
}

/** Only its own DEL and ADD could change what a foreign plugin made, and they may recreate the interface. */
function refuseForeign({ list }: Goal, index: number, runtime: ChainRuntime): void {
  const { type } = list.plugins[index] as PluginEntry;
  const { path, stat } = findExecutable(type, runtime);
  const { isOwn = isOwnExecutable } = runtime;
  if (isOwn(path, stat)) return;
  throw refusal(
    `plugin "${type}" ("${path}") is not Catena's and changes nothing in place; install ours for it (catena swap), or run DEL and ADD`,
  );
}

function refuseFixed(
  { conf: before }: PluginEntry = NONE,
  { type, conf: after }: PluginEntry = NONE,
  changeable: readonly string[],
): void {
  const allowed = new Set(changeable.map(key => key.toLowerCase()));
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  const fixed = [...keys].find(
    key => !allowed.has(key.toLowerCase()) && !isDeepStrictEqual(before[key], after[key]),
  );
  if (fixed === undefined) return;
  throw invalidConfig(
    `Cannot change "${fixed}" of plugin "${type}" while the container runs; it can change ${changeable.join(', ') || 'capabilities only'}`,
  );
}

const NONE: PluginEntry = { type: '', capabilities: {}, conf: {} };

/** An attachment on the way to settings, which may be those that it had. */
interface Goal {
  readonly attachment: Attachment;
  readonly list: Conflist;
  readonly capabilityArgs: JsonObject;
}

/** Where a change comes from and where it goes, which may be back. */
interface Way {
  readonly from: Goal;
  readonly to: Goal;
}

/** The attachment of a record with other settings. @throws CniError 6 and 7 for a list that cannot be used */
function goalOf(record: KnownAttachment, { capabilityArgs, source }: Settings): Goal {
  return { attachment: { ...record, capabilityArgs }, list: parseFrozen(source), capabilityArgs };
}

/**
 * Has plugins change their part, in the given order, each with the result of the one before.
 * @param onCall called with the index of each plugin before its call
 * @returns the last result
 * @throws CniError of the first plugin that fails
 */
async function changeParts(
  way: Way,
  plugins: readonly number[],
  result: JsonObject,
  runtime: ChainRuntime,
  onCall: (index: number) => void = () => {},
): Promise<JsonObject> {
  let last = asResultOf(way.to, result);
  for (const index of plugins) {
    onCall(index);
    last = (await callOne(way, index, last, 'do', runtime)).changed;
  }
  return last;
}

function asResultOf({ list }: Goal, result: JsonObject): JsonObject {
  return convertResult(result, list.version, 'recorded result');
}

/** @param mode `look`: it only tells whether it could change its part, and which options it can change */
async function callOne(
  { from, to: { attachment, list, capabilityArgs } }: Way,
  index: number,
  prevResult: JsonObject,
  mode: ChangeMode,
  runtime: ChainRuntime,
): Promise<ChangeReply> {
  const entry = list.plugins[index] as PluginEntry;
  const request = {
    ...buildRequest(list, entry, { prevResult, capabilityArgs }),
    [FORMER]: requestOf(from, index),
  };
  const call = { list, verb: 'CHECK', order: [index], attachment, requestFor: () => request } as const;
  const asking = { ...runtime, env: { ...(runtime.env ?? process.env), [CHANGE_VARIABLE]: mode } };
  for await (const reply of callPlugins({ ...call, read: parseChangeReply }, asking)) {
    if ('error' in reply) throw reply.error;
    if (reply.value) return reply.value;
  }
  throw refusal(
    `the executable of plugin "${entry.type}" is of a release that changes nothing in place; run DEL and ADD`,
  );
}
