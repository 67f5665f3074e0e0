// What does one call of a plugin consist of, besides the executable, and what is its answer?
import { CniError, ErrorCode } from './errors.ts';
import { isObject, type JsonObject, memberOf, tryParse } from './json.ts';

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
export function objectIn(text: string): JsonObject | undefined {
  const value = tryParse(text);
  return isObject(value) ? value : undefined;
}

/** The error that a failed call has printed. */
export function errorIn({ stdout }: Pick<Reply, 'stdout'>): CniError {
  const { code, msg, details } = objectIn(stdout) ?? {};
  return new CniError(
    typeof code === 'number' ? code : ErrorCode.internal,
    typeof msg === 'string' ? msg : 'Cannot report the failure: the call returned no error',
    typeof details === 'string' ? { details } : {},
  );
}
