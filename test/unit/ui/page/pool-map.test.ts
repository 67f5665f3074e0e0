import { describe, expect, test } from 'bun:test';
import { renderIp } from '../../../../src/net/ip.ts';
import { blocksOf, boundsOf, renderSize } from '../../../../src/ui/page/pool-map.ts';

const lease = (address: string) => ({ network: 'n', address, state: 'live' as const, evidence: [] });
const bounds = (range: string) =>
  boundsOf(range) ?? { start: { family: 4, value: 0n }, end: { family: 4, value: 0n } };

test.each([
  ['10.1.0.0/24', '10.1.0.0', '10.1.0.255'],
  ['10.1.0.7/24', '10.1.0.0', '10.1.0.255'],
  ['10.1.0.0/24 10.1.0.5-10.1.0.9', '10.1.0.5', '10.1.0.9'],
  ['10.1.0.0/24 10.1.0.5-', '10.1.0.5', '10.1.0.255'],
  ['10.1.0.0/24 -10.1.0.9', '10.1.0.0', '10.1.0.9'],
  ['10.1.0.0/24 10.1.0.5 10.1.0.7', '10.1.0.0', '10.1.0.255'],
  ['fd00::/64 fd00::1-fd00::f', 'fd00::1', 'fd00::f'],
])('boundsOf("%s")', (range, start, end) => {
  const found = boundsOf(range);
  expect(found && [renderIp(found.start), renderIp(found.end)]).toEqual([start, end]);
});

test.each(['', 'dhcp', '10.1.0.0', '10.1.0.0/x'])('boundsOf("%s") is undefined', range => {
  expect(boundsOf(range)).toBeUndefined();
});

describe('blocksOf()', () => {
  test('a small range is one block with nothing beyond it', () => {
    const [block, ...more] = blocksOf(bounds('10.1.0.0/24 10.1.0.5-10.1.0.9'), [
      lease('10.1.0.6'),
      lease('10.1.0.200'),
    ]);
    expect(more).toEqual([]);
    expect(block?.cells.map(({ address, lease }) => [address, lease !== undefined])).toEqual([
      ['10.1.0.5', false],
      ['10.1.0.6', true],
      ['10.1.0.7', false],
      ['10.1.0.8', false],
      ['10.1.0.9', false],
    ]);
  });

  test('a large range shows its first block and those with leases', () => {
    const leases = ['fd00::1:5', 'fd00::2', '10.1.0.2'].map(lease);
    const blocks = blocksOf(bounds('fd00::/64'), leases);
    expect(blocks.map(({ first, last }) => [first, last])).toEqual([
      ['fd00::', 'fd00::ff'],
      ['fd00::1:0', 'fd00::1:ff'],
    ]);
    expect(blocks.map(({ cells }) => cells.filter(cell => cell.lease).length)).toEqual([1, 1]);
  });
});

test('renderSize()', () => {
  expect([254, 65_533, 2 ** 64].map(renderSize)).toEqual(['254', '65,533', '2^64']);
});
