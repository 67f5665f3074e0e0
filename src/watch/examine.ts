// Are the attachments of a node as their ADD left them, and if not, what of each can be put back, and with which commands?
import { findHolder, pastOf } from '../attachments/store.ts';
import { listUses } from '../chain/config/conflist.ts';
import { DEL_WITHOUT_NOTE_MS, isNoteGone, isThere, noteOf } from '../chain/records/foreign.ts';
import { findConfigOfAdd, findRecord } from '../chain/records/known-add.ts';
import { checkNetwork, listToCheckBy } from '../chain/run/run.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import type { SegmentRunner } from '../chain/run/segment.ts';
import { type Rest, visitAll } from '../chain/run/visits.ts';
import { type AttachmentId, shortId, toId } from '../cni/attachment.ts';
import { argOf, renderCniArgs } from '../cni/env.ts';
import { ErrorCode, toCniError } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import { asWord } from '../net/interface.ts';
import { compareNetns } from '../sys/netns-identity.ts';
import { timeLimit } from '../wait.ts';
import { isPodUnsettled, runtimeFor, type WatchedAttachment } from './attachments.ts';
import { deviceNames } from './collect-gone.ts';

export type CheckOutcome =
  | { readonly state: 'sound' }
  | Damage
  /** Its namespace no longer exists, or its path is another one's. */
  | { readonly state: 'gone' }
  /** Some process works on it, or it is no longer what was listed. */
  | { readonly state: 'passed over' }
  /** No CHECK can be run; `unchecked`: the list says so. */
  | { readonly state: 'unknown'; readonly why: string; readonly hung?: true; readonly unchecked?: true };

/** CHECK reports that something is missing. */
export interface Damage {
  readonly state: 'drifted';
  readonly problem: string;
  /** Puts back what is missing, as `catena repair` does, unless a DEL has begun since. Never throws. */
  mend(runtime: ChainRuntime): Promise<Repaired>;
}

const PASSED_OVER: CheckOutcome = { state: 'passed over' };

/** The runtime that made it keeps no record here, so its DEL shows only in that the attachment is gone a moment later. */
const CONFIRM_MS = 300;

/**
 * Runs CHECK with the configuration of its ADD. Never throws.
 * @param rest waits, when something is missing, for what may be a DEL to end
 */
export async function examine(
  one: WatchedAttachment,
  runtime: ChainRuntime,
  rest: Rest,
): Promise<CheckOutcome> {
  const isTheirs = one.stateDir === undefined;
  const own = runtimeFor(one, runtime);
  if (isInWork(one, own)) return PASSED_OVER;
  if (isTheirs && one.netns === '') return { state: 'unknown', why: 'its cached result names no namespace' };
  const isGone = () => (isTheirs ? !isThere(one, own) : compareNetns(one.netns, one) !== 'same');
  if (isGone()) return { state: 'gone' };
  const list = listToCheckBy(findConfigOfAdd(one, own), own);
  if ('why' in list) return { state: 'unknown', ...list };
  // Which ADD made what is checked.
  const note = noteOf(one, own);
  const check = async (): Promise<CheckOutcome> => {
    try {
      await checkNetwork(list, one, own);
      return { state: 'sound' };
    } catch (thrown) {
      const { code, message, plugin } = toCniError(thrown);
      const hung = plugin?.ended === 'deadline' || undefined;
      if (!hung && (code === ErrorCode.tryAgainLater || runtime.signal?.aborted)) return PASSED_OVER;
      // A plugin that gives no answer, or cannot find one that it calls, says nothing of the attachment, and a repair would call it again.
      if (plugin && (code === ErrorCode.unknown || message.startsWith('Cannot find plugin')))
        return { state: 'unknown', why: message, ...defined({ hung }) };
      return { state: 'drifted', problem: message, mend: within => repair(one, note, within) };
    }
  };
  const first = await check();
  if (first.state !== 'drifted') return first;
  if (isTheirs) {
    const wait = note === undefined ? DEL_WITHOUT_NOTE_MS : CONFIRM_MS;
    await rest(wait);
    if (isGone()) return { state: 'gone' };
    if (isNoteGone(one, note, own) || isInWork(one, own)) return PASSED_OVER;
    const again = await check();
    return again.state === 'drifted' && isInWork(one, own) ? PASSED_OVER : again;
  }
  if (isInWork(one, own)) return PASSED_OVER;
  return isGone() ? { state: 'gone' } : first;
}

