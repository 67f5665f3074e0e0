// How do spans reach a collector, and what if it is not available? (OTLP/HTTP with JSON)
//
// OpenTelemetry's own packages would do the same with a megabyte of code, timers and instrumentation, for a process that has one
// kind of span. We keep what they promise to users: the environment variables, the wire format, batches.

import { timeLimit } from '../wait.ts';
import { attributes, type OtlpSpan } from './otlp-span.ts';

/** The collector, and the resource that the spans belong to. */
export interface OtlpOptions {
  /** Full URL, including `/v1/traces`. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  /** Attributes of the resource, including `service.name`. */
  readonly resource: Readonly<Record<string, string>>;
}

/** Sends spans in batches. */
export interface OtlpExporter {
  /** Queues spans; they are dropped if the collector does not keep up. */
  add(spans: readonly OtlpSpan[]): void;
  readonly dropped: number;
  /** Sends the remaining spans, for at most a second: a collector that hangs must not hold up the end of the daemon. */
  close(): Promise<void>;
}

type Environment = Readonly<Record<string, string | undefined>>;

const TIMEOUT_MS = 10_000;

/** A batch is sent when it is full or its first span has waited this long. At most 16 batches are queued. */
const BATCH_SPANS = 512;
const BATCH_WAIT_MS = 2_000;
const CLOSE_MS = 1_000;
const MAX_WAITING_SPANS = 16 * BATCH_SPANS;

/**
 * Reads OpenTelemetry's variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `…_HEADERS`, `…_TIMEOUT`,
 * `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SDK_DISABLED`).
 * @param endpoint takes precedence over the variables
 * @returns undefined if there is no endpoint
 * @throws Error if it is not a URL
 */
export function findOtlpOptions(env: Environment, endpoint?: string): OtlpOptions | undefined {
  const own = env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT || undefined;
  const base = endpoint || (own ? undefined : env.OTEL_EXPORTER_OTLP_ENDPOINT || undefined);
  const url = base === undefined ? own : `${base.replace(/\/+$/, '')}/v1/traces`;
  if (url === undefined || env.OTEL_SDK_DISABLED === 'true') return undefined;
  if (!/^https?:$/.test(URL.parse(url)?.protocol ?? ''))
    throw new Error(`Cannot send traces to ${JSON.stringify(url)}: expected an http or https URL`);
  const timeout = Number(
    env.OTEL_EXPORTER_OTLP_TRACES_TIMEOUT || env.OTEL_EXPORTER_OTLP_TIMEOUT || TIMEOUT_MS,
  );
  return {
    url,
    headers: parsePairs(env.OTEL_EXPORTER_OTLP_TRACES_HEADERS || env.OTEL_EXPORTER_OTLP_HEADERS || ''),
    timeoutMs: timeout > 0 ? timeout : TIMEOUT_MS,
    resource: {
      ...parsePairs(env.OTEL_RESOURCE_ATTRIBUTES ?? ''),
      'service.name':
        env.OTEL_SERVICE_NAME || parsePairs(env.OTEL_RESOURCE_ATTRIBUTES ?? '')['service.name'] || 'catena',
    },
  };
}

/** Starts collecting; nothing is sent before there is a span. */
export function openOtlpExporter(options: OtlpOptions): OtlpExporter {
  let waiting: OtlpSpan[] = [];
  let dropped = 0;
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | undefined;
  const flush = (): Promise<void> => {
    clearTimeout(timer);
    timer = undefined;
    sending ??= sendAll().finally(() => {
      sending = undefined;
    });
    return sending;
  };
  const sendAll = async (): Promise<void> => {
    while (waiting.length) {
      const batch = waiting.splice(0, BATCH_SPANS);
      if (!(await post(options, batch))) dropped += batch.length;
    }
  };
  return {
    add(spans) {
      const room = MAX_WAITING_SPANS - waiting.length;
      dropped += Math.max(0, spans.length - room);
      waiting.push(...spans.slice(0, Math.max(0, room)));
      if (waiting.length >= BATCH_SPANS) void flush();
      else if (waiting.length) timer ??= setTimeout(flush, BATCH_WAIT_MS).unref();
    },
    get dropped() {
      return dropped;
    },
    async close() {
      const late = new Promise<void>(done => setTimeout(done, CLOSE_MS).unref());
      await Promise.race([flush(), late]);
      dropped += waiting.length;
      waiting = [];
    },
  };
}

/** A single attempt: keeping refused spans is not worth a daemon's memory. */
async function post(options: OtlpOptions, spans: readonly OtlpSpan[]): Promise<boolean> {
  try {
    const response = await fetch(options.url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...options.headers },
      body: JSON.stringify({
        resourceSpans: [
          {
            resource: { attributes: attributes(options.resource) },
            scopeSpans: [{ scope: { name: 'catena' }, spans }],
          },
        ],
      }),
      signal: timeLimit(options.timeoutMs),
    });
    await response.arrayBuffer();
    return response.ok;
  } catch {
    return false;
  }
}

/** `a=1,b=2`, values percent-encoded. */
function parsePairs(text: string): Record<string, string> {
  const pairs = text.split(',').flatMap(pair => {
    const at = pair.indexOf('=');
    return at > 0 ? [[pair.slice(0, at).trim(), decode(pair.slice(at + 1).trim())] as const] : [];
  });
  return Object.fromEntries(pairs);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
