// Which differences are reported, of which plugin, and how often, and which names are common to both twins?
import { describe, expect, test } from 'bun:test';
import {
  diffRecords,
  findDifferences,
  normalise,
  withCommonNames,
} from '../../../../src/lab/compare/differ.ts';
import type { Moment, Observation, SceneRecord, Sight } from '../../../../src/lab/compare/scene.ts';

const KINDS = ['link', 'address', 'route', 'sysctl', 'nftables', 'iptables'];

const sight = (host: Observation = {}, files: Record<string, string> = {}): Sight => {
  return { places: { host: { ...Object.fromEntries(KINDS.map(kind => [kind, {}])), ...host } }, files };
};

function moment(more: Partial<Moment>): Moment {
  return {
    step: 'ADD',
    verb: 'ADD',
    index: 0,
    answer: { failed: false },
    durationMs: 1,
    sight: sight(),
    ...more,
  };
}

function record(...moments: Partial<Moment>[]): SceneRecord {
  return { namespaces: {}, began: 0, ended: 1, before: sight(), moments: moments.map(moment) };
}

const diff = (first: SceneRecord, second: SceneRecord) =>
  diffRecords('life', first, second).map(({ scene: _, verb: __, ...one }) => one);

const ROUTE = (via: string): Observation => ({ route: { 'default IPv4 on eth0': { via, metric: '0' } } });

describe('diffRecords()', () => {
  test('finds nothing between equal records', () => {
    const one = record({ sight: sight(ROUTE('10.0.0.1')) });
    expect(diff(one, structuredClone(one))).toEqual([]);
  });

  test('names the plugin, the place, the object and both values', () => {
    expect(
      diff(record({ sight: sight(ROUTE('10.0.0.1')) }), record({ sight: sight(ROUTE('10.0.0.9')) })),
    ).toEqual([
      {
        step: 'ADD',
        index: 0,
        where: 'host',
        what: 'route default IPv4 on eth0, via',
        first: '10.0.0.1',
        second: '10.0.0.9',
      },
    ]);
  });

  test('reports a lasting difference once, with the plugin that caused it', () => {
    const [good, bad] = [sight(ROUTE('10.0.0.1')), sight()];
    const first = record({ index: 0, sight: good }, { index: 1, sight: good });
    const second = record(
      { index: 0, sight: good },
      { index: 1, sight: bad },
      { step: 'DEL', verb: 'DEL', sight: bad },
    );
    const found = diff(
      { ...first, moments: [...first.moments, moment({ step: 'DEL', verb: 'DEL', sight: good })] },
      second,
    );
    expect(found).toEqual([
      {
        step: 'ADD',
        index: 1,
        where: 'host',
        what: 'route default IPv4 on eth0',
        first: 'via 10.0.0.1, metric 0',
      },
    ]);
  });

  test('reports a missing device alone, without what is on it', () => {
    const full: Observation = {
      link: { eth0: { mtu: '1500' } },
      address: { '10.0.0.2/24 on eth0': {} },
      route: { 'default IPv4 on eth0': {}, 'default IPv4 on eth0 in table 100': {} },
      sysctl: { 'ipv4/conf/eth0/forwarding': { value: '1' }, 'ipv4/ip_forward': { value: '1' } },
      nftables: { 'table inet x': {}, 'chain c in table inet x': {} },
      iptables: { 'ip nat: chain C': { policy: '-' }, 'ip nat: -A C -j ACCEPT': {} },
    };
    const found = diff(record({ sight: sight(full) }), record({ sight: sight() }));
    expect(found.map(({ what }) => what)).toEqual([
      'link eth0',
      'sysctl net/ipv4/ip_forward',
      'nftables table inet x',
      'iptables ip nat: chain C',
    ]);
  });

  test('reports answers that differ, and nothing that follows from them', () => {
    const failed = { failed: true, code: 7, message: 'no' };
    const first = record({ answer: { failed: false } }, { index: 1, sight: sight(ROUTE('10.0.0.1')) });
    const second = record({ answer: failed }, { index: 1 });
    expect(diff(first, second)).toEqual([
      {
        step: 'ADD',
        index: 0,
        where: 'answer',
        what: '',
        first: 'it succeeds',
        second: 'it fails with code 7: no',
      },
    ]);
    expect(
      diff(record({ answer: failed }), record({ answer: { ...failed, message: 'other words' } })),
    ).toEqual([]);
    expect(diff(record({ answer: failed }), record({ answer: { ...failed, code: 999 } }))).toHaveLength(1);
  });

  test('reports results, files, and plugins that only one side called', () => {
    const [first, second] = [
      record({
        answer: { failed: false, result: { ips: [{ gateway: 'a' }] } },
        sight: sight({}, { '/x': '1' }),
      }),
      record({ answer: { failed: false, result: { ips: [{}] } } }, { index: 1 }),
    ];
    expect(diff(first, second)).toEqual([
      { step: 'ADD', index: 0, where: 'result', what: 'ips.0.gateway', first: 'a' },
      { step: 'ADD', index: 0, where: 'files', what: '/x', first: '1' },
      { step: 'ADD', index: 1, where: 'answer', what: '', first: 'not called', second: 'it succeeds' },
    ]);
  });

  test('does not blame a plugin for what existed before', () => {
    const before = { ...record(), before: sight(ROUTE('10.0.0.1')) };
    const odd = { ...before, moments: [moment({ sight: sight(ROUTE('10.0.0.1')) })] };
    expect(diff(odd, record({}))).toEqual([]);
  });
});

