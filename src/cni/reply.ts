// What do a plugin's exit code, standard output and standard error mean?
import { type CalledPlugin, CniError, ErrorCode } from './errors.ts';
import { isObject, type JsonObject, memberOf, parseObject, quote, tryParse } from './json.ts';

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
      details: `printed ${quote(stdout.trim())}`,
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
      `Plugin "${plugin.type}" failed and its output is not a CNI error: ${quote(outcome.stdout.trim())}`,
      { details: ending, plugin },
    );
  }
  const words = outcome.stderr.trim() === '' ? 'no error message' : quote(outcome.stderr.trim());
  return new CniError(ErrorCode.unknown, `Plugin "${plugin.type}" failed with ${words}: ${ending}`, {
    plugin,
  });
}

function findErrorReply(stdout: string): { code: number; msg: string; details: string } | undefined {
  const value = tryParse(stdout);
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
