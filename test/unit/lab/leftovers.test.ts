import { describe, expect, test } from 'bun:test';
import { judge, judgeRound, shapesAdded } from '../../../src/lab/leftovers.ts';
import type { Snapshot } from '../../../src/lab/snapshot.ts';
import { type StateObject, stateOf } from '../../../src/lab/state/object.ts';

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
