// How are the plugins of a list called for one verb, with what, what do their outcomes mean, and how are they undone?

import { basename } from 'node:path';
import type { Held } from '../../attachments/store.ts';
import { type Command, renderCniArgs } from '../../cni/env.ts';
import {
  type CalledPlugin,
  CniError,
  decodingFailure,
  describeError,
  ErrorCode,
  toCniError,
  tryAgainLater,
} from '../../cni/errors.ts';
import { failureOf, parseReply, startFailure } from '../../cni/invocation.ts';
import { defined, isObject, type JsonObject } from '../../cni/json.ts';
import { atLeast, convertResult, resultVersionOf, SINCE, type SpecVersion } from '../../cni/result.ts';
import { type AttachmentKey, isRuntimeKey, VALID_ATTACHMENTS } from '../../cni/schemas.ts';
import { processOf, RUNNER_VARIABLE } from '../../files/process-stat.ts';
import type { Conflist, PluginEntry } from '../config/conflist.ts';
import { type FoundPlugin, findExecutable } from '../config/find-plugin.ts';
import type { ExecOutcome } from './exec-plugin.ts';
import { type Attachment, type ChainRuntime, deadlineOf, type PluginEvent, type Runtime } from './runtime.ts';
import { execSegments, processSegments, type SegmentRunner, startPlugin } from './segment.ts';
import { findTraceParent, type PluginSpan, startSpan, traceEnv } from './trace-context.ts';

/** What the runtime adds to the entry of a list. */
export interface RequestParts {
  /** Result of the plugin before (ADD), or of the whole ADD (CHECK, DEL). */
  readonly prevResult?: JsonObject | undefined;
  /** What the caller offers, by capability; the plugin gets only what its entry declares. */
  readonly capabilityArgs?: JsonObject | undefined;
}

/** The misspelt key that libcni sent before the specification settled; it still sends both. */
const ATTACHMENTS_ALIAS = 'cni.dev/attachments';

/**
 * The request of a verb (SPEC "Deriving request configuration from plugin configuration"). All keys of the user
 * stay, except those that only a runtime may set: `prevResult`, and keys that begin with `cni.dev/`. `capabilities` is passed
 * to the plugin too, as in libcni: the specification would leave it out, but plugins that call others read it.
 */
export function buildRequest(list: Conflist, entry: PluginEntry, parts: RequestParts = {}): JsonObject {
  const own = Object.entries(entry.conf).filter(([key]) => !isRuntimeKey(key));
  const runtimeConfig = pickRuntimeConfig(entry, parts.capabilityArgs ?? {});
  return {
    ...Object.fromEntries(own),
    name: list.name,
    cniVersion: list.version,
    ...defined({ prevResult: parts.prevResult, runtimeConfig }),
  };
}

/** The request of GC, with the attachments to keep under the specification's key and under libcni's older one. */
export function buildGcRequest(
  list: Conflist,
  entry: PluginEntry,
  valid: readonly AttachmentKey[],
): JsonObject {
  const keys = valid.map(({ containerID, ifname }) => ({ containerID, ifname }));
  return { ...buildRequest(list, entry), [VALID_ATTACHMENTS]: keys, [ATTACHMENTS_ALIAS]: keys };
}

/** Undefined if nothing is picked; then `runtimeConfig` of the file stays, as in the reference. */
function pickRuntimeConfig(entry: PluginEntry, offered: JsonObject): JsonObject | undefined {
  const picked = Object.entries(entry.capabilities)
    .filter(([name, wanted]) => wanted && Object.hasOwn(offered, name))
    .map(([name]) => [name, offered[name]] as const);
  return picked.length ? Object.fromEntries(picked) : undefined;
}

