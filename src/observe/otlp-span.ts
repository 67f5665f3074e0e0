// How is a request shown in OpenTelemetry: one span for itself, for each plugin, and for each kernel transaction?
import { newSpanId } from '../chain/run/trace-context.ts';
import { defined } from '../cni/defined.ts';
import type { FinishRecord, PluginRecord, RequestRecord, RequestSpan, TransactionRecord } from './record.ts';

/** A span in the JSON of OTLP/HTTP (opentelemetry/proto/trace/v1/trace.proto; ids in hexadecimal). */
export interface OtlpSpan {
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
export interface OtlpAttribute {
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
  const { span } = record;
  if (!span?.sampled) return [];
  const links = record.links.flatMap(plugin => pluginSpan(record, plugin));
  const finishes = (record.finishes ?? []).map(finish => finishSpan(record, span, finish));
  // Kernel spans come last, since the last ones are dropped if there is no room for all.
  const kernel = [...links, ...finishes].flatMap(one => kernelSpans(one));
  return [requestSpan(record, span), ...[...links, ...finishes].map(one => one.span), ...kernel];
}

function requestSpan(record: RequestRecord, { traceId, spanId, parentSpanId }: RequestSpan): OtlpSpan {
  const { verb, network, containerId, ifname, netns, podNamespace, podName, code, warm, queueMs, lockMs } =
    record;
  return {
    traceId,
    spanId,
    ...defined({ parentSpanId }),
    name: `${verb} ${network}`,
    kind: SPAN_KIND_SERVER,
    ...timesOf(record.startedAt, record.durationMs),
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
  const { traceId, spanId, parentSpanId } = plugin.span;
  const beganAt = startedAt + plugin.startMs;
  const span = {
    traceId,
    spanId,
    ...defined({ parentSpanId }),
    name: `${plugin.verb} ${plugin.link}`,
    kind: SPAN_KIND_INTERNAL,
    ...timesOf(beganAt, plugin.durationMs),
    attributes: attributes({
      'cni.command': plugin.verb,
      'cni.network': plugin.network,
      'cni.container_id': containerId,
      'cni.link': plugin.link,
      'cni.link_index': plugin.index,
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
    traceId: request.traceId,
    spanId: newSpanId(),
    parentSpanId: request.spanId,
    name: `${verb} removals`,
    kind: SPAN_KIND_INTERNAL,
    ...timesOf(beganAt, durationMs),
    attributes: attributes({
      'cni.command': verb,
      'cni.network': network,
      'cni.container_id': containerId,
    }),
    status: { code: STATUS_CODE_UNSET },
  };
  return { span, beganAt, transactions };
}

/** A kernel error is not a failure in itself: plugins ask for objects that may not exist. */
function kernelSpans({ span, beganAt, transactions = [] }: Parent): OtlpSpan[] {
  return transactions.map(({ family, what, startMs, durationMs, error }) => ({
    traceId: span.traceId,
    spanId: newSpanId(),
    parentSpanId: span.spanId,
    name: what,
    kind: SPAN_KIND_CLIENT,
    ...timesOf(beganAt + startMs, durationMs),
    attributes: attributes({ 'catena.kernel.family': family, 'catena.kernel.refusal': error }),
    status: { code: STATUS_CODE_UNSET },
  }));
}

/** Nanoseconds since 1970 do not fit into a number. */
function timesOf(
  startMs: number,
  durationMs: number,
): Pick<OtlpSpan, 'startTimeUnixNano' | 'endTimeUnixNano'> {
  const nanos = (ms: number): string => String(BigInt(Math.round(ms * 1000)) * 1000n);
  return { startTimeUnixNano: nanos(startMs), endTimeUnixNano: nanos(startMs + durationMs) };
}

function statusOf({ code, message }: Pick<PluginRecord, 'code' | 'message'>): OtlpSpan['status'] {
  if (code === 0) return { code: STATUS_CODE_OK };
  return { code: STATUS_CODE_ERROR, ...defined({ message }) };
}

/** Attributes of an object, without undefined ones. */
export function attributes(
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
