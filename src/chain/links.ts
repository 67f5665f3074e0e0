// How is each link of a list called in turn, while the next one already starts?
import type { PluginEntry } from '../cni/conflist.ts';
import type { Command } from '../cni/env.ts';
import { CniError, ErrorCode, type LinkFailure } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { failureOf, parseReply } from '../cni/reply.ts';
import type { Conflist } from './conflist.ts';
import { DEFAULT_DEADLINE_MS, type ExecOutcome, type PluginProcess, startPlugin } from './exec-plugin.ts';
import { findPlugin, isOwnExecutable } from './find-plugin.ts';
import { type Attachment, linkEnv, type Runtime } from './runtime.ts';

/** The links of a list, called for one verb in one order. */
export interface Links {
  /**
   * Calls one link and returns the object it printed, if any.
   * @throws CniError with the link's name, index and how its process ended
   */
  call(index: number, request: JsonObject): Promise<JsonObject | undefined>;
  /** Ends what was started ahead and is not needed any more; it has read nothing. */
  close(): void;
}

/** Bytes of standard error that go into an error. */
const STDERR_TAIL = 4096;

/**
 * Prepares the calls of one verb.
 * @param order indexes in the order of the calls to come; the next of our own executables starts while one works,
 *   a foreign one only when it is its turn, since it might act before it has read its request. One ahead takes a fifth
 *   off a chain of five on two cores (42 to 34 ms); two or all of them ahead gain nothing over that.
 */
export function openLinks(
  list: Conflist,
  verb: Command,
  runtime: Runtime,
  order: readonly number[],
  attachment?: Attachment,
): Links {
  const { start = startPlugin, isOwn = isOwnExecutable, deadlineMs = DEFAULT_DEADLINE_MS, signal } = runtime;
  const env = linkEnv(verb, runtime, attachment);
  const ahead = new Map<number, PluginProcess>();

  const startAhead = (index: number | undefined) => {
    const path = index === undefined ? undefined : findOwn(list.plugins[index], runtime, isOwn);
    if (index !== undefined && path !== undefined) ahead.set(index, start({ path, env, deadlineMs, signal }));
  };

  return {
    async call(index, request) {
      const { type } = list.plugins[index] as PluginEntry;
      const link: LinkFailure = { network: list.name, link: type, index, verb };
      if (signal?.aborted) throw interrupted(link);
      const path = findFor(link, runtime);
      const running = ahead.get(index) ?? start({ path, env, deadlineMs, signal });
      ahead.delete(index);
      const sent = running.send(JSON.stringify(request));
      startAhead(order[order.indexOf(index) + 1]);
      return conclude(await sent, { ...link, executable: path }, runtime, deadlineMs);
    },
    close() {
      for (const running of ahead.values()) running.discard();
      ahead.clear();
    },
  };
}

function findFor(link: LinkFailure, { pluginDirs }: Runtime): string {
  try {
    return findPlugin(link.link, pluginDirs);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw new CniError(error.code, error.message, { cause: error, link });
  }
}

function findOwn(
  entry: PluginEntry | undefined,
  { pluginDirs }: Runtime,
  isOwn: (path: string) => boolean,
): string | undefined {
  try {
    const path = findPlugin(entry?.type ?? '', pluginDirs);
    return isOwn(path) ? path : undefined;
  } catch {
    // It is reported when its turn comes.
    return undefined;
  }
}

/** Tells the caller how the link did, and makes its output or its error of the outcome. */
function conclude(
  outcome: ExecOutcome,
  called: LinkFailure,
  runtime: Runtime,
  deadlineMs: number,
): JsonObject | undefined {
  const { exitCode, signal, durationMs, stderr } = outcome;
  const link: LinkFailure = {
    ...called,
    durationMs,
    ...(exitCode === undefined ? {} : { exitCode }),
    ...(signal === undefined ? {} : { signal }),
    ...(stderr === '' ? {} : { stderr: stderr.slice(-STDERR_TAIL) }),
  };
  const { network, link: type, index } = called;
  const event = { network, link: type, index, verb: called.verb as Command, durationMs, stderr };
  try {
    const error = findFailure(outcome, link, deadlineMs);
    if (error) throw error;
    const result =
      called.verb === 'ADD' || called.verb === 'VERSION' ? parseReply(outcome.stdout, link) : undefined;
    runtime.onLink?.({ ...event, ...(result === undefined ? {} : { result }) });
    return result;
  } catch (error) {
    if (error instanceof CniError) runtime.onLink?.({ ...event, error });
    throw error;
  }
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

function interrupted(link: LinkFailure): CniError {
  return new CniError(
    ErrorCode.unknown,
    `Cannot finish ${link.verb} of plugin "${link.link}": it was interrupted`,
    {
      link,
    },
  );
}