interface ChainCall<Reply> {
  readonly list: Conflist;
  readonly verb: Command;
  /** Indexes in the order of the calls; all, from the first on, unless given. */
  readonly order?: readonly number[];
  readonly attachment?: Attachment | undefined;
  /** Result of the whole ADD, for other verbs than ADD. */
  readonly prevResult?: JsonObject | undefined;
  /** Makes the request of a plugin, which on ADD has the result of the plugin before it; {@link buildRequest} unless given. */
  requestFor?(index: number, prevResult: JsonObject | undefined): JsonObject;
  /** Unless given, the result of ADD, in the version of the list, and {@link IGNORED} for other verbs. */
  readonly read?: ReadReply<Reply>;
  /** The plugins' executables, if the caller has looked for them. */
  readonly executables?: readonly FoundPlugin[];
  /**
   * Told of each segment before any of it is called: the plugins up to that index may run before the runner has read the previous reply. If it
   * throws, no plugin of the segment is called.
   */
  readonly held?: Pick<Held, 'progress'>;
}

/** The outcome of one plugin's call. */
export type PluginReply<Reply> =
  | { readonly index: number; readonly value: Reply }
  /** A CniError with the plugin's name, its index and how its process ended. */
  | { readonly index: number; readonly error: unknown };

/**
 * The replies of the plugins in the order of the calls. The calls are made as the replies are read. A failure of ADD, CHECK or
 * STATUS is the last reply; other verbs continue. Leaving the iteration early waits until no plugin is running.
 */
interface PluginReplies<Reply> extends AsyncIterable<PluginReply<Reply>> {
  /** Index of the plugin that was called last; -1 before the first. Plugins that could not be started do not count. */
  readonly lastBegun: number;
}

/** Verbs that stop at the first failure. */
const STOPPING: readonly Command[] = ['ADD', 'CHECK', 'STATUS'];

/** Calls plugins by segments (segment.ts). Nothing runs until the replies are read. */
export function callPlugins<Reply>(call: ChainCall<Reply>, runtime: ChainRuntime): PluginReplies<Reply> {
  const progress = { lastBegun: -1 };
  const { segments, exec, isOwn } = runtime;
  const runner = segments ?? (exec ? execSegments(exec) : processSegments(startPlugin, isOwn));
  return {
    get lastBegun() {
      return progress.lastBegun;
    },
    [Symbol.asyncIterator]: () =>
      withFinish(callSegments(call, runtime, runner, progress), call, runtime, runner),
  };
}

/** Calls plugins up to the first failure. @throws CniError of the plugin that failed */
export async function callAll(call: ChainCall<unknown>, runtime: ChainRuntime): Promise<void> {
  for await (const reply of callPlugins(call, runtime)) if ('error' in reply) throw reply.error;
}

/** Calls every plugin, even after one failed. @returns the errors of those that failed */
export async function callEach(call: ChainCall<unknown>, runtime: ChainRuntime): Promise<unknown[]> {
  const errors: unknown[] = [];
  for await (const reply of callPlugins(call, runtime)) if ('error' in reply) errors.push(reply.error);
  return errors;
}

/**
 * Runs the work that plugins have deferred to the end of their chain, and reports how long it took.
 * @returns undefined if they deferred nothing
 */
export async function finishDeferred(
  runner: SegmentRunner,
  network: string,
  verb: Command,
  { onFinish }: Pick<ChainRuntime, 'onFinish'>,
): ReturnType<NonNullable<SegmentRunner['finish']>> {
  const begin = performance.now();
  const outcome = await runner.finish?.();
  if (outcome === undefined) return undefined;
  const { transactions } = outcome;
  onFinish?.({ network, verb, durationMs: performance.now() - begin, ...defined({ transactions }) });
  return outcome;
}

