// What does one call of a plugin consist of, besides the executable, and what does its answer mean?

import { type CalledPlugin, CniError, type CniErrorOptions, decodingFailure, ErrorCode } from './errors.ts';
import { isObject, type JsonObject, memberOf, parseObject, quote, tryParse } from './json.ts';

/**
 * What a plugin's process gets from its parent (SPEC "Section 2: Execution Protocol"). The front, the daemon, a runner and a worker
 * pass it on as it is, so a plugin sees the same call wherever it is served.
 */
export interface Invocation {
  /** The complete environment. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Standard input: the request, a JSON object as text. */
  readonly stdin: string;
  /** Directory against which relative paths are resolved; the working directory of the process that serves the call unless given. */
  readonly cwd?: string | undefined;
}

/** What a process of its own would leave behind. */
export interface Reply {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Name of the network in a request; empty if there is none. */
export function networkIn(stdin: string): string {
  const name = memberOf(objectIn(stdin) ?? {}, 'name');
  return typeof name === 'string' ? name : '';
}

/** The JSON object in a text; undefined if the text is anything else. */
export function objectIn(text = ''): JsonObject | undefined {
  const value = tryParse(text);
  return isObject(value) ? value : undefined;
}

export function errorIn({ stdout }: Pick<Reply, 'stdout'>): CniError {
  const { code, msg, details } = objectIn(stdout) ?? {};
  return new CniError(
    typeof code === 'number' ? code : ErrorCode.internal,
    typeof msg === 'string' ? msg : 'Cannot report the failure: the call returned no error',
    typeof details === 'string' ? { details } : {},
  );
}

/** Key of a request with `CATENA_CHANGE`: the request that it takes the place of. */
export const FORMER = 'catena/former';

/** What a plugin that knows `CATENA_CHANGE` answers to CHECK with it. */
export interface ChangeReply {
  /** `prevResult` with what the change affects. */
  readonly changed: JsonObject;
  /** Names of the options of its configuration that may change. */
  readonly options: readonly string[];
}

/** Undefined when the plugin does not know the variable. */
export function parseChangeReply(stdout: string): ChangeReply | undefined {
  const { changed, options } = objectIn(stdout) ?? {};
  return isObject(changed) && Array.isArray(options) ? { changed, options: options.map(String) } : undefined;
}

/** What a plugin that knows `CATENA_HANDOVER` answers to CHECK with it. */
export interface HandoverReply {
  readonly handedOver: readonly string[];
}

/** Undefined when the plugin does not know the variable. */
export function parseHandoverReply(stdout: string): readonly string[] | undefined {
  const { handedOver } = objectIn(stdout) ?? {};
  return Array.isArray(handedOver) ? handedOver.map(String) : undefined;
}

/** Bytes of standard error that are kept, from its end. */
export const MAX_STDERR_BYTES = 1024 * 1024;

/** How a plugin's process ended and what it printed. */
export interface Outcome {
  readonly exitCode?: number;
  readonly signal?: string;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * The JSON object that a plugin printed on success; undefined when it printed nothing.
 * @throws CniError 6 when it printed anything else
 */
export function parseReply(stdout: string, plugin: CalledPlugin): JsonObject | undefined {
  const trimmed = stdout.trim();
  if (trimmed === '') return undefined;
  // The reference's decoder reads null as an object without members.
  if (trimmed === 'null') return {};
  try {
    return parseObject(stdout, `output of plugin "${plugin.type}"`);
  } catch (cause) {
    throw decodingFailure((cause as Error).message, {
      cause,
      plugin,
      details: `printed ${quote(stdout.trim())}`,
    });
  }
}

/**
 * A plugin that could not be started. What the machine lacks for now, such as processes or descriptors, it may have a moment later.
 * @param why begins with the system's code
 */
export function startFailure(name: string, why: string, more: CniErrorOptions = {}): CniError {
  const code = FOR_NOW.test(why) ? ErrorCode.tryAgainLater : ErrorCode.unknown;
  const advice = why.startsWith('EAGAIN')
    ? '; raise the limit of processes (TasksMax= of the service, pids.max of its cgroup)'
    : '';
  return new CniError(code, `Cannot start plugin "${name}": ${why}${advice}`, more);
}

const FOR_NOW = /^(EAGAIN|EMFILE|ENFILE|ENOMEM)\b/;

/** The error that a failed plugin reported, or the best available description of a failure that it did not report. */
export function failureOf(outcome: Outcome, plugin: CalledPlugin): CniError {
  const ending = outcome.signal ? `ended by ${outcome.signal}` : `exit status ${outcome.exitCode}`;
  const reported = findErrorReply(outcome.stdout);
  if (reported && (reported.msg !== '' || reported.code !== 0)) {
    const text =
      reported.msg.trim() === ''
        ? `Plugin "${plugin.type}" failed with no error message: ${ending}`
        : reported.msg;
    return new CniError(reported.code, text, { details: reported.details, plugin });
  }
  if (outcome.stdout.trim() !== '') {
    return new CniError(
      ErrorCode.unknown,
      `Plugin "${plugin.type}" failed and its output is not a CNI error: ${quote(outcome.stdout.trim())}`,
      { details: ending, plugin },
    );
  }
  const said = saidBy(outcome.stderr);
  const words = said === '' ? 'no error message' : quote(said);
  return new CniError(ErrorCode.unknown, `Plugin "${plugin.type}" failed with ${words}: ${ending}`, {
    plugin,
  });
}

/** What a process printed before it failed. Of the report of a crash of Bun, the line with the cause: the machine is described before it. */
export function saidBy(stderr: string): string {
  return /^panic\(.*\): .*$/m.exec(stderr)?.[0] ?? stderr.trim();
}

function findErrorReply(stdout: string): { code: number; msg: string; details: string } | undefined {
  const value = objectIn(stdout);
  if (value === undefined) return undefined;
  const [code, msg, details] = [
    memberOf(value, 'code') ?? 0,
    memberOf(value, 'msg') ?? '',
    memberOf(value, 'details') ?? '',
  ];
  if (typeof code !== 'number' || !Number.isInteger(code) || code < 0) return undefined;
  if (typeof msg !== 'string' || typeof details !== 'string') return undefined;
  return { code, msg, details };
}
