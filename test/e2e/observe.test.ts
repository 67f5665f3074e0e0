// Can a request be followed afterwards: in the log, in the metrics, in a trace, by a collector, and over gRPC?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { CATENA } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { connectCoil } from '../helpers/coil-client.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { wholeLines } from '../helpers/lines.ts';
import { type Container, directories, type Lab, type Row, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

const POD = 'K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;IgnoreUnknown=1';

const TAGS = {
  'grpc.request.pod.name': 'web',
  'grpc.request.pod.namespace': 'shop',
  'grpc.request.ifname': 'eth0',
};

describeRoot('an observed daemon', () => {
  const makeLab = useLabs();

  test('logs a line per request and plugin, counts them, and keeps a trace that can be drawn', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const container = await lab.container();
    const log = path.join(lab.tmp, 'catena.log');
    const daemon = await startDaemon(lab, '--log', `file:${log}`);
    const added = await chain.add(container, { args: ['--args', POD] });
    expect(JSON.stringify(added)).not.toContain('transaction');
    expect((await chain.run('check', container)).exitCode).toBe(0);

    const place = { container_id: container.id, network: 'podnet', netns: container.path, ifname: 'eth0' };
    const pod = { pod_namespace: 'shop', pod_name: 'web' };
    const lines = await linesOnce(log, found => found.length >= 10);
    expect(lines.slice(0, 5)).toMatchObject([
      ...['bridge', 'portmap', 'bandwidth', 'tuning'].map((plugin, index) => {
        return {
          ...place,
          ...pod,
          message: 'plugin finished',
          command: 'ADD',
          plugin,
          plugin_index: index,
          code: 0,
        };
      }),
      { ...place, ...pod, level: 'info', message: 'request finished', command: 'ADD', code: 0, warm: true },
    ]);
    for (const line of lines) expect(line.duration_ms).toBeGreaterThan(0);

    const readMetrics = async () => (await (await daemon.fetch('/metrics')).text()).split('\n');
    // The watch may just run CHECK.
    await until(async () => (await readMetrics()).includes('catena_workers{state="busy"} 0'));
    const metrics = await readMetrics();
    for (const line of [
      'catena_requests_total{verb="ADD",network="podnet",code="0"} 1',
      'catena_plugin_calls_total{verb="CHECK",network="podnet",plugin="bridge",code="0"} 1',
      'catena_request_duration_seconds_count{verb="ADD",network="podnet"} 1',
      'catena_queue_wait_seconds_count 2',
      'catena_lock_wait_seconds_count{verb="ADD"} 1',
      'catena_attachments{network="podnet"} 1',
      'catena_leaked_records 0',
      'catena_range_addresses_used{network="podnet",range="10.88.0.0/16"} 1',
      'catena_range_addresses{network="podnet",range="10.88.0.0/16"} 65533',
    ])
      expect(metrics).toContain(line);

    const { items: traces } = (await (await daemon.fetch('/v1/traces')).json()) as {
      items: { id: string }[];
    };
    expect(traces).toMatchObject([{ verb: 'ADD', containerId: container.id }, { verb: 'CHECK' }]);
    const id = traces[0]?.id ?? '';
    expect(await (await daemon.fetch(`/v1/traces/${id}`)).json()).toMatchObject({
      id,
      plugins: { length: 4 },
    });
    expect((await daemon.fetch('/v1/traces/nothing')).status).toBe(404);
    const drawn = await trace(lab, id);
    expect(drawn).toContain('pod shop/web');
    expect(drawn).toMatch(/^ {2}bridge +█+ +[\d.]+ ms {2}\+ br0$/m);
    expect(drawn).toMatch(/\+ 10\.88\.0\.\d+\/16 gateway 10\.88\.0\.1$/m);
    expect(drawn).toMatch(/^ {2}tuning +█+/m);
    expect(drawn).toMatch(/kernel: \d+ transactions, [\d.]+ ms$/m);
    expect(await trace(lab, id, '--kernel')).toMatch(
      /^ {4}rtnetlink +▒+ +[\d.]+ ms {2}create link "br0" of kind bridge$/m,
    );
    const list = await trace(lab);
    expect(list.split('\n').filter(Boolean)).toHaveLength(3);
    expect((await chain.run('del', container)).exitCode).toBe(0);
  });

  test('reports failures, and honours the log level of each plugin', async () => {
    const lab = await makeLab();
    const list = fullChain(lab);
    list.plugins[3].sysctl = { 'net.core.nothing': '1' };
    const chain = writeChain(lab, list);
    const log = path.join(lab.tmp, 'catena.log');
    const daemon = await startDaemon(
      lab,
      '--log',
      `file:${log}`,
      '--log-level',
      'error,bridge=info',
      '--traces',
      '0',
    );
    expect((await chain.run('add', await lab.container())).exitCode).toBe(1);
    const lines = await linesOnce(log, found => found.some(line => line.message === 'request failed'));
    expect(lines.map(({ message, command, plugin }) => [message, command, plugin])).toEqual([
      ['plugin finished', 'ADD', 'bridge'],
      ['plugin failed', 'ADD', 'tuning'],
      ['plugin finished', 'DEL', 'bridge'],
      ['request failed', 'ADD', undefined],
    ]);
    expect(lines.at(-1)?.error).toContain('net.core.nothing');
    expect((await daemon.fetch('/v1/traces')).status).toBe(404);
  });

  test('continues the trace of its caller, and sends spans to a collector', async () => {
    const lab = await makeLab();
    const bodies: Row[] = [];
    const collector = Bun.serve({
      unix: path.join(lab.tmp, 'collector.sock'),
      async fetch(request) {
        bodies.push((await request.json()) as Row);
        return Response.json({});
      },
    });
    try {
      // The fake host has a network of its own: the way to the collector is a file.
      const relay = lab.start(lab.host, [
        process.execPath,
        path.join(import.meta.dir, '../fixtures/relay.ts'),
        '4318',
        path.join(lab.tmp, 'collector.sock'),
      ]);
      await relay.stdout.getReader().read();
      const chain = writeChain(lab, fullChain(lab));
      const daemon = await startDaemon(lab, '--otlp-endpoint', 'http://127.0.0.1:4318', '--log', 'none');
      const container = await lab.container();
      const [traceId, parent] = ['ab'.repeat(16), 'cd'.repeat(8)];
      const argv = [CATENA, 'add', 'podnet', container.path, '--file', `${lab.tmp}/podnet.conflist`];
      const env = { ...directories(lab.tmp), TRACEPARENT: `00-${traceId}-${parent}-01` };
      expect((await lab.run(lab.host, [...argv, '--bin-dir', BIN_DIR], { env })).exitCode).toBe(0);
      expect(await daemon.stop()).toBe(0);
      const all = bodies.flatMap(body => body.resourceSpans[0].scopeSpans[0].spans) as Row[];
      const spans = all.slice(0, 5);
      expect(spans.map(({ name }) => name)).toEqual([
        'ADD podnet',
        'ADD bridge',
        'ADD portmap',
        'ADD bandwidth',
        'ADD tuning',
      ]);
      const [request, ...links] = spans;
      const kernel = all.slice(5);
      const created = kernel.find(({ name }) => name === 'create link "br0" of kind bridge');
      expect(created).toMatchObject({ traceId, parentSpanId: links[0]?.spanId });
      const above = new Set(links.map(({ spanId }) => spanId));
      expect(kernel.filter(({ parentSpanId }) => !above.has(parentSpanId))).toEqual([]);
      expect(request).toMatchObject({ traceId, parentSpanId: parent });
      for (const link of links) expect(link).toMatchObject({ traceId, parentSpanId: request?.spanId });
      await chain.run('del', container);
    } finally {
      await collector.stop(true);
    }
  });

  test("serves a client written for coil's proto, with tags in the log and counts in the metrics", async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const log = path.join(lab.tmp, 'catena.log');
    const socket = path.join(lab.tmp, 'grpc.sock');
    const daemon = await startDaemon(lab, '--log', `file:${log}`, '--grpc-socket', socket);
    const client = connectCoil(socket);
    const before = await lab.dump(lab.host, IGNORED);
    const call = callOf(container, fullChain(lab));

    const added = await client.call('Add', call);
    if (!('ok' in added)) throw new Error(JSON.stringify(added));
    const result = JSON.parse(Buffer.from(String(added.ok.result), 'base64').toString());
    expect(result).toMatchObject({
      cniVersion: '1.0.0',
      ips: [{ gateway: '10.88.0.1' }, { gateway: 'fd88::1' }],
    });
    expect(await ping(lab, container, '10.88.0.1')).toBe(true);
    expect(await client.call('Check', call)).toEqual({ ok: {} });
    await lab.ip(container, 'link', 'set', 'eth0', 'mtu', '1300');
    expect(await client.call('Check', call)).toMatchObject({ errors: [{ msg: expect.any(String) }] });
    expect(await client.call('Del', call)).toEqual({ ok: {} });
    expect(await client.call('Del', call)).toEqual({ ok: {} });
    expect(await lab.dump(lab.host, IGNORED)).toMatchObject({ links: before.links });

    const wrong = { ...call, stdin_data: Buffer.from('{') };
    expect(await client.call('Add', wrong)).toMatchObject({ code: 3, errors: [{ code: 6 }] });
    client.close();

    const areCalls = ({ message }: Row) => message === 'call finished';
    const lines = await linesOnce(log, found => found.filter(areCalls).length >= 6);
    const calls = lines.filter(areCalls);
    expect(calls.map(line => [line['grpc.method'], line['grpc.code']])).toEqual([
      ['Add', 'OK'],
      ['Check', 'OK'],
      ['Check', expect.any(String)],
      ['Del', 'OK'],
      ['Del', 'OK'],
      ['Add', 'InvalidArgument'],
    ]);
    expect(calls[0]).toMatchObject({
      ...TAGS,
      'grpc.request.netns': container.path,
      'grpc.request.container_id': container.id,
      'grpc.service': 'pkg.cnirpc.CNI',
      'grpc.method_type': 'unary',
      protocol: 'grpc',
    });
    const links = lines.filter(({ plugin, command }) => plugin && command === 'ADD');
    expect(links.slice(0, 4)).toMatchObject(
      ['bridge', 'portmap', 'bandwidth', 'tuning'].map(plugin => ({
        plugin,
        pod_name: 'web',
        network: 'podnet',
      })),
    );
    const metrics = (await (await daemon.fetch('/metrics')).text()).split('\n');
    const labels = 'grpc_type="unary",grpc_service="pkg.cnirpc.CNI"';
    for (const line of [
      `grpc_server_started_total{${labels},grpc_method="Add"} 2`,
      `grpc_server_handled_total{${labels},grpc_method="Add",grpc_code="OK"} 1`,
      `grpc_server_handled_total{${labels},grpc_method="Add",grpc_code="InvalidArgument"} 1`,
      `grpc_server_handled_total{${labels},grpc_method="Del",grpc_code="OK"} 2`,
      `grpc_server_handling_seconds_count{${labels},grpc_method="Del"} 2`,
      'catena_requests_total{verb="DEL",network="podnet",code="0"} 2',
    ])
      expect(metrics).toContain(line);
    expect(await daemon.stop()).toBe(0);
    expect(fs.existsSync(socket)).toBe(false);
  });
});