export interface Repaired {
  /** Undefined if it was not repaired because some process works on it or has deleted it. */
  readonly state: 'sound' | 'broken' | 'mended' | undefined;
  /** Why its plugins could not be called, or what is still missing. */
  readonly problem?: string;
}

async function repair(
  one: WatchedAttachment,
  note: string | undefined,
  runtime: ChainRuntime,
): Promise<Repaired> {
  const { repairOne } = await import('../chain/records/repair.ts');
  const own = runtimeFor(one, runtime);
  const isThat = one.stateDir === undefined ? isThere(one, own) : isCurrent(one, own);
  if (!isThat || isNoteGone(one, note, own)) return { state: undefined };
  const { state, plugins, why } = await repairOne(one, {}, own, note);
  const [problem = why] = plugins.flatMap(({ error }) => error?.message ?? []);
  return { state: state === 'skipped' ? undefined : state, ...defined({ problem }) };
}

/** Whether some process works on it, or it is no longer what was listed. */
function isInWork(one: WatchedAttachment, runtime: ChainRuntime): boolean {
  if (one.stateDir !== undefined && !isCurrent(one, runtime)) return true;
  return one.pod !== undefined && isPodUnsettled(one.pod);
}

/** Whether the record is still that of the same ADD, settled, and no process works on it. */
function isCurrent(one: WatchedAttachment, runtime: ChainRuntime): boolean {
  const { runner, stateDir } = one;
  const now = findRecord(one, runtime);
  if (now === undefined || stateDir === undefined) return false;
  const { stands, kind } = pastOf(now, runtime.env);
  if (!stands || now.runner.op !== runner.op) return false;
  return findHolder({ stateDir, env: runtime.env }, one) === undefined && kind !== 'outlived';
}

/**
 * What mends a damaged attachment: a repair puts back rules, addresses and routes, but no devices.
 * @param present names of the devices of the host
 * @param problem what CHECK says: another device may have the name of a bridge
 */
export function mendFor(one: WatchedAttachment, present: readonly string[], problem = ''): string {
  const [, taken] = /^Cannot confirm kind of bridge "([^"]+)"/.exec(problem) ?? [];
  if (taken !== undefined)
    return `ip link del ${asWord(taken)} && ip link add ${asWord(taken)} type bridge && ${repairCommand(one)}`;
  const isComplete = one.devices.every(name => present.includes(name));
  return isComplete ? repairCommand(one) : commandsFor(one);
}

/** Whichever runtime made the attachments of the network. */
export function repairCommand({ network }: Pick<AttachmentId, 'network'>): string {
  return `catena repair ${network}`;
}

/**
 * DEL and ADD with what the ADD was given. An attachment of another runtime is made again by that one: it would not learn of a new
 * address. So is a network of the delegate runner.
 */
export function commandsFor(one: WatchedAttachment): string {
  const isOurs = one.stateDir !== undefined && one.pod === undefined;
  if (!isOurs)
    return `recreate container "${nameIn(one) || shortId(one.containerId)}" with the runtime that made it`;
  const target = targetOf(one, one.netns);
  const args = one.args.length ? ['--args', renderCniArgs(one.args)] : [];
  const hasCaps = Object.keys(one.capabilityArgs).length > 0;
  const caps = hasCaps ? ['--cap', JSON.stringify(one.capabilityArgs)] : [];
  return `${line('del', target)} && ${line('add', [...target, ...args, ...caps])}`;
}

/** The pod, or the name of a container of podman, which passes that as a pod's. */
function nameIn(one: WatchedAttachment): string {
  return ['K8S_POD_NAMESPACE', 'K8S_POD_NAME'].flatMap(key => argOf(one, key) || []).join('/');
}

/** DEL of an attachment that a third-party plugin will never delete. */
export function forgetCommand(one: AttachmentId & { readonly netns: string }): string {
  return line('del', ['--forget', ...targetOf(one, one.netns)]);
}

/** DEL of an attachment that nothing records, with the list as it is. */
export function deleteCommand(id: AttachmentId): string {
  return line('del', targetOf(id, ''));
}

function targetOf({ network, containerId, ifname }: AttachmentId, netns: string): string[] {
  return [network, netns, '--container-id', containerId, '--ifname', ifname];
}

