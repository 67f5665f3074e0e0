// Which metrics does a daemon offer to Prometheus, with those of its gRPC server?
//
// This file loads all of prom-client, so only the daemon imports it.
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
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

/** What is counted of the watch. */
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
  const requestSeconds = new Histogram({
    name: 'catena_request_duration_seconds',
    help: 'Duration of a request from its start to its reply, without time in the queue.',
    labelNames: ['verb', 'network'],
    buckets: SECONDS,
    registers,
  });
  const linkSeconds = new Histogram({
    name: 'catena_link_duration_seconds',
    help: 'Duration of a plugin call.',
    labelNames: ['verb', 'network', 'link'],
    buckets: SECONDS,
    registers,
  });
  const requests = new Counter({
    name: 'catena_requests_total',
    help: 'Finished requests by result code, 0 for success.',
    labelNames: ['verb', 'network', 'code'],
    registers,
  });
  const links = new Counter({
    name: 'catena_link_calls_total',
    help: 'Plugin calls by result code, 0 for success.',
    labelNames: ['verb', 'network', 'link', 'code'],
    registers,
  });
  const queueSeconds = new Histogram({
    name: 'catena_queue_wait_seconds',
    help: 'Time that a request waited in the queue because too many were running.',
    buckets: SECONDS,
    registers,
  });
  const lockSeconds = new Histogram({
    name: 'catena_lock_wait_seconds',
    help: 'Time that a request waited for another request of its container, or for GC.',
    labelNames: ['verb'],
    buckets: SECONDS,
    registers,
  });
  addSources(sources, registers);
  return {
    registry,
    contentType: registry.contentType,
    render: () => registry.metrics(),
    observe({ verb, network, code, durationMs, queueMs, lockMs, links: called }) {
      requestSeconds.observe({ verb, network }, durationMs / 1000);
      requests.inc({ verb, network, code });
      if (queueMs !== undefined) queueSeconds.observe(queueMs / 1000);
      if (lockMs !== undefined) lockSeconds.observe({ verb }, lockMs / 1000);
      for (const one of called) {
        const labels = { verb: one.verb, network: one.network, link: one.link };
        linkSeconds.observe(labels, one.durationMs / 1000);
        links.inc({ ...labels, code: one.code });
      }
    },
  };
}

/** Adds what is read when a page is requested. */
function addSources(sources: MetricSources, registers: Registry[]): void {
  const read: Readers = { gauge: gaugesIn(registers), counter: countersIn(registers) };
  addLoad(sources, read);
  addAddresses(sources, read);
  addWatch(sources, read);
  addNodes(sources, read);
  addLosses(sources, read);
}

interface Readers {
  readonly gauge: ReturnType<typeof gaugesIn>;
  readonly counter: ReturnType<typeof countersIn>;
}

function addLoad(sources: MetricSources, { gauge }: Readers): void {
  gauge('catena_build_info', 'The running version; always 1.', ['version'], add => {
    add({ version: sources.version }, 1);
  });
  gauge('catena_workers', 'Worker processes by state.', ['state'], add => {
    for (const [state, number] of Object.entries(sources.workers())) add({ state }, number);
  });
  gauge('catena_requests', 'Requests in progress.', ['state'], add => {
    for (const [state, number] of Object.entries(sources.requests())) add({ state }, number);
  });
}