describeRoot('a command without a daemon', () => {
  const makeLab = useLabs();

  test('keeps a trace when asked to, and none otherwise', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const container = await lab.container();
    await chain.add(container, { args: ['--trace'] });
    expect((await chain.run('del', container)).exitCode).toBe(0);
    const rows = (await trace(lab)).split('\n').filter(Boolean);
    expect(rows).toHaveLength(2);
    const id = rows[1]?.split(' ')[0] ?? '';
    expect(await trace(lab, id)).toContain('by a command');
    const { exitCode, stderr } = await lab.run(lab.host, [CATENA, 'log', 'nothing'], {
      env: directories(lab.tmp),
    });
    expect({ exitCode, stderr }).toEqual({
      exitCode: 1,
      stderr: expect.stringContaining('Cannot find trace "nothing"'),
    });
  });
});

const IGNORED = { ignoreTables: ['inet catena_masquerade', 'inet catena_portmap'] };

function callOf(container: Container, list: Row): Row {
  return {
    container_id: container.id,
    netns: container.path,
    ifname: 'eth0',
    args: { K8S_POD_NAME: 'web', K8S_POD_NAMESPACE: 'shop', IS_CHAINED: 'false' },
    path: BIN_DIR,
    stdin_data: Buffer.from(JSON.stringify(list)),
  };
}

async function trace(lab: Lab, ...args: string[]): Promise<string> {
  const { exitCode, stdout, stderr } = await lab.run(
    lab.host,
    [CATENA, 'log', ...(args.length ? args : ['--requests'])],
    {
      env: directories(lab.tmp),
    },
  );
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
  return stdout;
}

/** What the log has of requests, plugins and calls: the daemon tells of its watch there, too. */
function linesIn(file: string): Row[] {
  const lines = wholeLines(file).map(line => JSON.parse(line) as Row);
  return lines.filter(line => 'command' in line || 'grpc.method' in line);
}

/** A reply reaches the client before its line reaches the log. */
async function linesOnce(file: string, areThere: (lines: Row[]) => boolean): Promise<Row[]> {
  let lines: Row[] = [];
  await until(() => {
    lines = linesIn(file);
    return areThere(lines);
  });
  return lines;
}
