// How is a request shown in OpenTelemetry, and how do its spans reach a collector? (OTLP/HTTP with JSON)

import { newSpanId } from '../chain/run/trace-context.ts';
import { attempt } from '../cni/errors.ts';
import { defined } from '../cni/json.ts';
import { timeLimit } from '../wait.ts';
import type { FinishRecord, PluginRecord, RequestRecord, RequestSpan, TransactionRecord } from './record.ts';

/** A span in the JSON of OTLP/HTTP (opentelemetry/proto/trace/v1/trace.proto; ids in hexadecimal). */
interface OtlpSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly OtlpAttribute[];
  readonly status: { readonly code: number; readonly message?: string };
}

/** One attribute. 64-bit numbers are strings. */
interface OtlpAttribute {
  readonly key: string;
  readonly value:
    | { readonly stringValue: string }
    | { readonly intValue: string }
    | { readonly boolValue: boolean };
}

// trace.proto: SpanKind and StatusCode
const SPAN_KIND_INTERNAL = 1;
const SPAN_KIND_SERVER = 2;
const SPAN_KIND_CLIENT = 3;
const STATUS_CODE_UNSET = 0;
const STATUS_CODE_OK = 1;
const STATUS_CODE_ERROR = 2;

/** The spans of a request; none if its caller did not want it sampled, or if it belongs to no trace. */
export function spansOf(record: RequestRecord): OtlpSpan[] {
  const { span, plugins, finishes = [] } = record;
  if (!span?.sampled) return [];
  const parents = [
    ...plugins.flatMap(plugin => pluginSpan(record, plugin)),
    ...finishes.map(finish => finishSpan(record, span, finish)),
  ];
  // Kernel spans come last, since the last ones are dropped if there is no room for all.
  return [requestSpan(record, span), ...parents.map(one => one.span), ...parents.flatMap(kernelSpans)];
}

function requestSpan(record: RequestRecord, span: RequestSpan): OtlpSpan {
  const { verb, network, containerId, ifname, netns, podNamespace, podName, code, warm, queueMs, lockMs } =
    record;
  return {
    ...frameOf(span, `${verb} ${network}`, SPAN_KIND_SERVER, record.startedAt, record.durationMs),
    attributes: attributes({
      'cni.command': verb,
      'cni.network': network,
      'cni.container_id': containerId,
      'cni.ifname': ifname,
      'cni.netns': netns,
      'cni.code': code,
      'k8s.namespace.name': podNamespace,
      'k8s.pod.name': podName,
      'catena.request': record.id,
      'catena.warm': warm,
      'catena.queue_ms': queueMs === undefined ? undefined : Math.round(queueMs),
      'catena.lock_ms': lockMs === undefined ? undefined : Math.round(lockMs),
    }),
    status: statusOf(record),
  };
}

/** A span, and the kernel transactions below it. */
interface Parent {
  readonly span: OtlpSpan;
  /** Unix time in milliseconds. */
  readonly beganAt: number;
  readonly transactions: readonly TransactionRecord[] | undefined;
}

function pluginSpan({ startedAt, containerId }: RequestRecord, plugin: PluginRecord): Parent[] {
  if (plugin.span === undefined) return [];
  const beganAt = startedAt + plugin.startMs;
  const name = `${plugin.verb} ${plugin.type}`;
  const span = {
    ...frameOf(plugin.span, name, SPAN_KIND_INTERNAL, beganAt, plugin.durationMs),
    attributes: attributes({
      'cni.command': plugin.verb,
      'cni.network': plugin.network,
      'cni.container_id': containerId,
      'cni.plugin': plugin.type,
      'cni.plugin_index': plugin.index,
      'cni.code': plugin.code,
      'process.executable.path': plugin.executable,
    }),
    status: statusOf(plugin),
  };
  return [{ span, beganAt, transactions: plugin.transactions }];
}

