// Is everything that is to be known of a request kept, and nothing that is secret?
import { describe, expect, test } from 'bun:test';
import type { PluginEvent } from '../../../src/chain/run/runtime.ts';
import { CniError } from '../../../src/cni/errors.ts';
import { orderStarts, startRequest } from '../../../src/observe/record.ts';

/** In capitals, which no id of a request has: those are random. */
const SECRET = 'ABC';

const FACTS = {
  verb: 'ADD',
  network: 'podnet',
  containerId: 'c1',
  ifname: 'eth0',
  netns: '/run/netns/a',
  args: [
    ['K8S_POD_NAMESPACE', 'shop'],
    ['K8S_POD_NAME', 'web'],
    ['VPN_TOKEN', SECRET],
  ],
} as const;

const EVENT: PluginEvent = {
  network: 'podnet',
  plugin: 'bridge',
  index: 0,
  executable: '/opt/cni/bin/bridge',
  verb: 'ADD',
  durationMs: 2,
  stderr: `token=${SECRET}\n`,
  result: { cniVersion: '1.1.0', apiKey: SECRET },
};

describe('startRequest()', () => {
  test('keeps the request, the pod and every plugin', () => {
    const request = startRequest({ ...FACTS, by: 'daemon', queueMs: 1.5, traceId: 'a'.repeat(32) });
    request.onTurn(2);
    request.onTurn(3);
    request.onPlugin(EVENT);
    const record = request.end({ result: { cniVersion: '1.1.0' } });
    expect(record).toMatchObject({
      id: request.id,
      verb: 'ADD',
      network: 'podnet',
      containerId: 'c1',
      ifname: 'eth0',
      podNamespace: 'shop',
      podName: 'web',
      warm: true,
      queueMs: 1.5,
      lockMs: 5,
      code: 0,
      netns: '/run/netns/a',
      traceId: 'a'.repeat(32),
      result: { cniVersion: '1.1.0' },
      plugins: [{ type: 'bridge', index: 0, verb: 'ADD', durationMs: 2, code: 0 }],
    });
    expect(record.plugins[0]?.startMs).toBeGreaterThanOrEqual(0);
    expect(record.id).toMatch(/^[\da-z]{12}$/);
  });

  test('keeps kernel transactions, of plugins and after them', () => {
    const transactions = [{ family: 'rtnetlink', what: 'list plugins', startMs: 0.1, durationMs: 0.2 }];
    const request = startRequest(FACTS);
    request.onPlugin({ ...EVENT, transactions });
    request.onPlugin(EVENT);
    request.onFinish({ network: 'podnet', verb: 'DEL', durationMs: 1.23456, transactions });
    const { plugins, finishes } = request.end({});
    expect(plugins.map(plugin => plugin.transactions)).toEqual([transactions, undefined]);
    expect(finishes).toMatchObject([{ verb: 'DEL', durationMs: 1.235, transactions }]);
    expect(startRequest(FACTS).end({})).not.toHaveProperty('finishes');
  });

  test('masks secrets in arguments, results, messages and standard error', () => {
    const request = startRequest(FACTS);
    request.onPlugin(EVENT);
    request.onPlugin({
      ...EVENT,
      error: new CniError(7, `Cannot log in: password=${SECRET}`, { details: `key: ${SECRET}` }),
    });
    const record = request.end({
      error: new CniError(7, `token "x": token=${SECRET}`),
      result: { secret: SECRET },
    });
    expect(JSON.stringify(record)).not.toContain(SECRET);
    expect(record.args).toMatchObject({ K8S_POD_NAME: 'web', VPN_TOKEN: '***' });
  });

  test('keeps the code of a failure, and 999 when the protocol has none', () => {
    const end = (error: unknown) => startRequest(FACTS).end({ error });
    expect(end(new CniError(11, 'later'))).toMatchObject({ code: 11, message: 'later' });
    expect(end(new CniError(0, 'no such network'))).toMatchObject({ code: 999, message: 'no such network' });
    expect(end(new Error('bug'))).toMatchObject({ code: 999, message: 'bug' });
  });

  test('gives ids that sort by time', async () => {
    const first = startRequest(FACTS).id;
    await Bun.sleep(2);
    expect([startRequest(FACTS).id, first].sort()[0]).toBe(first);
  });
});

const called = (type: string, startMs: number, durationMs: number, network = 'n') => ({
  type,
  network,
  verb: 'ADD',
  startMs,
  durationMs,
});

const startsOf = (plugins: Parameters<typeof orderStarts>[0]) =>
  orderStarts(plugins).map(({ startMs }) => startMs);

test('a plugin whose answer was read late ended before the next one started', () => {
  // Both answers were read at 20 ms.
  expect(startsOf([called('bridge', 0, 5), called('portmap', 18, 2), called('bandwidth', 10, 10)])).toEqual([
    0, 8, 10,
  ]);
});

test('starts that fit remain, and chains that run side by side do not move each other', () => {
  const plugins = [called('a', 0, 5), called('x', 1, 9, 'other'), called('b', 6, 3)];
  expect(orderStarts(plugins)).toEqual(plugins);
});

test('no plugin starts before the request', () => {
  expect(startsOf([called('a', 5, 4), called('b', 2, 5)])).toEqual([0, 2]);
});