async function* callSegments<Reply>(
  call: ChainCall<Reply>,
  runtime: ChainRuntime,
  runner: SegmentRunner,
  progress: { lastBegun: number },
): AsyncGenerator<PluginReply<Reply>> {
  const { list, verb, held, attachment } = call;
  const order = orderOf(call);
  const usual = (index: number, before: JsonObject | undefined) => usualRequest(call, index, before);
  const accept: ReadReply<JsonObject> = (stdout, plugin) => acceptResult(stdout, list.version, plugin);
  const { requestFor = usual, read = (verb === 'ADD' ? accept : IGNORED) as ReadReply<Reply> } = call;
  const { signal, tracesKernel } = runtime;
  const stopsAtFailure = STOPPING.includes(verb);
  const prepare = preparing(call, runtime);
  let prevResult = attachment?.prevResult;
  for (let next = 0; next < order.length; ) {
    const indexes = order.slice(next);
    const made = segmentOf(indexes, prepare, runner);
    if ('error' in made) {
      yield { index: indexes[0] as number, error: made.error };
      if (stopsAtFailure) return;
      next += 1;
      continue;
    }
    const { calls } = made;
    const last = indexes[calls.length - 1] as number;
    held?.progress(last, prevResult);
    const outcomes = runner.run({
      calls: calls.map(({ path, env, plugin: { index } }, position) => ({
        path,
        env,
        stdin: JSON.stringify(requestFor(index, position === 0 ? prevResult : undefined)),
      })),
      threadsResult: verb === 'ADD',
      stopsAtFailure,
      deadlineMs: deadlineOf(runtime, verb),
      signal,
      tracesKernel,
    });
    let done = 0;
    progress.lastBegun = indexes[0] as number;
    for await (const outcome of outcomes) {
      const made = calls[done] as PreparedCall;
      const { index } = made.plugin;
      // A host that has begun the next plugin goes on to the end of the segment, whatever becomes of this reply.
      if (outcome.more) progress.lastBegun = last;
      else progress.lastBegun = outcome.spawnError === undefined ? index : (order[next + done - 1] ?? -1);
      done += 1;
      const reply = replyOf(index, () => conclude(outcome, made, runtime, read));
      yield reply;
      if ('error' in reply) {
        if (stopsAtFailure) return;
      } else prevResult = reply.value as JsonObject | undefined;
      if (done < calls.length) progress.lastBegun = indexes[done] as number;
    }
    next += done;
  }
}

/** The request of a plugin for which the caller makes none. @param before result of the plugin before it, on ADD */
function usualRequest<Reply>(
  { list, verb, attachment, prevResult }: ChainCall<Reply>,
  index: number,
  before: JsonObject | undefined,
): JsonObject {
  return buildRequest(list, list.plugins[index] as PluginEntry, {
    prevResult: verb === 'ADD' ? before : prevResult,
    capabilityArgs: attachment?.capabilityArgs,
  });
}

function orderOf({ list, order = [...list.plugins.keys()] }: ChainCall<unknown>): readonly number[] {
  return order;
}

