import { describe, expect, test } from 'bun:test';
import { type Box, groupsOf, layOut, linesOf } from '../../../../src/node/graph/layout.ts';
import type { NodeAttachment, NodeBridge, NodeDevice } from '../../../../src/node/model.ts';

const device = (name: string, kind: string, master?: string): NodeDevice => ({
  ...{ name, kind, index: 1, mtu: 1500, up: true, addresses: [] },
  ...(master === undefined ? {} : { master }),
});
const bridge = (name: string, ...ports: string[]): NodeBridge => ({ device: device(name, 'bridge'), ports });
const attachment = (containerId: string, network: string, hostDevice?: NodeDevice): NodeAttachment => ({
  ...{
    network,
    containerId,
    ifname: 'eth0',
    state: 'attached',
    netns: '',
    addresses: [],
    ports: [],
    rates: {},
  },
  ...{ policies: [], routes: [], origin: { runner: 'catena', executables: [], evidence: '' } },
  ...(hostDevice === undefined ? {} : { hostDevice }),
});

describe('groupsOf()', () => {
  test('puts attachments at their bridge, their lower device, or the routing of the host', () => {
    const groups = groupsOf(
      [bridge('br0', 'eth1', 'veth1'), bridge('br1')],
      [
        attachment('a', 'one', device('veth1', 'veth', 'br0')),
        attachment('b', 'two', device('veth2', 'veth')),
        attachment('c', 'three', device('eth0', '')),
        attachment('d', 'four'),
      ],
    );
    const short = groups.map(({ title, kind, uplinks, members }) => [
      ...[title, kind, uplinks.join()],
      members.map(({ containerId }) => containerId).join(),
    ]);
    expect(short).toEqual([
      ['br0', 'bridge', 'eth1', 'a'],
      ['br1', 'bridge', '', ''],
      ['eth0', 'device', '', 'c'],
      ['no device', 'none', '', 'd'],
      ['routed', 'routed', '', 'b'],
    ]);
  });

  test('a macvlan is at the device below it, even if that is one end of a pair, or a bridge', () => {
    const macvlan = (id: string, below: NodeDevice): NodeAttachment => ({
      ...attachment(id, id, below),
      device: device('eth0', 'macvlan'),
    });
    const groups = groupsOf(
      [bridge('br0')],
      [macvlan('a', device('eth0', 'veth')), macvlan('b', device('br0', 'bridge'))],
    );
    expect(groups.map(({ title, kind, members }) => [title, kind, members.length])).toEqual([
      ['br0', 'bridge', 1],
      ['eth0', 'device', 1],
    ]);
  });

  test('an attachment that has lost its device stays with others of its network', () => {
    const whole = attachment('a', 'one', device('veth1', 'veth', 'br0'));
    const [group] = groupsOf([bridge('br0', 'veth1')], [whole, attachment('b', 'one')]);
    expect(group?.members.map(({ containerId }) => containerId)).toEqual(['a', 'b']);
  });
});

describe('layOut()', () => {
  const many = (count: number) =>
    Array.from({ length: count }, (_, i) => attachment(`c${i}`, 'one', device(`veth${i}`, 'veth', 'br0')));

  test.each([
    [1_000, 1_200],
    [1_000, 366],
    [20, 1_200],
    [20, 366],
    [1, 240],
  ])('places %d attachments on %d pixels inside of the picture, none upon another', (count, width) => {
    const { groups, height } = layOut(groupsOf([bridge('br0'), bridge('br1')], many(count)), width);
    const boxes: Box[] = groups.flatMap(({ box, cells }) => [box, ...cells]);
    expect(boxes.length).toBe(count + 2);
    const outside = boxes.filter(({ x, y, ...size }) => {
      return x < 0 || y < 0 || x + size.width > width || y + size.height > height;
    });
    expect(outside).toEqual([]);
    const rows = boxes.toSorted((a, b) => a.y - b.y || a.x - b.x);
    const upon = rows.filter((a, i) => rows.slice(i + 1, i + 120).some(b => overlap(a, b)));
    expect(upon).toEqual([]);
  });

  test('a few show their names, many are squares, and each row hangs on a line', () => {
    const [few] = layOut(groupsOf([bridge('br0')], many(48)), 1_200).groups;
    const [lots] = layOut(groupsOf([bridge('br0')], many(49)), 1_200).groups;
    expect([few?.isLarge, lots?.isLarge]).toEqual([true, false]);
    expect(few && linesOf(few, 1_200).length).toBe(1 + new Set(few?.cells.map(({ y }) => y)).size);
  });
});

function overlap(a: Box, b: Box): boolean {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}
