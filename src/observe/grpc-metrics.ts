// Which metrics does the gRPC server have, named as dashboards of its Prometheus middleware expect?
import { Counter, Histogram, type Registry } from 'prom-client';

/** A method; the labels of every metric. */
interface Method {
  readonly type: string;
  readonly service: string;
  readonly method: string;
}

/** Notified of calls. */
interface GrpcMetrics {
  started(method: Method): void;
  received(method: Method): void;
  sent(method: Method): void;
  finished(call: Method & { readonly code: string; readonly durationMs: number }): void;
}

const LABELS = ['grpc_type', 'grpc_service', 'grpc_method'] as const;

/** Seconds; the same buckets as in the middleware. */
const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/**
 * Adds the metrics to a registry.
 * @param known methods that are shown with zeros before their first call
 * @param codes every code of gRPC by its name
 */
export function addGrpcMetrics(
  registry: Registry,
  known: readonly Method[],
  codes: readonly string[],
): GrpcMetrics {
  const registers = [registry];
  const counter = (name: string, help: string) =>
    new Counter({ name: `grpc_server_${name}`, help, labelNames: LABELS, registers });
  const started = counter('started_total', 'Total number of RPCs started on the server.');
  const received = counter(
    'msg_received_total',
    'Total number of RPC stream messages received on the server.',
  );
  const sent = counter('msg_sent_total', 'Total number of gRPC stream messages sent by the server.');
  const handled = new Counter({
    name: 'grpc_server_handled_total',
    help: 'Total number of RPCs completed on the server, regardless of success or failure.',
    labelNames: [...LABELS, 'grpc_code'],
    registers,
  });
  const seconds = new Histogram({
    name: 'grpc_server_handling_seconds',
    help: 'Histogram of response latency (seconds) of gRPC that had been application-level handled by the server.',
    labelNames: LABELS,
    buckets: BUCKETS,
    registers,
  });
  for (const method of known) {
    for (const one of [started, received, sent]) one.inc(labelsOf(method), 0);
    for (const code of codes) handled.inc({ ...labelsOf(method), grpc_code: code }, 0);
    seconds.zero(labelsOf(method));
  }
  return {
    started: method => started.inc(labelsOf(method)),
    received: method => received.inc(labelsOf(method)),
    sent: method => sent.inc(labelsOf(method)),
    finished(call) {
      handled.inc({ ...labelsOf(call), grpc_code: call.code });
      seconds.observe(labelsOf(call), call.durationMs / 1000);
    },
  };
}

function labelsOf({ type, service, method }: Method): Record<(typeof LABELS)[number], string> {
  return { grpc_type: type, grpc_service: service, grpc_method: method };
}
