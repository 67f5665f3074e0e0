// What do a plugin's exit code, standard output and standard error mean?
import { type CalledPlugin, CniError, ErrorCode } from './errors.ts';
import { isObject, type JsonObject, memberOf, parseObject } from './json.ts';

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
    throw new CniError(ErrorCode.decodingFailure, (cause as Error).message, {
      cause,
      plugin,
      details: `printed ${quote(stdout)}`,
    });
  }
}

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
      `Plugin "${plugin.type}" failed and its output is not a CNI error: ${quote(outcome.stdout)}`,
      { details: ending, plugin },
    );
  }
  const words = outcome.stderr.trim() === '' ? 'no error message' : quote(outcome.stderr);
  return new CniError(ErrorCode.unknown, `Plugin "${plugin.type}" failed with ${words}: ${ending}`, {
    plugin,
  });
}

function findErrorReply(stdout: string): { code: number; msg: string; details: string } | undefined {
  let value: unknown;
  try {
    value = JSON.parse(stdout);
  } catch {
    return undefined;
  }
  if (!isObject(value)) return undefined;
  const [code, msg, details] = [
    memberOf(value, 'code') ?? 0,
    memberOf(value, 'msg') ?? '',
    memberOf(value, 'details') ?? '',
  ];
  if (typeof code !== 'number' || !Number.isInteger(code) || code < 0) return undefined;
  if (typeof msg !== 'string' || typeof details !== 'string') return undefined;
  return { code, msg, details };
}

/** Quotes enough of a text to recognise it, on one line. */
function quote(text: string): string {
  const limit = 1000;
  const trimmed = text.trim();
  return JSON.stringify(trimmed.length > limit ? `${trimmed.slice(0, limit)}…` : trimmed);
}