interface PreparedCall extends MadeCall, FoundPlugin {
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** @returns a function that finds a plugin's executable and builds its environment, or throws CniError */
function preparing<Reply>(
  { list, verb, attachment, executables }: ChainCall<Reply>,
  runtime: ChainRuntime,
): (index: number) => PreparedCall {
  const { signal, envOf } = runtime;
  const env = pluginEnv(verb, runtime, attachment);
  const parent = findTraceParent(env);
  return index => {
    const { type } = list.plugins[index] as PluginEntry;
    const plugin: CalledPlugin = { network: list.name, type, index, verb };
    if (signal?.aborted) throw interrupted(plugin);
    const file = executables?.[index] ?? findFor(plugin, runtime);
    const span = parent && startSpan(parent);
    const own = envOf?.(basename(file.path));
    return { ...file, plugin, span, env: { ...env, ...own, ...traceEnv(parent, span) } };
  };
}

/**
 * The environment of a plugin: the caller's, with the six variables of the protocol always set (SPEC "Parameters"); with a
 * journal also the variables that name the runner.
 */
export function pluginEnv(
  verb: Command,
  runtime: Runtime,
  attachment?: Attachment,
): Record<string, string | undefined> {
  return {
    ...(runtime.env ?? process.env),
    CNI_COMMAND: verb,
    CNI_CONTAINERID: attachment?.containerId ?? '',
    CNI_NETNS: attachment?.netns ?? '',
    CNI_IFNAME: attachment?.ifname ?? '',
    CNI_ARGS: renderCniArgs(attachment?.args ?? []),
    CNI_PATH: runtime.pluginDirs.join(':'),
    ...(runtime.stateDir === undefined ? {} : { [RUNNER_VARIABLE]: processOf() }),
  };
}

/** The leading plugins that one host can run together. */
function segmentOf(
  indexes: readonly number[],
  prepare: (index: number) => PreparedCall,
  { joins }: SegmentRunner,
): { readonly calls: readonly PreparedCall[] } | { readonly error: unknown } {
  const calls: PreparedCall[] = [];
  for (const index of indexes) {
    let call: PreparedCall;
    try {
      call = prepare(index);
    } catch (error) {
      // If plugins come before this one, the error is reported in its turn.
      if (calls.length === 0) return { error };
      break;
    }
    const isAlone = !joins(call.path, call.stat);
    if (calls.length > 0 && isAlone) break;
    calls.push(call);
    if (isAlone) break;
  }
  return { calls };
}

function findFor(plugin: CalledPlugin, runtime: Runtime): FoundPlugin {
  try {
    return findExecutable(plugin.type, runtime);
  } catch (error) {
    throw ofPlugin(plugin, error);
  }
}

/** The same error, which names the plugin that is concerned. */
function ofPlugin(plugin: CalledPlugin, cause: unknown): unknown {
  if (!(cause instanceof CniError)) return cause;
  const { code, message, details } = cause;
  return new CniError(code, message, { ...defined({ details }), cause, plugin });
}

function replyOf<Reply>(index: number, work: () => Reply): PluginReply<Reply> {
  try {
    return { index, value: work() };
  } catch (error) {
    return { index, error };
  }
}

/** Yields the same replies, but holds the last one until the deferred work is done, and fails it if that fails. */
async function* withFinish<Reply>(
  replies: AsyncIterable<PluginReply<Reply>>,
  call: ChainCall<Reply>,
  runtime: ChainRuntime,
  runner: SegmentRunner,
): AsyncGenerator<PluginReply<Reply>> {
  const { list, verb } = call;
  const last = orderOf(call).at(-1);
  let held: PluginReply<Reply> | undefined;
  for await (const reply of replies) {
    if (runner.finish && reply.index === last) held = reply;
    else yield reply;
  }
  // Only now has the last segment returned its worker.
  if (held === undefined) return;
  const { index } = held;
  const outcome = await finishDeferred(runner, list.name, verb, runtime);
  const { type } = list.plugins[index] as PluginEntry;
  const failure =
    outcome && outcome.exitCode !== 0 && failureOf(outcome, { network: list.name, type, index, verb });
  if (!failure) yield held;
  else if ('error' in held) yield { index, error: withDetails(held.error, failure.message) };
  else yield { index, error: failure };
}

/**
 * DEL of the plugins from `last` down to the first. Every one runs, even after one failed.
 * @returns the errors of those that failed
 */
export async function undoPlugins(
  list: Conflist,
  last: number,
  attachment: Attachment,
  runtime: ChainRuntime,
  result: JsonObject | undefined,
): Promise<unknown[]> {
  const prevResult = atLeast(list.version, SINCE.prevResultOnDel)
    ? findConverted(result, list.version, runtime)
    : undefined;
  const order = [...list.plugins.keys()].slice(0, last + 1).reverse();
  return callEach({ list, verb: 'DEL', order, attachment, prevResult }, runtime);
}

/**
 * Undoes a failed ADD: DEL of the plugins that ran, including the failed one.
 * @param lastBegun index of the last plugin that may have had an effect; -1 for none
 * @param result of the last plugin that succeeded
 * @returns the error to throw, which is the given one with the failures of DEL in its details; and these failures
 */
export async function unwind(
  error: unknown,
  list: Conflist,
  lastBegun: number,
  attachment: Attachment,
  runtime: ChainRuntime,
  result: JsonObject | undefined,
): Promise<{ readonly final: unknown; readonly failures: readonly unknown[] }> {
  // The signal that stopped the ADD must not stop its undo.
  const undeterred = { ...runtime, signal: undefined };
  const failed = await undoPlugins(list, lastBegun, attachment, undeterred, result);
  // A plugin that refused the version of the list on ADD refuses it on every later DEL, whatever the list says by then.
  const refused = refusedBy(error);
  const errors = failed.filter(one => refused === undefined || refusedBy(one) !== refused);
  if (!errors.length) return { final: error, failures: [] };
  const text = `undoing it failed too: ${errors.map(describePluginError).join('; ')}`;
  return { final: withDetails(error, text, errors), failures: errors };
}

/** Index of the plugin that refused the version of its list; undefined for any other error. */
function refusedBy(error: unknown): number | undefined {
  const isRefusal = error instanceof CniError && error.code === ErrorCode.incompatibleVersion;
  return isRefusal ? error.plugin?.index : undefined;
}

function findConverted(
  result: JsonObject | undefined,
  version: SpecVersion,
  { onWarning }: ChainRuntime,
): JsonObject | undefined {
  try {
    return result && convertResult(result, version, 'cached result');
  } catch (error) {
    // DEL works without a result, so a bad one must not stop it.
    if (error instanceof CniError) onWarning?.(error);
    return undefined;
  }
}

/** The same error with more details; code, message and plugin stay. */
export function withDetails(error: unknown, details: string, causes: readonly unknown[] = []): unknown {
  const cause = causes.length ? new AggregateError([error, ...causes]) : error;
  if (!(error instanceof CniError)) return new Error(details, { cause });
  return new CniError(error.code, error.message, {
    details: [error.details, details].filter(Boolean).join('; '),
    cause,
    ...defined({ plugin: error.plugin }),
  });
}

/** Does the work for each in turn, also after one has failed. @returns the errors */
export async function failuresOf<T>(all: Iterable<T>, work: (one: T) => Promise<void>): Promise<unknown[]> {
  const errors: unknown[] = [];
  for (const one of all) {
    try {
      await work(one);
    } catch (error) {
      errors.push(error);
    }
  }
  return errors;
}

/** Errors that a message tells; the rest is in its details. */
const MOST_TOLD = 5;

/** One error for several: a single one unchanged, else one with the first one's code that tells them. */
export function joinErrors(what: string, errors: readonly unknown[]): unknown {
  const [first] = errors;
  if (errors.length === 1) return first;
  const all = errors.map(describePluginError);
  const rest = all.slice(MOST_TOLD);
  const more = rest.length ? ` and ${rest.length} more` : '';
  return new CniError(toCniError(first).code, `${what}: ${all.slice(0, MOST_TOLD).join('; ')}${more}`, {
    ...(rest.length ? { details: rest.join('; ') } : {}),
    cause: new AggregateError(errors),
  });
}

/** An error in one sentence that names its plugin. */
export function describePluginError(error: unknown): string {
  const plugin = error instanceof CniError ? error.plugin : undefined;
  const text =
    error instanceof CniError && error.details ? `${error.message} (${error.details})` : describeError(error);
  return plugin === undefined ? text : `${plugin.type} ${plugin.verb}: ${text}`;
}

/**
 * Checks what a plugin printed on ADD and converts it to the version of its list; unknown keys stay. The next plugin and the
 * caller then deal with one version only, while the reference passes on whatever it gets. The error names the plugin that
 * printed the result, not the one that would have failed on it.
 * @throws CniError 6 (no result, or a value of the wrong shape, with its path), 1 (a version that does not exist),
 *   7 (addresses that the list's version demands are missing)
 */
export function acceptResult(stdout: string, version: SpecVersion, plugin: CalledPlugin): JsonObject {
  const printed = parseReply(stdout, plugin);
  const what = `result of plugin "${plugin.type}"`;
  if (printed === undefined) {
    throw decodingFailure(`Cannot decode output of plugin "${plugin.type}": it printed no result`, {
      plugin,
    });
  }
  try {
    return convertResult({ ...printed, cniVersion: resultVersionOf(printed, version, what) }, version, what);
  } catch (error) {
    throw ofPlugin(plugin, error);
  }
}

/** Reads a successful plugin's standard output for a verb; throws if it is not what the verb prints. */
export type ReadReply<Reply> = (stdout: string, plugin: CalledPlugin) => Reply;

/** CHECK, DEL, GC and STATUS print nothing; anything they do print is ignored (SPEC "CNI operations"). */
export const IGNORED: ReadReply<undefined> = () => undefined;

/** Bytes of standard error that go into an error. */
const STDERR_TAIL = 4096;

interface MadeCall {
  readonly plugin: CalledPlugin;
  readonly path: string;
  readonly span: PluginSpan | undefined;
}

/**
 * Reports the outcome to the caller's listeners.
 * @returns the plugin's output as read by `read`
 * @throws CniError with the plugin's name, index and how its process ended
 */
export function conclude<Reply>(
  outcome: ExecOutcome,
  { plugin: called, path, span }: MadeCall,
  runtime: ChainRuntime,
  read: ReadReply<Reply>,
): Reply {
  const { exitCode, signal, durationMs, stderr, ended, transactions } = outcome;
  const verb = called.verb as Command;
  const plugin: CalledPlugin = {
    ...called,
    executable: path,
    durationMs,
    ...defined({ exitCode, signal, ended }),
    ...(stderr === '' ? {} : { stderr: stderr.slice(-STDERR_TAIL) }),
  };
  const { network, index } = called;
  const place = { network, plugin: called.type, index, executable: path, verb, ...defined({ span }) };
  const event = { ...place, durationMs, stderr, ...defined({ transactions }) };
  let reply: Reply;
  try {
    const error = findFailure(outcome, plugin, runtime);
    if (error) throw outcome.again ? tryAgain(error) : error;
    reply = read(outcome.stdout, plugin);
  } catch (error) {
    if (error instanceof CniError) tell(runtime, { ...event, error });
    throw error;
  }
  tell(runtime, { ...event, ...(verb === 'ADD' && isObject(reply) ? { result: reply } : {}) });
  return reply;
}

/** An observer that fails is no reason to undo what the plugin did. */
function tell(runtime: ChainRuntime, event: PluginEvent): void {
  try {
    runtime.onPlugin?.(event);
  } catch (thrown) {
    runtime.onWarning?.(
      new CniError(ErrorCode.internal, `Cannot report plugin "${event.plugin}": onPlugin failed`, {
        cause: thrown,
      }),
    );
  }
}

function findFailure(
  outcome: ExecOutcome,
  plugin: CalledPlugin,
  runtime: ChainRuntime,
): CniError | undefined {
  const type = JSON.stringify(plugin.type);
  if (outcome.spawnError !== undefined) {
    return startFailure(plugin.type, outcome.spawnError, { details: plugin.executable ?? '', plugin });
  }
  if (outcome.ended === 'deadline') {
    const text = `Plugin ${type} did not finish within ${deadlineOf(runtime, plugin.verb as Command) / 1000} s: its process group was killed`;
    return new CniError(ErrorCode.unknown, text, { plugin });
  }
  if (outcome.ended === 'output') {
    return new CniError(ErrorCode.unknown, `Plugin ${type} printed more than 16 MiB: it was killed`, {
      plugin,
    });
  }
  if (outcome.ended === 'interrupt') return interrupted(plugin);
  return outcome.exitCode === 0 ? undefined : failureOf(outcome, plugin);
}

/** The same text with the code that makes a runtime try again. */
function tryAgain({ message, details, plugin }: CniError): CniError {
  return tryAgainLater(message, defined({ details, plugin }));
}

/** The error of a plugin that was not called, or was ended, because the caller interrupted the verb. */
export function interrupted(plugin: CalledPlugin): CniError {
  const { verb, type, ended = 'interrupt' } = plugin;
  return new CniError(ErrorCode.unknown, `Cannot finish ${verb} of plugin "${type}": it was interrupted`, {
    plugin: { ...plugin, ended },
  });
}
