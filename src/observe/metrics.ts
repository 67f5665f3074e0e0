// Which metrics does a daemon offer to Prometheus, with those of its gRPC server?
//
// This file loads all of prom-client, so only the daemon imports it.
import { Counter, Gauge, Histogram, type MetricConfiguration, Registry } from 'prom-client';
import type { AnswerOf } from '../cli/answers/kinds.ts';
import type { SeenPool } from '../cni/plugin-about.ts';
import type { RangeUse } from '../ipam/range-use.ts';
import type { RequestRecord } from './record.ts';

/** What is read when the metrics are requested, and not before. */
export interface MetricSources {
  readonly version: string;
  workers(): { readonly idle: number; readonly busy: number };
  requests(): { readonly running: number; readonly queued: number };
  /** Recorded attachments by network. */
  attachments(): ReadonlyMap<string, number>;
  /** Recorded attachments whose container is gone. */
  leaked(): number;
  ranges(): readonly RangeUse[];
  /** Pools of a whole cluster, as this node saw them last. */
  pools(): readonly (SeenPool & { readonly network: string })[];
  /** Calls that were declined and left to their clients, by reason. */
  declined(): Readonly<Record<string, { readonly count: number }>>;
  /** What the watch over attachments has found; undefined before it begins. */
  watch(): Watched | undefined;
  /** The routes to other nodes; undefined if there are none to keep. */
  between(): Between | undefined;
  /** Log lines, spans and traces that could not be delivered. */
  dropped(): { readonly log: number; readonly spans: number; readonly traces: number };
}

export type Watched = Pick<
  NonNullable<AnswerOf<'DaemonState'>['watch']>,
  'drifted' | 'givenUp' | 'checks' | 'repairs' | 'deletions'
>;

/** What is counted of the routes to other nodes. */
export interface Between {
  readonly nodes: number;
  readonly routes: number;
  readonly problems: readonly unknown[];
  readonly changes: Readonly<Record<string, number>>;
}

/** All our metrics; the gRPC server adds its own to the same registry. */
export interface Metrics {
  readonly registry: Registry;
  /** Counts a finished request and its plugins. */
  observe(record: RequestRecord): void;
  /** The page for Prometheus (text format 0.0.4). */
  render(): Promise<string>;
  readonly contentType: string;
}

/** From a plugin in a warm worker to one that runs until its deadline. */
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** Creates the registry; nothing is read yet. */
export function openMetrics(sources: MetricSources): Metrics {
  const registry = new Registry();
  const registers = [registry];
  const seconds = (name: string, help: string, labelNames: readonly string[]) =>
    new Histogram({ name, help, labelNames, buckets: SECONDS, registers });
  const counter = (name: string, help: string, labelNames: readonly string[]) =>
    new Counter({ name, help, labelNames, registers });
  const ofRequest = ['verb', 'network'];
  const ofPlugin = [...ofRequest, 'plugin'];
  const duration = 'Duration of a request from its start to its reply, without time in the queue.';
  const requestSeconds = seconds('catena_request_duration_seconds', duration, ofRequest);
  const linkSeconds = seconds('catena_plugin_duration_seconds', 'Duration of a plugin call.', ofPlugin);
  const finished = 'Finished requests by result code, 0 for success.';
  const requests = counter('catena_requests_total', finished, [...ofRequest, 'code']);
  const called = 'Plugin calls by result code, 0 for success.';
  const calls = counter('catena_plugin_calls_total', called, [...ofPlugin, 'code']);
  const queued = 'Time that a request waited in the queue because too many were running.';
  const queueSeconds = seconds('catena_queue_wait_seconds', queued, []);
  const waited = 'Time that a request waited for another request of its container, or for GC.';
  const lockSeconds = seconds('catena_lock_wait_seconds', waited, ['verb']);
  addSources(sources, registers);
  const keep = keepSeries();
  const count = (time: Histogram, total: Counter, labels: OfNetwork, code: number, ms: number): void => {
    const counted = { ...labels, code };
    time.observe(labels, ms / 1000);
    total.inc(counted);
    keep(labels.network, JSON.stringify(counted), () => {
      time.remove(labels);
      total.remove(counted);
    });
  };
  return {
    registry,
    contentType: registry.contentType,
    render: () => registry.metrics(),
    observe({ verb, network, code, durationMs, queueMs, lockMs, plugins }) {
      count(requestSeconds, requests, { verb, network }, code, durationMs);
      if (queueMs !== undefined) queueSeconds.observe(queueMs / 1000);
      if (lockMs !== undefined) lockSeconds.observe({ verb }, lockMs / 1000);
      for (const { type: plugin, ...one } of plugins)
        count(linkSeconds, calls, { verb: one.verb, network: one.network, plugin }, one.code, one.durationMs);
    },
  };
}

