// How does the protocol represent a failure, and which error codes exist?

/** Error codes of the CNI specification 1.1.0, section "Error", and of the reference skeleton (8, 999). */
export const ErrorCode = {
  /** Failures detected by the runtime itself. */
  unknown: 0,
  /** "Incompatible CNI version" */
  incompatibleVersion: 1,
  /** "Unsupported field in network configuration. The error message must contain the key and value of the unsupported field." */
  unsupportedField: 2,
  /** "Container unknown or does not exist." The runtime need not call DEL. */
  unknownContainer: 3,
  /** "Invalid necessary environment variables [...] The error message must contain the names of invalid variables." */
  invalidEnvironment: 4,
  /** "I/O failure. For example, failed to read network config bytes from stdin." */
  ioFailure: 5,
  /** "Failed to decode content." */
  decodingFailure: 6,
  /** "Invalid network config." */
  invalidConfig: 7,
  /** The path is not a namespace, or is the plugin's own (reference skeleton; not in the specification's table). */
  invalidNetns: 8,
  /** "Try again later." */
  tryAgainLater: 11,
  /** "The plugin is not available (i.e. cannot service ADD requests)" (STATUS). */
  unavailable: 50,
  /** "The plugin is not available, and existing containers in the network may have limited connectivity." (STATUS) */
  unavailableLimited: 51,
  /** Any failure that a plugin did not classify. */
  internal: 999,
} as const;

/**
 * A code of our own (100 and up are free for plugins), used by several plugins: the address belongs to another attachment,
 * which still exists. Listed in their READMEs.
 */
export const ADDRESS_TAKEN = 101;

/** Which plugin of which network failed, and how its process ended; added by the runner. */
export interface CalledPlugin {
  readonly network: string;
  /** Type of the plugin, as in the configuration. */
  readonly type: string;
  readonly index: number;
  readonly executable?: string;
  readonly verb: string;
  readonly exitCode?: number;
  readonly signal?: string;
  /** Why the runner ended the process: it missed its deadline, printed too much, or the caller gave up. */
  readonly ended?: 'deadline' | 'output' | 'interrupt';
  readonly durationMs?: number;
  /** The end of its standard error, even when standard output contains the error. */
  readonly stderr?: string;
}

/** What {@link CniError} takes besides code and message. */
export interface CniErrorOptions {
  readonly details?: string;
  readonly cause?: unknown;
  readonly plugin?: CalledPlugin;
}

/** A protocol failure. It renders itself as the JSON of the specification. */
export class CniError extends Error {
  override readonly name = 'CniError';
  readonly code: number;
  readonly details: string | undefined;
  readonly plugin: CalledPlugin | undefined;

  constructor(code: number, message: string, options: CniErrorOptions = {}) {
    super(clip(message), options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details ? clip(options.details) : undefined;
    this.plugin = options.plugin;
  }

  /** The error object of the specification, section "Error"; `cniVersion` first when known. */
  toReply(cniVersion?: string): ErrorReply {
    return {
      ...(cniVersion ? { cniVersion } : {}),
      code: this.code,
      msg: this.message,
      ...(this.details === undefined ? {} : { details: this.details }),
    };
  }
}

type Failure = (message: string, options?: CniErrorOptions) => CniError;

const failure =
  (code: number): Failure =>
  (message, options) =>
    new CniError(code, message, options);

/** A configuration, or what a request asks for, that cannot be used: code 7. */
export const invalidConfig = failure(ErrorCode.invalidConfig);
/** Variables of a call that are missing or wrong: code 4. */
export const invalidEnvironment = failure(ErrorCode.invalidEnvironment);
/** A text that is not what it should be: code 6. */
export const decodingFailure = failure(ErrorCode.decodingFailure);
/** What fails now, and may succeed the next time: code 11. */
export const tryAgainLater = failure(ErrorCode.tryAgainLater);

/**
 * What refuses the options of a plugin, before anything is changed.
 * @param findProblem says what is wrong with them, human-readable; undefined if nothing is
 * @returns a function that throws CniError 7
 */
export function validatorOf<C>(
  plugin: string,
  findProblem: (conf: C) => string | undefined,
): (conf: C) => void {
  return conf => {
    const problem = findProblem(conf);
    if (problem) throw invalidConfig(`Cannot use ${plugin} configuration: ${problem}`);
  };
}

/** Maximum length of an error text, in characters. People read it, and it is stored in logs, records and traces. */
const MAX_TEXT = 16_000;

/** Errors quote input from callers, which can be of any length. */
function clip(text: string): string {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}… (${text.length} characters in all)` : text;
}

export interface ErrorReply {
  readonly cniVersion?: string;
  readonly code: number;
  readonly msg: string;
  readonly details?: string;
}

/**
 * Converts any thrown value to a CniError. A CniError in the cause chain keeps its code, and the surrounding messages are
 * added to the details. Anything else gets code 999; no other place assigns that code to a foreign error.
 */
export function toCniError(thrown: unknown): CniError {
  if (thrown instanceof CniError) return thrown;
  const inner = findCniError(thrown);
  const text = describeError(thrown);
  if (inner === undefined) return new CniError(ErrorCode.internal, text, { cause: thrown });
  return new CniError(inner.code, inner.message, {
    details: [inner.details, text].filter(Boolean).join('; '),
    cause: thrown,
    ...(inner.plugin === undefined ? {} : { plugin: inner.plugin }),
  });
}

/** The message of a thrown value followed by the messages of its causes, without repetitions. */
export function describeError(thrown: unknown): string {
  const parts: string[] = [];
  for (
    let at: unknown = thrown;
    at !== undefined && at !== null;
    at = at instanceof Error ? at.cause : undefined
  ) {
    const text = at instanceof Error ? at.message : String(at);
    if (!parts.some(part => part.includes(text))) parts.push(text);
  }
  if (thrown instanceof AggregateError) for (const one of thrown.errors) parts.push(describeError(one));
  // Of nothing, and of an error without a message, there is at least the name.
  return parts.filter(Boolean).join(': ') || String(thrown);
}

/** What the work returns; undefined if it throws, for callers to whom the reason makes no difference. */
export function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

/** Like {@link attempt}, for work that returns nothing that is needed. */
export function succeeds(work: () => unknown): boolean {
  try {
    work();
    return true;
  } catch {
    return false;
  }
}

/**
 * What the work returns, or undefined if it throws a protocol error, which is only told.
 * @param codes of such errors; any other error is thrown
 */
export function orTell<T>(
  tell: ((problem: CniError) => void) | undefined,
  work: () => T,
  codes?: readonly number[],
): T | undefined {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof CniError) || codes?.includes(error.code) === false) throw error;
    tell?.(error);
    return undefined;
  }
}

function findCniError(thrown: unknown): CniError | undefined {
  for (let at: unknown = thrown; at instanceof Error; at = at.cause) if (at instanceof CniError) return at;
  return undefined;
}
