// How are the settings of an attachment changed while its container runs?
//
// One transaction over all plugins of the chain. A note has the intent before the first plugin is called, and the rename of libcni's entry
// commits the change after the last. Until then it is undone, by a failure as well as by the process that finds the note of a dead runner.
import { type HeldKnown, hold, readAttachment } from '../../attachments/store.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { CniError, ErrorCode, toCniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { convertResult, type ResultOf } from '../../cni/result.ts';
import { JUST_DELETED, noteOf } from '../records/foreign.ts';
import { hasItsInterface } from '../records/held-attachment.ts';
import { withDetails } from '../run/plugin-outcome.ts';
import { type ChainRuntime, cacheDirOf, holdCall, withRecordedDirs } from '../run/runtime.ts';
import { inTurn } from '../run/turns.ts';
import { changeParts, type Goal, goalOf } from './call.ts';
import { planChange } from './plan.ts';
import { applyChange, type Change } from './settings.ts';
import { type PutBack, settleHeld, wasDeleted, whileHeld } from './settle.ts';

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
    const work: Work = { mayChange };
    const changing = settleAndChange(held, change, work, runtime);
    await whileHeld(held, changing);
    if (await wasDeleted(record, work, runtime)) throw unknown(id, JUST_DELETED);
    return changing;
  });
}

/** A change of an attachment that is held. */
interface Work extends PutBack {
  readonly mayChange: (to: Goal, plugins: readonly number[]) => boolean;
}

async function settleAndChange(
  held: HeldKnown,
  change: Change,
  work: Work,
  runtime: ChainRuntime,
): Promise<ResultOf> {
  const record = await settleHeld(held, runtime, work);
  if (record === undefined) throw unknown(held.record, JUST_DELETED);
  refuseUnreachable(held);
  return changeHeld(held, change, work, { ...withRecordedDirs(runtime, record), cacheDir: record.cacheDir });
}

async function changeHeld(
  held: HeldKnown,
  change: Change,
  work: Work,
  runtime: ChainRuntime,
): Promise<ResultOf> {
  const { record } = held;
  const from = goalOf(record, record);
  const settings = applyChange(record, change);
  const to = goalOf(record, settings);
  const before = record.result ?? {};
  const plugins = await planChange(from, to, before, runtime);
  if (!work.mayChange(to, plugins) || plugins.length === 0)
    return convertResult(before, from.list.version, 'recorded result') as ResultOf;
  held.beginChange({ to: settings, plugins });
  work.begun ??= performance.now();
  const begun: number[] = [];
  let result: JsonObject;
  try {
    result = await changeParts(to, plugins, before, runtime, index => begun.unshift(index));
    held.commit({ ...settings, result });
  } catch (error) {
    throw await undo(error, held, { from, begun, before }, runtime);
  }
  return result as ResultOf;
}

async function undo(
  error: unknown,
  held: HeldKnown,
  {
    from,
    begun,
    before,
  }: { readonly from: Goal; readonly begun: readonly number[]; readonly before: JsonObject },
  runtime: ChainRuntime,
): Promise<unknown> {
  try {
    // The signal that stopped the change must not stop its undo.
    await changeParts(from, begun, before, { ...runtime, signal: undefined });
    held.abandon();
    return error;
  } catch (failure) {
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
    const cached = readAttachment(cacheDirOf(runtime), id);
    if (cached?.source === undefined) throw unknown(id, "libcni's cache has no settings of its ADD");
    if (!(await hasItsInterface(cached, runtime)))
      throw unknown(id, `namespace "${cached.netns}" does not have the interface of its ADD; run DEL`);
    return held.adopt(cached, runtime.pluginDirs, note);
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
  throw new CniError(ErrorCode.invalidNetns, `Cannot change ${nameOf(record)}: "${netns}" ${state}; run DEL`);
}

function unknown(id: AttachmentId, why: string): CniError {
  return new CniError(ErrorCode.unknownContainer, `Cannot change ${nameOf(id)}: ${why}`);
}

function nameOf({ network, containerId, ifname }: AttachmentId): string {
  return `interface "${ifname}" of container "${containerId}" on network "${network}"`;
}