type OfNetwork = Readonly<Record<string, string>> & { readonly network: string };

/** Networks whose requests are counted. Runtimes make networks with new names for ever, and each has a hundred lines on the page. */
const MOST_NETWORKS = 500;

/** @returns what keeps a series, and forgets those of the network whose last request is the oldest if there are too many networks */
function keepSeries() {
  const known = new Map<string, Map<string, () => void>>();
  return (network: string, series: string, forget: () => void): void => {
    const own = known.get(network) ?? new Map<string, () => void>();
    known.delete(network);
    known.set(network, own.set(series, forget));
    for (const [oldest, all] of known) {
      if (known.size <= MOST_NETWORKS) break;
      for (const end of all.values()) end();
      known.delete(oldest);
    }
  };
}

/** Values of the labels, in their order, and the number. */
type Row = readonly [...labels: string[], value: number];

/** Adds what is read when a page is requested. */
function addSources(sources: MetricSources, registers: Registry[]): void {
  const { gauge, counter } = readersIn(registers);
  gauge('catena_build_info', 'The running version; always 1.', ['version'], () => [[sources.version, 1]]);
  gauge('catena_workers', 'Worker processes by state.', ['state'], () => Object.entries(sources.workers()));
  const running = 'Requests in progress.';
  gauge('catena_requests_in_progress', running, ['state'], () => Object.entries(sources.requests()));
  gauge('catena_attachments', 'Recorded attachments.', ['network'], () => sources.attachments());
  const leaked = 'Recorded attachments whose container no longer exists.';
  gauge('catena_leaked_records', leaked, [], () => [[sources.leaked()]]);
  const ofRanges = (name: string, help: string, key: 'used' | 'size'): void =>
    gauge(name, help, ['network', 'range'], () =>
      sources.ranges().map(({ network, range, ...counts }) => [network, range, counts[key]]),
    );
  ofRanges('catena_range_addresses_used', 'Addresses of a range that are leased.', 'used');
  ofRanges('catena_range_addresses', 'Addresses of a range that can be leased.', 'size');
  const ofPools = (name: string, help: string, key: 'blocks' | 'claimed' | 'nodes'): void =>
    gauge(name, help, ['network', 'pool'], () =>
      sources.pools().map(({ network, pool, ...counts }) => [network, pool, counts[key]]),
    );
  ofPools('catena_pool_blocks', 'Blocks of a pool of the cluster, when this node last saw all.', 'blocks');
  ofPools('catena_pool_blocks_claimed', 'Blocks of a pool that nodes had claimed then.', 'claimed');
  ofPools('catena_pool_nodes', 'Nodes that held blocks of a pool then.', 'nodes');
  gauge('catena_watched_drift', 'Attachments that are not as their ADD made them.', ['state'], () => {
    const { drifted = [], givenUp = [] } = sources.watch() ?? {};
    return Object.entries({ drifted: drifted.length, 'given up': givenUp.length });
  });
  const ofWatch = (name: string, help: string, key: 'checks' | 'repairs' | 'deletions'): void =>
    counter(name, help, ['outcome'], () => Object.entries(sources.watch()?.[key] ?? {}));
  ofWatch('catena_watch_checks_total', 'Checks of the watch, by outcome.', 'checks');
  ofWatch('catena_watch_repairs_total', 'Repairs by the watch, by outcome.', 'repairs');
  const deleted =
    'Attachments that outlived their namespace and were to be deleted by the watch, by outcome.';
  ofWatch('catena_watch_deletions_total', deleted, 'deletions');
  addNodes(sources, { gauge, counter });
  const declined = 'Calls that the daemon declined and left to the client, by reason.';
  counter('catena_declined_total', declined, ['reason'], () =>
    Object.entries(sources.declined()).map(([reason, { count }]) => [reason, count]),
  );
  const dropped = 'Dropped items: log lines, spans, traces.';
  counter('catena_dropped_total', dropped, ['kind'], () => Object.entries(sources.dropped()));
}

