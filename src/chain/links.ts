// How is each link of a list called in turn, while the next one already starts?
import { basename } from 'node:path';
import type { PluginEntry } from '../cni/conflist.ts';
import type { Command } from '../cni/env.ts';
import { CniError, ErrorCode, type LinkFailure } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { failureOf } from '../cni/reply.ts';
import type { Conflist } from './conflist.ts';
import { startThrough } from './exec.ts';
import type { ExecOutcome, PluginProcess } from './exec-plugin.ts';
import { findPlugin, isOwnExecutable } from './find-plugin.ts';
import { withDetails } from './link-errors.ts';
import { type Attachment, deadlineOf, linkEnv, type Runtime } from './runtime.ts';
import { startPlugin } from './start.ts';
import { findTraceParent, type LinkSpan, startSpan, traceEnv } from './trace-context.ts';

/** The links of a list, called for one verb in one order. */
export interface Links<Reply> {
  /**
   * Says what the links will be asked: what is sure to be served in the order in which it was sent goes out at once, so
   * that no link waits for the runner to have heard of the one before.
   * @param together for requests that each take the reply before as `prevResult`: told up to which link they go out, before
   *   they do. When it throws, they go one by one
   */
  foretell(requestFor: (index: number) => JsonObject, together?: (last: number) => void): void;
  /** Index of the last link that has begun; settles when none works any more. */
  begun(): Promise<number>;
  /**
   * Calls one link and returns what `read` makes of its standard output.
   * @throws CniError with the link's name, index and how its process ended
   */
  call(index: number, request: JsonObject): Promise<Reply>;
  /** Ends what was started ahead and is not needed any more; it has read nothing. */
  close(): void;
}

/** What a verb makes of a successful link's standard output; it throws when that is not what the verb prints. */
export type ReadReply<Reply> = (stdout: string, link: LinkFailure) => Reply;

/** CHECK, DEL, GC and STATUS print nothing, and what they do print has no meaning (SPEC "CNI operations"). */
export const IGNORED: ReadReply<undefined> = () => undefined;

/** Bytes of standard error that go into an error. */
const STDERR_TAIL = 4096;

/**
 * Prepares the calls of one verb.
 * @param order indexes in the order of the calls to come; the next of our own executables starts while one works,
 *   a foreign one only when it is its turn, since it might act before it has read its request. One ahead takes a fifth
 *   off a chain of five on two cores (42 to 34 ms); two or all of them ahead gain nothing over that.
 */
export function openLinks<Reply>(
  list: Conflist,
  verb: Command,
  runtime: Runtime,
  order: readonly number[],
  read: ReadReply<Reply>,
  attachment?: Attachment,
): Links<Reply> {
  const { isOwn = isOwnExecutable, signal, exec, noted, envOf, inOrder = false } = runtime;
  const start = runtime.start ?? (exec ? startThrough(exec) : startPlugin);
  const deadlineMs = deadlineOf(runtime, verb);
  const env = linkEnv(verb, runtime, attachment);
  const parent = findTraceParent(env);
  const ahead = new Map<number, Started>();
  let foretold: Parameters<Links<Reply>['foretell']> | undefined;
  let reached = -1;

  const launch = (path: string): Started => {
    const span = parent && startSpan(parent);
    const own = { ...env, ...envOf?.(basename(path)), ...traceEnv(parent, span) };
    const running = start({ path, env: own, deadlineMs, signal, noted });
    return { running, path, span };
  };
  /** @returns whether it is one of ours */
  const startAhead = (index: number | undefined): boolean => {
    if (index === undefined) return false;
    // Whatever stands in for our processes decides itself when a link starts.
    if (ahead.has(index) || (exec && !runtime.start)) return ahead.has(index);
    const path = findOwn(list.plugins[index], runtime, isOwn);
    if (path !== undefined) ahead.set(index, launch(path));
    return path !== undefined;
  };
  /** All of ours that follow without another's in between. */
  const sendAhead = (index: number, current: Started): void => {
    const [requestFor, together] = foretold ?? [];
    const rest = order.slice(order.indexOf(index) + 1);
    // They went out with the first of them.
    if (requestFor === undefined || ahead.get(rest[0] ?? -1)?.outcome) return;
    const foreign = rest.findIndex(next => !startAhead(next));
    const following = foreign < 0 ? rest : rest.slice(0, foreign);
    const last = following.at(-1);
    if (last === undefined) return;
    try {
      together?.(last);
    } catch {
      // One by one, which says so as well.
      return;
    }
    let before = current;
    for (const next of following) {
      const started = ahead.get(next) as Started;
      const request = JSON.stringify(requestFor(next));
      started.outcome = started.running.send(request, together && before.running.id);
      before = started;
    }
  };

  const callOne = async (index: number, request: JsonObject): Promise<Reply> => {
    const { type } = list.plugins[index] as PluginEntry;
    const link: LinkFailure = { network: list.name, link: type, index, verb };
    if (signal?.aborted) throw interrupted(link);
    reached = index;
    const isAhead = ahead.has(index);
    const started = ahead.get(index) ?? launch(findFor(link, runtime));
    ahead.delete(index);
    const sent = started.outcome ?? started.running.send(JSON.stringify(request));
    if (inOrder && foretold && (isAhead || isOwn(started.path))) sendAhead(index, started);
    // In the next turn: starting a process takes milliseconds, which the request must not wait for in our buffer.
    const next = setImmediate(() => startAhead(order[order.indexOf(index) + 1]));
    const outcome = await sent;
    clearImmediate(next);
    return conclude(outcome, started, link, runtime, read);
  };

  return {
    foretell(...told) {
      foretold = told;
    },
    async begun() {
      for (const [index, { outcome }] of ahead) {
        if (outcome && !(await outcome).skipped) reached = Math.max(reached, index);
      }
      return reached;
    },
    async call(index, request) {
      if (index !== order.at(-1) || !runtime.finish) return callOne(index, request);
      const [reply] = await Promise.allSettled([callOne(index, request)]);
      const late = await finishLinks(runtime.finish, list.name, verb, runtime);
      const { type } = list.plugins[index] as PluginEntry;
      const failure =
        late && late.exitCode !== 0 && failureOf(late, { network: list.name, link: type, index, verb });
      if (reply.status === 'rejected')
        throw failure ? withDetails(reply.reason, failure.message) : reply.reason;
      if (failure) throw failure;
      return reply.value;
    },
    close() {
      for (const { running } of ahead.values()) running.discard();
      ahead.clear();
    },
  };
}

