// Which differences are reported, of which plugin, and how often?
import { describe, expect, test } from 'bun:test';
import { diffRecords, findDifferences } from '../../../src/compare/differ.ts';
import type { Moment, Observation, SceneRecord, Sight } from '../../../src/compare/scene.ts';

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
