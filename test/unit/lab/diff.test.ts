// Are changes and remains described concisely?
import { describe, expect, test } from 'bun:test';
import type { Result } from '../../../src/cni/result.ts';
import {
  condense,
  diffResults,
  diffStates,
  judge,
  judgeRound,
  renderDifference,
  type Snapshot,
  type StateObject,
  shapesAdded,
  stateOf,
} from '../../../src/lab/diff.ts';

const bridge: StateObject = { key: 'link br0', words: 'bridge br0', state: { mtu: '1500', state: 'up' } };
const address: StateObject = { key: 'address a', words: '10.1.0.1/24 on br0', parent: 'link br0' };
const table: StateObject = { key: 'table inet t', words: 'table inet t' };
const rule = (handle: number): StateObject => ({
  key: `rule ${handle}`,
  words: `rule in chain c of table inet t "${handle}"`,
  parent: 'table inet t',
  counted: ['rule', 'rules'],
});

describe('diffStates()', () => {
  test('finds added, removed and changed objects by key', () => {
    const difference = diffStates(
      stateOf([bridge, address]),
      stateOf([{ ...bridge, state: { mtu: '1400', state: 'down' } }, table]),
    );
    expect(difference.added).toEqual([table]);
    expect(difference.removed).toEqual([address]);
    expect(difference.changed.map(({ words }) => words)).toEqual(['br0: mtu 1500 → 1400, down']);
  });

  test('omits a value that was unknown before', () => {
    const before = stateOf([{ ...bridge, state: {} }]);
    expect(diffStates(before, stateOf([bridge])).changed).toEqual([]);
  });

  test('shows a kernel parameter by its own name', () => {
    const parameter = (value: string): StateObject => ({
      key: 'sysctl net/ipv4/ip_forward',
      words: `net/ipv4/ip_forward = ${value}`,
      state: { 'net/ipv4/ip_forward': value },
    });
    const { changed } = diffStates(stateOf([parameter('0')]), stateOf([parameter('1')]));
    expect(changed.map(({ words }) => words)).toEqual(['net/ipv4/ip_forward 0 → 1']);
  });
});

describe('renderDifference()', () => {
  test('omits what is deleted with its device, but not what is created with it', () => {
    const [none, both] = [stateOf([]), stateOf([bridge, address])];
    expect(renderDifference(diffStates(none, both))).toEqual(['+ bridge br0', '+ 10.1.0.1/24 on br0']);
    expect(renderDifference(diffStates(both, none))).toEqual(['- bridge br0']);
  });
});

describe('condense()', () => {
  test('shows the contents of a new table in its own line', () => {
    expect(condense([table, rule(1), rule(2), rule(3)])).toEqual(['table inet t: 3 rules']);
    expect(condense([table, rule(1)])).toEqual(['table inet t: 1 rule']);
  });

  test('lists two of a kind and counts the rest', () => {
    expect(condense([rule(1), rule(2)])).toEqual([
      'rule in chain c of table inet t "1"',
      'rule in chain c of table inet t "2"',
    ]);
    expect(condense([rule(1), rule(2), rule(3)])).toEqual(['3 rules in table inet t']);
  });
});

const object = (words: string, shape?: string): StateObject => ({ key: words, words, shape });
const moment = (host: StateObject[], files: StateObject[] = [], container: StateObject[] = []): Snapshot => ({
  host: stateOf(host),
  files: stateOf(files),
  container: stateOf(container),
});

const EMPTY = moment([]);
const NO_MARKS = { shapes: new Set<string>(), ids: [], addresses: [] };