/** Deferred removals belong to no single plugin, so their span is a child of the request's. */
function finishSpan(
  { startedAt, containerId }: RequestRecord,
  request: RequestSpan,
  { network, verb, startMs, durationMs, transactions }: FinishRecord,
): Parent {
  const beganAt = startedAt + startMs;
  const span = {
    ...frameOf(childOf(request), `${verb} removals`, SPAN_KIND_INTERNAL, beganAt, durationMs),
    attributes: attributes({ 'cni.command': verb, 'cni.network': network, 'cni.container_id': containerId }),
    status: { code: STATUS_CODE_UNSET },
  };
  return { span, beganAt, transactions };
}

/** A kernel error is not a failure in itself: plugins ask for objects that may not exist. */
function kernelSpans({ span, beganAt, transactions = [] }: Parent): OtlpSpan[] {
  return transactions.map(({ family, what, startMs, durationMs, error }) => ({
    ...frameOf(childOf(span), what, SPAN_KIND_CLIENT, beganAt + startMs, durationMs),
    attributes: attributes({ 'catena.kernel.family': family, 'catena.kernel.refusal': error }),
    status: { code: STATUS_CODE_UNSET },
  }));
}

type SpanIds = Pick<RequestSpan, 'traceId' | 'spanId' | 'parentSpanId'>;

function childOf({ traceId, spanId }: SpanIds): SpanIds {
  return { traceId, spanId: newSpanId(), parentSpanId: spanId };
}

/** What every span has. Nanoseconds since 1970 do not fit into a number. */
function frameOf(
  { traceId, spanId, parentSpanId }: SpanIds,
  name: string,
  kind: number,
  startMs: number,
  durationMs: number,
): Omit<OtlpSpan, 'attributes' | 'status'> {
  const nanos = (ms: number): string => String(BigInt(Math.round(ms * 1000)) * 1000n);
  const times = { startTimeUnixNano: nanos(startMs), endTimeUnixNano: nanos(startMs + durationMs) };
  return { traceId, spanId, ...defined({ parentSpanId }), name, kind, ...times };
}

function statusOf({ code, message }: Pick<PluginRecord, 'code' | 'message'>): OtlpSpan['status'] {
  if (code === 0) return { code: STATUS_CODE_OK };
  return { code: STATUS_CODE_ERROR, ...defined({ message }) };
}

/** Attributes of an object, without undefined ones. */
function attributes(
  values: Readonly<Record<string, string | number | boolean | undefined>>,
): OtlpAttribute[] {
  return Object.entries(values).flatMap(([key, value]) =>
    value === undefined ? [] : [{ key, value: toValue(value) }],
  );
}

function toValue(value: string | number | boolean): OtlpAttribute['value'] {
  if (typeof value === 'boolean') return { boolValue: value };
  return typeof value === 'number' ? { intValue: String(value) } : { stringValue: value };
}

// OpenTelemetry's own packages would do the same with a megabyte of code, timers and instrumentation, for a process that has one
// kind of span. We keep what they promise to users: the environment variables, the wire format, batches.

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
  const timeout = Number(env.OTEL_EXPORTER_OTLP_TRACES_TIMEOUT || env.OTEL_EXPORTER_OTLP_TIMEOUT);
  const resource = parsePairs(env.OTEL_RESOURCE_ATTRIBUTES);
  return {
    url,
    headers: parsePairs(env.OTEL_EXPORTER_OTLP_TRACES_HEADERS || env.OTEL_EXPORTER_OTLP_HEADERS),
    timeoutMs: timeout > 0 ? timeout : TIMEOUT_MS,
    resource: {
      ...resource,
      'service.name': env.OTEL_SERVICE_NAME || resource['service.name'] || 'catena',
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
      const batch = waiting.slice(0, BATCH_SPANS);
      const isSent = await post(options, batch);
      // Given up in between, and counted then.
      if (waiting.length === 0) return;
      waiting.splice(0, batch.length);
      if (!isSent) dropped += batch.length;
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
function parsePairs(text = ''): Record<string, string> {
  const pairs = text.split(',').flatMap(pair => {
    const at = pair.indexOf('=');
    const value = pair.slice(at + 1).trim();
    return at > 0
      ? [[pair.slice(0, at).trim(), attempt(() => decodeURIComponent(value)) ?? value] as const]
      : [];
  });
  return Object.fromEntries(pairs);
}
