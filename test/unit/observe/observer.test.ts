// Does every observation of a request arrive in every output, and is a failing output harmless?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseLogLevels } from '../../../src/observe/log-output.ts';
import { type ObserverOptions, openObserver } from '../../../src/observe/observer.ts';
import { listTraces } from '../../../src/observe/watcher.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-observer-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true, force: true }));

function options(more: Partial<ObserverOptions> = {}): ObserverOptions {
  return {
    levels: parseLogLevels('info,portmap=debug'),
    destinations: [{ kind: 'file', path: path.join(dir, 'log'), maxBytes: 1e6, maxFiles: 2 }],
    traceDir: path.join(dir, 'traces'),
    sources: {
      version: '1',
      workers: () => ({ idle: 0, busy: 0 }),
      declined: () => ({}),
      watch: () => undefined,
      between: () => undefined,
      requests: () => ({ running: 0, queued: 0 }),
      attachments: () => new Map(),
      leaked: () => 0,
      ranges: () => [],
      pools: () => [],
    },
    ...more,
  };
}

const FACTS = { verb: 'ADD', network: 'podnet', containerId: 'c1', ifname: 'eth0', netns: '/n' };
const PARENT = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
const logged = () => fs.readFileSync(path.join(dir, 'log'), 'utf8').split('\n').filter(Boolean);

describe('openObserver()', () => {
  test('writes a line, counts and keeps a trace', async () => {
    const observer = await openObserver(options());
    const request = observer.begin(FACTS, { TRACEPARENT: PARENT, A: '1' });
    // No output for spans: the caller's stays the parent of the plugins.
    expect(request.env).toEqual({ TRACEPARENT: PARENT, A: '1' });
    request.end({ result: {} });
    observer.log('debug', 'not this');
    observer.log('info', 'this', { a: 1 });
    expect(await observer.metrics.render()).toContain(
      'catena_requests_total{verb="ADD",network="podnet",code="0"} 1',
    );
    await observer.close();
    expect(logged().map(line => JSON.parse(line))).toMatchObject([
      { message: 'request finished', container_id: 'c1', trace_id: 'a'.repeat(32) },
      { message: 'this', a: 1 },
    ]);
    const [record] = listTraces(path.join(dir, 'traces')).records;
    expect(record).toMatchObject({ id: request.id, traceId: 'a'.repeat(32) });
    expect(observer.traces(request.id)).toMatchObject({
      kind: 'Request',
      id: request.id,
      traceId: 'a'.repeat(32),
    });
    expect(observer.traces('nothing')).toBeUndefined();
    expect(request.watch.tracesKernel).toBe(true);
    expect([request.watch.envOf?.('portmap'), request.watch.envOf?.('bridge')]).toEqual([
      { CATENA_LOG_LEVEL: 'debug' },
      {},
    ]);
  });

  test('writes after the requests beside it have their answers, and at the latest when it closes', async () => {
    const observer = await openObserver(options({ isBusy: () => true }));
    observer.begin(FACTS, {}).end({ result: {} });
    let isNoted = false;
    observer.afterwards(() => {
      isNoted = true;
    });
    await Bun.sleep(50);
    expect([fs.existsSync(path.join(dir, 'log')), isNoted]).toEqual([false, false]);
    await observer.close();
    expect([logged().length, isNoted]).toEqual([1, true]);
  });

  test('writes what a burst has left in parts, between which requests have their turn', async () => {
    const observer = await openObserver(options({}));
    let written = 0;
    let most = 0;
    for (let i = 0; i < 20; i++) {
      observer.afterwards(() => {
        Bun.sleepSync(2);
        written += 1;
      });
    }
    for (let before = 0; written < 20; before = written) {
      await new Promise(resolve => setImmediate(resolve));
      most = Math.max(most, written - before);
    }
    expect(most).toBeLessThan(10);
    await observer.close();
  });

  test('nests plugins below the request when spans are exported', async () => {
    const otlp = { url: 'http://127.0.0.1:1/v1/traces', headers: {}, timeoutMs: 100, resource: {} };
    const observer = await openObserver(options({ otlp }));
    const below = observer.begin(FACTS, { TRACEPARENT: PARENT });
    expect(below.env.TRACEPARENT).toMatch(new RegExp(`^00-${'a'.repeat(32)}-[\\da-f]{16}-01$`));
    expect(below.env.TRACEPARENT).not.toBe(PARENT);
    const first = observer.begin(FACTS, {});
    expect(first.env.TRACEPARENT).toMatch(/^00-[\da-f]{32}-[\da-f]{16}-01$/);
    const record = below.end({});
    expect(record.span).toMatchObject({ parentSpanId: 'b'.repeat(16), sampled: true });
    await observer.close();
    expect(await observer.metrics.render()).toContain('catena_dropped_total{kind="spans"} 1');
  });

  test('has plugins report kernel transactions only when there is an output for them', async () => {
    const otlp = { url: 'http://127.0.0.1:1/v1/traces', headers: {}, timeoutMs: 100, resource: {} };
    const noted = async (more: Partial<ObserverOptions>, parent: string) => {
      const observer = await openObserver(options({ traceDir: undefined, ...more }));
      const { watch } = observer.begin(FACTS, { TRACEPARENT: parent });
      await observer.close();
      return watch.tracesKernel;
    };
    expect(await noted({}, PARENT)).toBe(false);
    expect(await noted({ otlp }, PARENT)).toBe(true);
    expect(await noted({ otlp }, PARENT.replace(/01$/, '00'))).toBe(false);
  });

  test('switches outputs on request, and keeps the count of what the old ones lost', async () => {
    fs.writeFileSync(path.join(dir, 'file'), '');
    const file = (name: string) =>
      ({ kind: 'file', path: path.join(dir, name), maxBytes: 1e6, maxFiles: 2 }) as const;
    const { sources, ...first } = options({ destinations: [file('file/below')] });
    const observer = await openObserver({ ...first, sources });
    const begun = observer.begin(FACTS, {});
    observer.log('info', 'lost');
    const traceDir = path.join(dir, 'others');
    await observer.change({
      ...first,
      levels: parseLogLevels('debug'),
      destinations: [file('log')],
      traceDir,
    });
    begun.end({});
    observer.log('debug', 'kept');
    expect(begun.watch.envOf?.('portmap')).toEqual({});
    expect(observer.traces(begun.id)).toMatchObject({ id: begun.id });
    await observer.close();
    expect(logged().map(line => JSON.parse(line).message)).toEqual(['request finished', 'kept']);
    expect(fs.readdirSync(traceDir)).toEqual([`${begun.id}.json`]);
    expect(fs.existsSync(path.join(dir, 'traces'))).toBe(false);
    expect(await observer.metrics.render()).toContain('catena_dropped_total{kind="log"} 1');
  });

  test('counts what no output accepts, and still answers', async () => {
    fs.writeFileSync(path.join(dir, 'file'), '');
    const wrong = path.join(dir, 'file', 'below');
    const destinations = [{ kind: 'file', path: wrong, maxBytes: 1e6, maxFiles: 2 }] as const;
    const observer = await openObserver(options({ destinations, traceDir: wrong }));
    expect(observer.begin(FACTS, {}).end({ error: new Error('no') })).toMatchObject({ code: 999 });
    await observer.close();
    const page = await observer.metrics.render();
    expect(page).toContain('catena_dropped_total{kind="log"} 1');
    expect(page).toContain('catena_dropped_total{kind="traces"} 1');
  });
});
