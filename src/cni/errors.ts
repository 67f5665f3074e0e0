// How does a failure look in the protocol, and which codes are there?

/** Error codes of the CNI specification 1.1.0, section "Error", and of the reference skeleton (8, 999). */
export const ErrorCode = {
  /** Failures that the runtime itself noticed. */
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
  /** The namespace is not one, or is the plugin's own (reference skeleton; not in the specification's table). */
  invalidNetns: 8,
  /** "Try again later." */
  tryAgainLater: 11,
  /** "The plugin is not available (i.e. cannot service ADD requests)" (STATUS). */
  unavailable: 50,
  /** "The plugin is not available, and existing containers in the network may have limited connectivity." (STATUS) */
  unavailableLimited: 51,
  /** Anything a plugin did not classify. */
  internal: 999,
} as const;

/** Which link of which network failed, and how its process ended; added by the runner. */
export interface LinkFailure {
  readonly network: string;
  readonly link: string;
  readonly index: number;
  readonly executable?: string;
  readonly verb: string;
  readonly exitCode?: number;
  readonly signal?: string;
  /** The runner ended it: past its deadline, for printing without end, or because the caller gave up. */
  readonly ended?: 'deadline' | 'output' | 'interrupt';
  readonly durationMs?: number;
  /** The end of what it said on standard error, even where standard output held the error. */
  readonly stderr?: string;
}

/** What {@link CniError} takes besides code and message. */
export interface CniErrorOptions {
  readonly details?: string;
  readonly cause?: unknown;
  readonly link?: LinkFailure;
}

/** A failure in terms of the protocol. It renders itself as the JSON of the specification. */
export class CniError extends Error {
  override readonly name = 'CniError';
  readonly code: number;
  readonly details: string | undefined;
  readonly link: LinkFailure | undefined;

  constructor(code: number, message: string, options: CniErrorOptions = {}) {
    super(clip(message), options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details ? clip(options.details) : undefined;
    this.link = options.link;
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

/** Longest text of an error, in characters. People read it, and it goes into logs, records and traces. */
const MAX_TEXT = 16_000;

/** What was found may be as long as a caller likes, and is quoted in what is said about it. */
function clip(text: string): string {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}… (${text.length} characters in all)` : text;
}

/** Error object as plugins print it. */
export interface ErrorReply {
  readonly cniVersion?: string;
  readonly code: number;
  readonly msg: string;
  readonly details?: string;
}

/**
 * Any thrown value as a CniError: one in the cause chain keeps its code, and the text around it becomes part of the
 * details; everything else is code 999. This is the only place that makes a 999 out of a stranger.
 */
export function toCniError(thrown: unknown): CniError {
  if (thrown instanceof CniError) return thrown;
  const inner = findCniError(thrown);
  const text = describeError(thrown);
  if (inner === undefined) return new CniError(ErrorCode.internal, text, { cause: thrown });
  return new CniError(inner.code, inner.message, {
    details: [inner.details, text].filter(Boolean).join('; '),
    cause: thrown,
    ...(inner.link ? { link: inner.link } : {}),
  });
}

/** The message of a thrown value followed by the messages of its causes, each once. */
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
  return parts.join(': ');
}

function findCniError(thrown: unknown): CniError | undefined {
  for (let at: unknown = thrown; at instanceof Error; at = at.cause) if (at instanceof CniError) return at;
  return undefined;
}
