// Do spans reach a collector in its format, and is an absent collector harmless?
import { describe, expect, test } from 'bun:test';
import { findOtlpOptions, openOtlpExporter, spansOf } from '../../../src/observe/otlp.ts';
import type { RequestRecord } from '../../../src/observe/record.ts';
import { until } from '../../helpers/until.ts';

const SPAN = { traceId: 'a'.repeat(32), spanId: 'b'.repeat(16), parentSpanId: 'c'.repeat(16), sampled: true };

const RECORD: RequestRecord = {
  id: 'mi7000000001',
  verb: 'ADD',
  network: 'podnet',
  containerId: 'c1',
  ifname: 'eth0',
  netns: '/n',
  startedAt: 1_700_000_000_000,
  durationMs: 5.5,
  code: 7,
  message: 'no',
  warm: true,
  span: SPAN,
  plugins: [
    {
      network: 'podnet',
      type: 'bridge',
      index: 0,
      executable: '/b',
      verb: 'ADD',
      startMs: 1,
      durationMs: 2,
      code: 0,
      span: { ...SPAN, spanId: 'd'.repeat(16), parentSpanId: SPAN.spanId },
    },
  ],
};

async function withCollector(
  answer: (body: string) => Response | Promise<Response>,
  work: (url: string, requests: Request[]) => Promise<void>,
): Promise<void> {
  const requests: Request[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    async fetch(request) {
      requests.push(request);
      return answer(await request.text());
    },
  });
  try {
    await work(`http://127.0.0.1:${server.port}`, requests);
  } finally {
    await server.stop(true);
  }
}

describe('spansOf()', () => {
  test('returns a span for the request and one below it for each plugin', () => {
    expect(spansOf(RECORD)).toMatchObject([
      {
        traceId: SPAN.traceId,
        spanId: SPAN.spanId,
        parentSpanId: SPAN.parentSpanId,
        name: 'ADD podnet',
        kind: 2,
        startTimeUnixNano: '1700000000000000000',
        endTimeUnixNano: '1700000000005500000',
        status: { code: 2, message: 'no' },
      },
      {
        traceId: SPAN.traceId,
        spanId: 'd'.repeat(16),
        parentSpanId: SPAN.spanId,
        name: 'ADD bridge',
        kind: 1,
        startTimeUnixNano: '1700000000001000000',
        endTimeUnixNano: '1700000000003000000',
        status: { code: 1 },
      },
    ]);
  });

  test('nests kernel transactions below their plugin, and deferred ones below a span of their own', () => {
    const transactions = [
      { family: 'rtnetlink', what: 'find link "br0"', startMs: 0.5, durationMs: 0.25, error: 'ENODEV' },
    ];
    const [plugin] = RECORD.plugins;
    const finishes = [{ network: 'podnet', verb: 'DEL', startMs: 3, durationMs: 2, transactions }];
    const spans = spansOf({ ...RECORD, plugins: plugin ? [{ ...plugin, transactions }] : [], finishes });
    expect(spans.map(({ name }) => name)).toEqual([
      'ADD podnet',
      'ADD bridge',
      'DEL removals',
      'find link "br0"',
      'find link "br0"',
    ]);
    const [, , removals, below, late] = spans;
    expect(removals).toMatchObject({ parentSpanId: SPAN.spanId, startTimeUnixNano: '1700000000003000000' });
    expect(below).toMatchObject({
      traceId: SPAN.traceId,
      parentSpanId: 'd'.repeat(16),
      kind: 3,
      status: { code: 0 },
      startTimeUnixNano: '1700000000001500000',
      endTimeUnixNano: '1700000000001750000',
      attributes: [
        { key: 'catena.kernel.family', value: { stringValue: 'rtnetlink' } },
        { key: 'catena.kernel.refusal', value: { stringValue: 'ENODEV' } },
      ],
    });
    expect(late).toMatchObject({ parentSpanId: removals?.spanId, startTimeUnixNano: '1700000000003500000' });
  });

  test('returns none when the caller records nothing', () => {
    expect(spansOf({ ...RECORD, span: { ...SPAN, sampled: false } })).toEqual([]);
    const { span: _, ...without } = RECORD;
    expect(spansOf(without)).toEqual([]);
  });
});

describe('openOtlpExporter()', () => {
  test('posts the remaining spans when it ends, with headers and resource', async () => {
    let body = '';
    const answer = (text: string) => {
      body = text;
      return Response.json({});
    };
    await withCollector(answer, async (url, requests) => {
      const env = { OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=a%20b', OTEL_RESOURCE_ATTRIBUTES: 'host.name=n1' };
      const options = findOtlpOptions(env, url);
      if (!options) throw new Error('no options');
      const exporter = openOtlpExporter(options);
      exporter.add(spansOf(RECORD));
      const began = performance.now();
      await exporter.close();
      // On a busy machine even a collector that answers at once may take longer than it is waited for.
      if (performance.now() - began < 1_000) expect(exporter.dropped).toBe(0);
      await until(() => body !== '');
      expect(requests.map(({ url: to, headers }) => [to, headers.get('x-tenant')])).toEqual([
        [`${url}/v1/traces`, 'a b'],
      ]);
      const [resourceSpans] = JSON.parse(body).resourceSpans;
      expect(resourceSpans.resource.attributes).toEqual([
        { key: 'host.name', value: { stringValue: 'n1' } },
        { key: 'service.name', value: { stringValue: 'catena' } },
      ]);
      expect(resourceSpans.scopeSpans[0].spans).toHaveLength(2);
    });
  });

  test('drops and counts spans that a collector does not accept, or not in time', async () => {
    const resource = {};
    await withCollector(
      () => new Response('full', { status: 503 }),
      async url => {
        const exporter = openOtlpExporter({ url, headers: {}, timeoutMs: 1_000, resource });
        exporter.add(spansOf(RECORD));
        await exporter.close();
        expect(exporter.dropped).toBe(2);
      },
    );
    const gone = openOtlpExporter({ url: 'http://127.0.0.1:1', headers: {}, timeoutMs: 1_000, resource });
    gone.add(spansOf(RECORD));
    await gone.close();
    expect(gone.dropped).toBe(2);
    await withCollector(
      () => new Promise(() => {}),
      async url => {
        // A collector that hangs holds up the end for a second, whatever its timeout.
        const exporter = openOtlpExporter({ url, headers: {}, timeoutMs: 60_000, resource });
        for (let i = 0; i < 10_000; i += 1) exporter.add(spansOf(RECORD));
        await exporter.close();
        expect(exporter.dropped).toBe(10_000 * spansOf(RECORD).length);
      },
    );
  });
});

describe('findOtlpOptions()', () => {
  test('reads the variables of OpenTelemetry', () => {
    const url = (env: Record<string, string>, endpoint?: string) => findOtlpOptions(env, endpoint)?.url;
    expect(url({})).toBeUndefined();
    expect(url({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318/' })).toBe('http://c:4318/v1/traces');
    expect(url({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://c/x' })).toBe('http://c/x');
    expect(url({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://c/x' }, 'http://d')).toBe('http://d/v1/traces');
    expect(url({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c', OTEL_SDK_DISABLED: 'true' })).toBeUndefined();
    expect(() => url({ OTEL_EXPORTER_OTLP_ENDPOINT: 'c:4317' })).toThrow('expected an http or https URL');
    expect(
      findOtlpOptions({ OTEL_SERVICE_NAME: 's', OTEL_EXPORTER_OTLP_TIMEOUT: '500' }, 'http://c'),
    ).toMatchObject({
      timeoutMs: 500,
      resource: { 'service.name': 's' },
    });
  });
});
