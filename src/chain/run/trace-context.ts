// Which trace (W3C Trace Context) does a chain belong to, and which span of it is each plugin?

/** The call of one plugin as part of a trace, with what an exporter needs. */
export interface PluginSpan {
  /** 32 hexadecimal digits, the caller's. */
  readonly traceId: string;
  /** 16 hexadecimal digits, new for every call of a plugin. */
  readonly spanId: string;
  readonly parentSpanId: string;
  /** Whether the caller records its part of the trace. */
  readonly sampled: boolean;
}

/** The content of the caller's `TRACEPARENT`. */
interface TraceParent {
  readonly traceId: string;
  readonly spanId: string;
  /** The flags that are defined: 1 sampled, 2 random trace id. */
  readonly flags: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** sampled and random; a sender must set all others to zero. */
const KNOWN_FLAGS = 0x03;
const SAMPLED = 0x01;

/**
 * Reads `version-traceid-parentid-flags`. Versions above 00 may have more after the flags, which is ignored.
 * @returns undefined for what the recommendation calls invalid (section 3.2)
 */
export function parseTraceParent(text: string): TraceParent | undefined {
  const match = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/.exec(text);
  const [, version, traceId = '', spanId = '', flags = '', more] = match ?? [];
  if (version === undefined || version === 'ff' || (version === '00' && more !== undefined)) return undefined;
  if (isZero(traceId) || isZero(spanId)) return undefined;
  return { traceId, spanId, flags: Number.parseInt(flags, 16) & KNOWN_FLAGS };
}

/** A new span below the caller's. */
export function startSpan(parent: TraceParent): PluginSpan {
  return {
    traceId: parent.traceId,
    spanId: newSpanId(),
    parentSpanId: parent.spanId,
    sampled: (parent.flags & SAMPLED) !== 0,
  };
}

export function startTrace(): Omit<PluginSpan, 'parentSpanId'> {
  return { traceId: newId(16), spanId: newSpanId(), sampled: true };
}

/** 16 hexadecimal digits. */
export function newSpanId(): string {
  return newId(8);
}

/** A span as `TRACEPARENT`, for its children. */
export function renderTraceParent({ traceId, spanId, sampled }: Omit<PluginSpan, 'parentSpanId'>): string {
  return `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`;
}

/** The caller's trace, from its environment. */
export function findTraceParent(env: Environment): TraceParent | undefined {
  return env.TRACEPARENT === undefined ? undefined : parseTraceParent(env.TRACEPARENT);
}

/**
 * The tracing variables for a plugin: `TRACEPARENT` with the plugin's own span; `TRACESTATE` and `BAGGAGE` stay
 * unchanged. Without a valid parent there is no trace to continue, and its state must be removed too (section 3.3).
 */
export function traceEnv(parent: TraceParent | undefined, span: PluginSpan | undefined): Environment {
  if (parent === undefined || span === undefined) return { TRACEPARENT: undefined, TRACESTATE: undefined };
  const flags = parent.flags.toString(16).padStart(2, '0');
  return { TRACEPARENT: `00-${span.traceId}-${span.spanId}-${flags}` };
}

function newId(length: number): string {
  const bytes = crypto.getRandomValues(new Uint8Array(length));
  const id = Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('');
  return isZero(id) ? newId(length) : id;
}

function isZero(id: string): boolean {
  return /^0+$/.test(id);
}