function line(verb: string, words: readonly string[]): string {
  return ['catena', verb, ...words].map(asWord).join(' ');
}

export interface AttachmentCheck extends AttachmentId {
  /** `unknown`: no CHECK could be run. */
  readonly state: 'sound' | 'broken' | 'unknown';
  /** What CHECK reported, or why it could not be run. */
  readonly problem?: string;
  /** Its list has no CHECK, so nothing but another list would change that it is unknown. */
  readonly unchecked?: true;
  /** The time for checks was over: more time would tell. */
  readonly late?: true;
  /** The command that mends it, or the sentence that says that only its runtime can; of a broken one. */
  readonly mend?: string;
}

export interface CheckScope {
  /** Those with a plugin of this type; by default all but those that are checked in parts. */
  readonly type?: string;
  /** All CHECKs end by then, in milliseconds: a node may have hundreds of attachments, and a plugin may hang. */
  readonly budgetMs?: number;
  /** Makes what runs one chain at a time, so that several are checked at once. */
  readonly openSegments?: (() => SegmentRunner) | undefined;
}

/** For a command that a person waits for. */
export const CHECK_BUDGET_MS = 10_000;
/** A CHECK waits for the kernel more than it computes; each of them has a worker. One that takes long gives its turn to another. */
const AT_ONCE = 4;
/** What seems broken may be in a DEL of a runtime that keeps no record here. No person waits longer for that. */
const MOST_REST_MS = 300;

/**
 * Runs CHECK of attachments, with the configuration of the ADD of each. Leaves out those whose namespace is gone, those that a process
 * works on, and those deleted during that; once the time is over, the remaining ones are `unknown`.
 */
export async function checkAll(
  attachments: readonly WatchedAttachment[],
  runtime: ChainRuntime,
  { type, budgetMs, openSegments }: CheckScope,
): Promise<AttachmentCheck[]> {
  const { onPlugin: _, onWarning: __, ...quiet } = runtime;
  const limit = budgetMs === undefined ? undefined : timeLimit(budgetMs);
  const signal = AbortSignal.any([runtime.signal, limit].filter(one => one !== undefined));
  const own = { ...quiet, signal, ...defined({ deadlineMs: budgetMs }) };
  const isChosen = (one: WatchedAttachment) =>
    type === undefined ? !one.isCheckedInParts : hasPlugin(one, type, quiet);
  const chosen = attachments.filter(isChosen);
  const idle: SegmentRunner[] = [];
  const present = deviceNames();
  // One runner serves one chain at a time.
  const atOnce = openSegments || !runtime.segments ? AT_ONCE : 1;
  const limits = { atOnce, groupOf: ({ network }: WatchedAttachment) => network };
  const checks = await visitAll(chosen, limits, async (one, rest): Promise<AttachmentCheck[]> => {
    const late = (problem: string): AttachmentCheck[] =>
      runtime.signal?.aborted
        ? [{ ...toId(one), state: 'unknown', problem: INTERRUPTED }]
        : [{ ...toId(one), state: 'unknown', problem, late: true }];
    if (own.signal.aborted) return late(UNREACHED);
    const segments = idle.pop() ?? openSegments?.();
    const resting = (ms: number) => rest(Math.min(ms, MOST_REST_MS));
    const outcome = await examine(one, { ...own, ...defined({ segments }) }, resting);
    if (segments) idle.push(segments);
    const { state } = outcome;
    if (state === 'sound') return [{ ...toId(one), state }];
    if (state === 'drifted') {
      const { problem } = outcome;
      return [{ ...toId(one), state: 'broken', problem, mend: mendFor(one, [...present()], problem) }];
    }
    if (own.signal.aborted) return late(UNANSWERED);
    if (state !== 'unknown') return [];
    return [{ ...toId(one), state, problem: outcome.why, ...defined({ unchecked: outcome.unchecked }) }];
  });
  return checks.flat();
}

const UNREACHED = 'the time for checks was over before its turn came';
const INTERRUPTED = 'the command was interrupted before its CHECK had ended';
const UNANSWERED = 'its CHECK did not answer in the time for checks';

/** Also as its IPAM plugin, or as one that another calls. */
function hasPlugin(one: WatchedAttachment, type: string, runtime: ChainRuntime): boolean {
  const list = findConfigOfAdd(one, runtime);
  return list !== undefined && listUses(list).some(use => use.type === type);
}
