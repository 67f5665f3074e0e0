// Do finished requests become the numbers that the names promise?
import { describe, expect, test } from 'bun:test';
import { addGrpcMetrics, type MetricSources, openMetrics } from '../../../src/observe/metrics.ts';
import type { RequestRecord } from '../../../src/observe/record.ts';

const SOURCES: MetricSources = {
  version: '1.2.3',
  workers: () => ({ idle: 1, busy: 2 }),
  declined: () => ({ build: { count: 2 } }),
  watch: () => undefined,
  between: () => undefined,
  requests: () => ({ running: 3, queued: 4 }),
  attachments: () => new Map([['podnet', 5]]),
  leaked: () => 6,
  ranges: () => [{ network: 'podnet', range: '10.1.0.0/24', used: 7, size: 253 }],
  pools: () => [{ network: 'podnet', pool: 'default', blocks: 64, claimed: 9, nodes: 4 }],
  dropped: () => ({ log: 8, spans: 9, traces: 10 }),
};

const RECORD: RequestRecord = {
  id: 'mi7000000001',
  verb: 'ADD',
  network: 'podnet',
  containerId: 'c1',
  ifname: 'eth0',
  netns: '/n',
  startedAt: 0,
  durationMs: 20,
  queueMs: 2,
  lockMs: 3,
  code: 11,
  warm: true,
  plugins: [
    {
      network: 'podnet',
      type: 'bridge',
      index: 0,
      executable: '/b',
      verb: 'ADD',
      startMs: 0,
      durationMs: 15,
      code: 0,
    },
  ],
};

describe('openMetrics()', () => {
  test('exposes observations and values that are looked up', async () => {
    const metrics = openMetrics(SOURCES);
    metrics.observe(RECORD);
    const page = (await metrics.render()).split('\n');
    for (const line of [
      'catena_request_duration_seconds_count{verb="ADD",network="podnet"} 1',
      'catena_request_duration_seconds_bucket{le="0.01",verb="ADD",network="podnet"} 0',
      'catena_request_duration_seconds_bucket{le="0.025",verb="ADD",network="podnet"} 1',
      'catena_plugin_duration_seconds_sum{verb="ADD",network="podnet",plugin="bridge"} 0.015',
      'catena_requests_total{verb="ADD",network="podnet",code="11"} 1',
      'catena_plugin_calls_total{verb="ADD",network="podnet",plugin="bridge",code="0"} 1',
      'catena_queue_wait_seconds_sum 0.002',
      'catena_lock_wait_seconds_sum{verb="ADD"} 0.003',
      'catena_build_info{version="1.2.3"} 1',
      'catena_declined_total{reason="build"} 2',
      'catena_workers{state="busy"} 2',
      'catena_requests_in_progress{state="queued"} 4',
      'catena_attachments{network="podnet"} 5',
      'catena_leaked_records 6',
      'catena_range_addresses_used{network="podnet",range="10.1.0.0/24"} 7',
      'catena_range_addresses{network="podnet",range="10.1.0.0/24"} 253',
      'catena_dropped_total{kind="spans"} 9',
    ])
      expect(page).toContain(line);
    const names = page.flatMap(line => /^# TYPE (\S+)/.exec(line)?.[1] ?? []);
    expect(names.filter(name => !name.startsWith('catena_'))).toEqual([]);
  });

  test('forgets the network whose last request is the oldest, beyond 500', async () => {
    const metrics = openMetrics(SOURCES);
    const [plugin] = RECORD.plugins;
    if (plugin === undefined) throw new Error('unreachable');
    const ask = (network: string) =>
      metrics.observe({ ...RECORD, network, plugins: [{ ...plugin, network }] });
    ask('kept');
    for (let i = 0; i < 499; i++) ask(`net${i}`);
    ask('kept');
    for (let i = 499; i < 598; i++) ask(`net${i}`);
    const page = await metrics.render();
    expect(page).toContain('catena_requests_total{verb="ADD",network="kept",code="11"} 2');
    expect(new Set([...page.matchAll(/network="(net\d+)"/g)].map(([, name]) => name)).size).toBe(499);
    expect(page).not.toContain('"net98"');
    expect(page).toContain(
      'catena_plugin_calls_total{verb="ADD",network="net99",plugin="bridge",code="0"} 1',
    );
  });

  test('omits a source that fails', async () => {
    const gone = () => {
      throw new Error('gone');
    };
    const page = await openMetrics({ ...SOURCES, ranges: gone, leaked: gone }).render();
    expect(page).toContain('catena_attachments{network="podnet"} 5');
    expect(page).not.toMatch(/^catena_(range_addresses|leaked_records|nodes)\b/m);
  });
});

describe('addGrpcMetrics()', () => {
  test('has the names of the middleware, with zeros before the first call', async () => {
    const { registry } = openMetrics(SOURCES);
    const method = { type: 'unary', service: 'pkg.cnirpc.CNI', method: 'Add' };
    const metrics = addGrpcMetrics(registry, [method], ['OK', 'Internal']);
    const labels = 'grpc_type="unary",grpc_service="pkg.cnirpc.CNI",grpc_method="Add"';
    expect(await registry.metrics()).toContain(`grpc_server_handled_total{${labels},grpc_code="Internal"} 0`);
    metrics.started(method);
    metrics.received(method);
    metrics.sent(method);
    metrics.finished({ ...method, code: 'OK', durationMs: 20 });
    const page = await registry.metrics();
    for (const line of [
      `grpc_server_started_total{${labels}} 1`,
      `grpc_server_msg_received_total{${labels}} 1`,
      `grpc_server_msg_sent_total{${labels}} 1`,
      `grpc_server_handled_total{${labels},grpc_code="OK"} 1`,
      `grpc_server_handling_seconds_count{${labels}} 1`,
    ])
      expect(page).toContain(line);
  });
});