describe('judge()', () => {
  test('lets the network keep its bridge and its tables', () => {
    const after = moment([object('bridge br0', 'bridge'), object('table inet t', 'table inet t')]);
    expect(judge(EMPTY, after, NO_MARKS)).toEqual({ left: [], kept: ['bridge br0', 'table inet t'] });
  });

  test('reports devices of other kinds as left behind', () => {
    const after = moment([object('veth v1 in br0', 'device of kind veth')]);
    expect(judge(EMPTY, after, NO_MARKS)).toEqual({ left: ['veth v1 in br0'], kept: [] });
  });

  test('reports objects as left behind that every container gets', () => {
    const element = object('10.1.0.2 in pods', 'element in pods');
    const shapes = shapesAdded(EMPTY, moment([object('10.1.0.3 in pods', 'element in pods')]));
    expect(judge(EMPTY, moment([element]), { ...NO_MARKS, shapes }).left).toEqual(['10.1.0.2 in pods']);
  });

  test('reports objects as left behind that have the name or the address of the container', () => {
    const rule = object('rule to 10.1.0.2', 'rule');
    const marks = { ...NO_MARKS, ids: ['ctr-1'], addresses: ['10.1.0.2'] };
    const lease = object('file /var/lib/x/10.1.0.2', 'file a');
    const other = object('file /var/lib/x/10.1.0.25', 'file b');
    const judged = judge(
      EMPTY,
      moment([rule], [lease, other, object('file /run/net-ctr-1-eth0', 'file c')]),
      marks,
    );
    expect(judged.left).toEqual(['rule to 10.1.0.2', 'file /var/lib/x/10.1.0.2', 'file /run/net-ctr-1-eth0']);
    expect(judged.kept).toEqual(['file /var/lib/x/10.1.0.25']);
  });

  test('reports anything inside the container as left behind', () => {
    const after = moment([], [], [object('veth eth0', 'device of kind veth'), object('net/x = 1')]);
    expect(judge(EMPTY, after, NO_MARKS)).toEqual({ left: ['veth eth0 (container)'], kept: [] });
  });

  test('reports what the host lost and what changed on it', () => {
    const route = object('route default via 10.0.0.1 on eth0', 'route');
    const device = (mtu: string): StateObject => ({
      ...object('eth0', 'device of kind veth'),
      state: { mtu },
    });
    const judged = judge(moment([route, device('1500')]), moment([device('1400')]), NO_MARKS);
    expect(judged.left).toEqual(['deleted: route default via 10.0.0.1 on eth0', 'eth0: mtu 1500 → 1400']);
  });

  test('attributes a kernel parameter to the network', () => {
    const forward = (value: string): StateObject => ({
      key: 'sysctl f',
      words: `f = ${value}`,
      state: { f: value },
    });
    expect(judge(moment([forward('0')]), moment([forward('1')]), NO_MARKS)).toEqual({
      left: [],
      kept: ['f 0 → 1'],
    });
  });
});

describe('judgeRound()', () => {
  test('reports anything new on the host and among the files', () => {
    const after = moment([object('veth v2', 'device of kind veth')], [object('file /x', 'file /x')]);
    expect(judgeRound(EMPTY, after)).toEqual(['veth v2', 'file /x']);
  });
});

const first: Result = {
  interfaces: [{ name: 'cni0' }, { name: 'eth0', sandbox: '/run/netns/a', mtu: 1400 }],
  ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 1 }],
  routes: [{ dst: '0.0.0.0/0', gw: '10.1.0.1' }, { dst: '10.9.0.0/16' }],
  dns: { nameservers: ['10.1.0.1'], search: [], domain: 'example.org' },
};

describe('diffResults()', () => {
  test('lists everything in a first result', () => {
    expect(diffResults(undefined, first)).toEqual([
      '+ cni0',
      '+ eth0 (container), mtu 1400',
      '+ 10.1.0.2/24 gateway 10.1.0.1',
      '+ route 0.0.0.0/0 via 10.1.0.1',
      '+ route 10.9.0.0/16',
      '+ dns nameservers 10.1.0.1',
      '+ dns domain example.org',
    ]);
  });

  test('lists each gateway of a route, and its table', () => {
    const routes = [{ dst: '10.9.0.0/16', gws: ['10.1.0.1', '10.1.0.9'], table: 100 }];
    expect(diffResults({ routes: [{ dst: '10.9.0.0/16', gw: '10.1.0.1' }] }, { routes })).toEqual([
      '+ route 10.9.0.0/16 via 10.1.0.1 table 100',
      '+ route 10.9.0.0/16 via 10.1.0.9 table 100',
      '- route 10.9.0.0/16 via 10.1.0.1',
    ]);
  });

  test('lists what a plugin added and removed', () => {
    const second: Result = {
      ...first,
      interfaces: [...(first.interfaces ?? []), { name: 'ifb9' }],
      routes: [],
    };
    expect(diffResults(first, second)).toEqual([
      '+ ifb9',
      '- route 0.0.0.0/0 via 10.1.0.1',
      '- route 10.9.0.0/16',
    ]);
  });

  test('is empty for a result that was passed on', () => {
    expect(diffResults(first, structuredClone(first))).toEqual([]);
  });
});