describe('findDifferences()', () => {
  test('finds nothing in equal values, in any order', () => {
    expect(findDifferences({ a: 1, b: [{ c: 'x' }] }, { b: [{ c: 'x' }], a: 1 })).toEqual([]);
  });

  test('names the path to each difference', () => {
    expect(findDifferences({ a: { b: 1, c: [1, 2] } }, { a: { b: 2, c: [1, 3] } })).toEqual([
      { names: ['a', 'b'], first: 1, second: 2 },
      { names: ['a', 'c', '1'], first: 2, second: 3 },
    ]);
  });

  test('reports a part that one side lacks as a whole', () => {
    const link = { mtu: '1500', state: 'up' };
    expect(findDifferences({ eth0: link }, {})).toEqual([
      { names: ['eth0'], first: link, second: undefined },
    ]);
    expect(findDifferences({}, { a: [] }, ['x'])).toEqual([
      { names: ['x', 'a'], first: undefined, second: [] },
    ]);
  });

  test('distinguishes an object from a list', () => {
    expect(findDifferences({ a: {} }, { a: [] })).toHaveLength(1);
  });
});

const none = () => undefined;
const MAC = '0a:11:22:33:44:55';

describe('normalise()', () => {
  test('numbers random interface names in order of appearance', () => {
    expect(normalise(['vethdeadbeef', 'veth00000001', 'on vethdeadbeef'], '', new Map(), none)).toEqual([
      'veth#1',
      'veth#2',
      'on veth#1',
    ]);
  });

  test('names hardware addresses after their owner, in results and in observations', () => {
    const result = {
      interfaces: [{ name: 'eth0', mac: MAC, sandbox: '/n' }],
      seen: `${MAC} and 0a1122334455`,
    };
    expect(normalise(result, '', new Map(), none)).toEqual({
      interfaces: [{ name: 'eth0', mac: 'mac of /n/eth0', sandbox: '/n' }],
      seen: 'mac of /n/eth0 and (mac of /n/eth0)',
    });
    const observed = { host: { br0: { address: MAC } } };
    const holder = (value: Record<string, unknown>, path: readonly string[]) =>
      typeof value.address === 'string' ? ([value.address, path.join('/')] as const) : undefined;
    expect(normalise(observed, '', new Map(), holder)).toEqual({
      host: { br0: { address: 'mac of host/br0' } },
    });
  });

  test('names link-local addresses after the hardware address they derive from', () => {
    const interfaces = [{ name: 'eth0', mac: MAC }];
    expect(normalise({ interfaces, ip: 'fe80::811:22ff:fe33:4455' }, '', new Map(), none).ip).toBe(
      'fe80::(mac of host/eth0)',
    );
  });

  test('names link-local addresses written without a leading zero word', () => {
    const interfaces = [{ name: 'eth0', mac: '02:00:1b:86:c1:77' }];
    expect(normalise({ interfaces, ip: 'fe80::1bff:fe86:c177' }, '', new Map(), none).ip).toBe(
      'fe80::(mac of host/eth0)',
    );
  });

  test('keeps addresses that the configuration names', () => {
    expect(normalise([MAC], `{"mac":"${MAC.toUpperCase()}"}`, new Map(), none)).toEqual([MAC]);
  });

  test('replaces names that only one twin uses', () => {
    expect<object>(normalise({ '/tmp/a1/x': 1 }, '', new Map([['/tmp/a1', '{tmp}']]), none)).toEqual({
      '{tmp}/x': 1,
    });
  });
});

test('withCommonNames() hides what only one twin has: namespaces, times, names', () => {
  const began = Date.now();
  const files = (ms: number, inode: string) => ({
    [`/run/lock-${inode}`]: `${ms} ${new Date(ms).toISOString()} ${Math.floor(ms / 1000)} 4000000000`,
  });
  const twin = (inode: string, ms: number, mac: string): SceneRecord => ({
    namespaces: { host: inode },
    began,
    ended: began,
    before: { places: { host: { link: { br0: { kind: 'bridge', mac } } } }, files: files(ms, inode) },
    moments: [],
  });
  const one = withCommonNames(twin('4026531840', began, '0a:00:00:00:00:01'), '[]');
  const other = withCommonNames(twin('4026532999', began + 900, '0a:00:00:00:00:02'), '[]');
  expect(one).toEqual(other);
  expect(one.before.files).toEqual({ '/run/lock-{host}': '{time} {time} {time} 4000000000' });
});