function addNodes({ between }: MetricSources, { gauge, counter }: ReturnType<typeof readersIn>): void {
  const nodes = 'Other nodes of the cluster that are known.';
  gauge('catena_nodes', nodes, [], () => {
    const known = between();
    return known ? [[known.nodes]] : [];
  });
  const routes = 'Routes to blocks of other nodes: wanted, and problems with them.';
  gauge('catena_node_routes', routes, ['state'], () => {
    const { routes, problems } = between() ?? {};
    return problems ? Object.entries({ wanted: routes ?? 0, problem: problems.length }) : [];
  });
  const changes =
    'Times that routes to other nodes were changed: as planned, or repaired after others changed them.';
  counter('catena_node_routes_changes_total', changes, ['why'], () =>
    Object.entries(between()?.changes ?? {}),
  );
}

type AddRead = (name: string, help: string, labelNames: readonly string[], read: () => Iterable<Row>) => void;

/** Metrics that are filled on request; if a source fails, the other metrics are still served. */
function readersIn(registers: Registry[]): { readonly gauge: AddRead; readonly counter: AddRead } {
  const open =
    (Kind: new (config: MetricConfiguration<string>) => Gauge | Counter): AddRead =>
    (name, help, labelNames, read) => {
      const clear = (): void => {
        metric.reset();
        // One without labels is set to 0 by that, which would be a value.
        if (labelNames.length === 0) metric.remove();
      };
      const collect = (): void => {
        clear();
        try {
          for (const row of read()) {
            const labels = Object.fromEntries(labelNames.map((label, i) => [label, String(row[i])]));
            const value = Number(row.at(-1));
            if (metric instanceof Gauge) metric.set(labels, value);
            else metric.inc(labels, value);
          }
        } catch {
          clear();
        }
      };
      const metric = new Kind({ name, help, labelNames, registers, collect });
    };
  return { gauge: open(Gauge), counter: open(Counter) };
}

/** A method; the labels of every metric. */
interface Method {
  readonly type: string;
  readonly service: string;
  readonly method: string;
}

interface GrpcMetrics {
  started(method: Method): void;
  received(method: Method): void;
  sent(method: Method): void;
  finished(call: Method & { readonly code: string; readonly durationMs: number }): void;
}

const LABELS = ['grpc_type', 'grpc_service', 'grpc_method'];

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
  const counter = (name: string, help: string, labelNames: readonly string[] = LABELS) =>
    new Counter({ name: `grpc_server_${name}`, help, labelNames, registers });
  const started = counter('started_total', 'Total number of RPCs started on the server.');
  const arrived = 'Total number of RPC stream messages received on the server.';
  const received = counter('msg_received_total', arrived);
  const sent = counter('msg_sent_total', 'Total number of gRPC stream messages sent by the server.');
  const completed = 'Total number of RPCs completed on the server, regardless of success or failure.';
  const handled = counter('handled_total', completed, [...LABELS, 'grpc_code']);
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

function labelsOf({ type, service, method }: Method): Record<string, string> {
  return { grpc_type: type, grpc_service: service, grpc_method: method };
}