function addAddresses(sources: MetricSources, { gauge }: Readers): void {
  gauge('catena_attachments', 'Recorded attachments.', ['network'], add => {
    for (const [network, number] of sources.attachments()) add({ network }, number);
  });
  gauge('catena_leaked_records', 'Recorded attachments whose container no longer exists.', [], add => {
    add({}, sources.leaked());
  });
  gauge('catena_range_addresses_used', 'Addresses of a range that are leased.', ['network', 'range'], add => {
    for (const { network, range, used } of sources.ranges()) add({ network, range }, used);
  });
  gauge('catena_range_addresses', 'Addresses of a range that can be leased.', ['network', 'range'], add => {
    for (const { network, range, size } of sources.ranges()) add({ network, range }, size);
  });
  const ofPools = (name: string, help: string, key: 'blocks' | 'claimed' | 'nodes'): void =>
    gauge(name, help, ['network', 'pool'], add => {
      for (const { network, pool, ...counts } of sources.pools()) add({ network, pool }, counts[key]);
    });
  ofPools('catena_pool_blocks', 'Blocks of a pool of the cluster, when this node last saw all.', 'blocks');
  ofPools('catena_pool_blocks_claimed', 'Blocks of a pool that nodes had claimed then.', 'claimed');
  ofPools('catena_pool_nodes', 'Nodes that held blocks of a pool then.', 'nodes');
}

function addWatch(sources: MetricSources, { gauge, counter }: Readers): void {
  gauge('catena_watched_drift', 'Attachments that are not as their ADD made them.', ['state'], add => {
    const { drifted = [], givenUp = [] } = sources.watch() ?? {};
    add({ state: 'drifted' }, drifted.length);
    add({ state: 'given up' }, givenUp.length);
  });
  const checks = 'Checks of the watch, by outcome.';
  counter('catena_watch_checks_total', checks, 'outcome', () => sources.watch()?.checks);
  const repairs = 'Repairs by the watch, by outcome.';
  counter('catena_watch_repairs_total', repairs, 'outcome', () => sources.watch()?.repairs);
  const deletions =
    'Attachments that outlived their namespace and were to be deleted by the watch, by outcome.';
  counter('catena_watch_deletions_total', deletions, 'outcome', () => sources.watch()?.deletions);
}

function addNodes(sources: MetricSources, { gauge, counter }: Readers): void {
  gauge('catena_nodes', 'Other nodes of the cluster that are known.', [], add => {
    const { nodes } = sources.between() ?? {};
    if (nodes !== undefined) add({}, nodes);
  });
  const routes = 'Routes to blocks of other nodes: wanted, and problems with them.';
  gauge('catena_node_routes', routes, ['state'], add => {
    const between = sources.between();
    if (between === undefined) return;
    add({ state: 'wanted' }, between.routes);
    add({ state: 'problem' }, between.problems.length);
  });
  const changes =
    'Times that routes to other nodes were changed: as planned, or repaired after others changed them.';
  counter('catena_node_routes_changes_total', changes, 'why', () => sources.between()?.changes);
}

function addLosses(sources: MetricSources, { gauge, counter }: Readers): void {
  const declined = 'Calls that the daemon declined and left to the client, by reason.';
  counter('catena_declined_total', declined, 'reason', () =>
    Object.fromEntries(Object.entries(sources.declined()).map(([reason, { count }]) => [reason, count])),
  );
  gauge('catena_dropped', 'Dropped items: log lines, spans, traces.', ['kind'], add => {
    for (const [kind, number] of Object.entries(sources.dropped())) add({ kind }, number);
  });
}

/** Counts that are read on request, by the value of a label. */
function countersIn(registers: Registry[]) {
  return (
    name: string,
    help: string,
    label: string,
    read: () => Readonly<Record<string, number>> | undefined,
  ): void => {
    new Counter({
      ...{ name, help, labelNames: [label], registers },
      collect() {
        this.reset();
        for (const [value, count] of Object.entries(read() ?? {})) this.inc({ [label]: value }, count);
      },
    });
  };
}

/** Gauges that are filled on request; if a source fails, the other metrics are still served. */
function gaugesIn(registers: Registry[]) {
  return (
    name: string,
    help: string,
    labelNames: string[],
    fill: (add: (labels: Record<string, string>, value: number) => void) => void,
  ): void => {
    new Gauge({
      ...{ name, help, labelNames, registers },
      collect() {
        this.reset();
        try {
          fill((labels, value) => this.set(labels, value));
        } catch {
          this.reset();
        }
      },
    });
  };
}

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