/** Has what links put off be done, and tells how long that took; undefined when they put nothing off. */
export async function finishLinks(
  finish: NonNullable<Runtime['finish']>,
  network: string,
  verb: Command,
  { onFinish }: Pick<Runtime, 'onFinish'>,
): ReturnType<NonNullable<Runtime['finish']>> {
  const begin = performance.now();
  const outcome = await finish();
  if (outcome === undefined) return undefined;
  const { transactions } = outcome;
  onFinish?.({
    ...{ network, verb, durationMs: performance.now() - begin },
    ...(transactions === undefined ? {} : { transactions }),
  });
  return outcome;
}

/** The executable of a link, looked for as the caller wants it. */
export function findExecutable(
  type: string,
  { find = findPlugin, pluginDirs }: Pick<Runtime, 'find' | 'pluginDirs'>,
): string {
  return find(type, pluginDirs);
}

interface Started {
  readonly running: PluginProcess;
  readonly path: string;
  readonly span: LinkSpan | undefined;
  /** Where its request was sent ahead of its turn. */
  outcome?: Promise<ExecOutcome>;
}

function findFor(link: LinkFailure, runtime: Runtime): string {
  try {
    return findExecutable(link.link, runtime);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw new CniError(error.code, error.message, { cause: error, link });
  }
}

function findOwn(
  entry: PluginEntry | undefined,
  runtime: Runtime,
  isOwn: (path: string) => boolean,
): string | undefined {
  try {
    const path = findExecutable(entry?.type ?? '', runtime);
    return isOwn(path) ? path : undefined;
  } catch {
    // It is reported when its turn comes.
    return undefined;
  }
}

/** Tells the caller how the link did, and makes its output or its error of the outcome. */
function conclude<Reply>(
  outcome: ExecOutcome,
  { path, span }: Started,
  called: LinkFailure,
  runtime: Runtime,
  read: ReadReply<Reply>,
): Reply {
  const { exitCode, signal, durationMs, stderr, ended, transactions } = outcome;
  const verb = called.verb as Command;
  const link: LinkFailure = {
    ...called,
    executable: path,
    durationMs,
    ...(exitCode === undefined ? {} : { exitCode }),
    ...(signal === undefined ? {} : { signal }),
    ...(ended === undefined ? {} : { ended }),
    ...(stderr === '' ? {} : { stderr: stderr.slice(-STDERR_TAIL) }),
  };
  const { network, index } = called;
  const place = { network, link: called.link, index, executable: path, verb, ...(span ? { span } : {}) };
  const event = { ...place, durationMs, stderr, ...(transactions ? { transactions } : {}) };
  let reply: Reply;
  try {
    const error = findFailure(outcome, link, deadlineOf(runtime, verb));
    if (error) throw outcome.again ? tryAgain(error) : error;
    reply = read(outcome.stdout, link);
  } catch (error) {
    if (error instanceof CniError) runtime.onLink?.({ ...event, error });
    throw error;
  }
  runtime.onLink?.({ ...event, ...(verb === 'ADD' && isObject(reply) ? { result: reply } : {}) });
  return reply;
}

function findFailure(outcome: ExecOutcome, link: LinkFailure, deadlineMs: number): CniError | undefined {
  const type = JSON.stringify(link.link);
  if (outcome.spawnError !== undefined) {
    return new CniError(ErrorCode.unknown, `Cannot start plugin ${type}: ${outcome.spawnError}`, {
      details: link.executable ?? '',
      link,
    });
  }
  if (outcome.ended === 'deadline') {
    const text = `Plugin ${type} did not finish within ${deadlineMs / 1000} s: it was ended with its process group`;
    return new CniError(ErrorCode.unknown, text, { link });
  }
  if (outcome.ended === 'output') {
    return new CniError(ErrorCode.unknown, `Plugin ${type} printed more than 16 MiB: it was ended`, { link });
  }
  if (outcome.ended === 'interrupt') return interrupted(link);
  return outcome.exitCode === 0 ? undefined : failureOf(outcome, link);
}

/** The same words under the code that has a runtime come back. */
function tryAgain({ message, details, link }: CniError): CniError {
  return new CniError(ErrorCode.tryAgainLater, message, {
    ...(details === undefined ? {} : { details }),
    ...(link === undefined ? {} : { link }),
  });
}

function interrupted(link: LinkFailure): CniError {
  const { verb, link: type, ended = 'interrupt' } = link;
  return new CniError(ErrorCode.unknown, `Cannot finish ${verb} of plugin "${type}": it was interrupted`, {
    link: { ...link, ended },
  });
}
