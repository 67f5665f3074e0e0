// Which addresses has a range, and in which order are they given? Several nodes at once: test/simulator/whereabouts.test.ts
import { describe, expect, test } from 'bun:test';
import { type Books, findSlice } from '../../../../plugins/whereabouts/books.ts';
import { nextFree, planRanges, poolsOf, reservationName } from '../../../../plugins/whereabouts/plan.ts';
import { parseIp, renderIp } from '../../../../src/net/ip.ts';

const range = (text: string, more = {}) => {
  const [one] = planRanges({ range: text, ...more });
  if (one === undefined) throw new Error('no range');
  return one;
};
const free = (text: string, more = {}) => range(text, more).free.map(ends => ends.map(renderIp).join('-'));

describe('planRanges()', () => {
  test.each([
    ['10.1.0.0/28', {}, ['10.1.0.1-10.1.0.14']],
    ['10.1.0.0/28', { gateway: '10.1.0.1' }, ['10.1.0.2-10.1.0.14']],
    ['10.1.0.0/28', { gateway: '10.2.0.1' }, ['10.1.0.1-10.1.0.14']],
    ['10.1.0.0/28', { exclude: ['10.1.0.4/31'] }, ['10.1.0.1-10.1.0.3', '10.1.0.6-10.1.0.14']],
    ['10.1.0.0/28', { range_start: '10.1.0.5', range_end: '10.1.0.6' }, ['10.1.0.5-10.1.0.6']],
    ['10.1.0.5-10.1.0.6/28', {}, ['10.1.0.5-10.1.0.6']],
    ['10.1.0.0-10.1.0.15/28', {}, ['10.1.0.1-10.1.0.14']],
    ['10.1.0.0/28', { range_start: '10.1.0.0', range_end: '10.1.0.15' }, ['10.1.0.1-10.1.0.14']],
    [
      '10.1.0.8/29',
      { exclude: ['10.1.0.9', '10.1.0.0/29', '192.0.2.7', 'fd00::/64'] },
      ['10.1.0.10-10.1.0.14'],
    ],
    ['10.1.0.8/29', { exclude: ['10.1.0.0/24'] }, []],
    ['10.1.0.0/31', {}, ['10.1.0.0-10.1.0.1']],
    ['10.1.0.7/32', {}, ['10.1.0.7-10.1.0.7']],
    ['fd00::/127', {}, ['fd00::-fd00::1']],
    ['fd00::7/128', {}, ['fd00::7-fd00::7']],
    ['10.1.0.0/31', { gateway: '10.1.0.0' }, ['10.1.0.1-10.1.0.1']],
    [
      '010.001.000.005-10.1.00.09/28',
      { exclude: ['10.01.0.6/31'] },
      ['10.1.0.5-10.1.0.5', '10.1.0.8-10.1.0.9'],
    ],
    ['10.1.0.0/28', { range_end: '10.1.0.009', gateway: '010.1.0.01' }, ['10.1.0.2-10.1.0.9']],
    ['fd00::0010-fd00::0011/64', {}, ['fd00::10-fd00::11']],
  ])('of %s with %j hands out %j', (text, more, stretches) => {
    expect(free(text, more)).toEqual(stretches);
  });

  test('refuses an end outside of the range, and ranges of one interface that overlap', () => {
    expect(() => range('10.1.0.0/24', { range_end: '10.9.0.9' })).toThrow(
      '"range_end" "10.9.0.9" is no address of 10.1.0.0/24',
    );
    const ipRanges = [{ range: '10.1.0.0/24' }, { range: '10.1.0.0/16' }];
    expect(() => planRanges({ ipRanges })).toThrow('overlap');
    // DEL does not: the original may have allocated by it.
    const pools = poolsOf({ range: '10.2.0.0/24', range_end: '10.9.0.9', gateway: 'none', ipRanges });
    expect(pools.map(({ poolName }) => poolName)).toEqual(['10.2.0.0-24', '10.1.0.0-24', '10.1.0.0-16']);
  });
});

test('addresses are given from the lowest to the last', () => {
  const one = range('10.1.0.0/29', { exclude: ['10.1.0.3'] });
  const taken = new Set<string>();
  const given: string[] = [];
  for (let ip = nextFree(one, taken); ip !== undefined; ip = nextFree(one, taken)) {
    given.push(renderIp(ip));
    taken.add(String(ip.value - one.subnet.ip.value));
  }
  expect(given).toEqual(['10.1.0.1', '10.1.0.2', '10.1.0.4', '10.1.0.5', '10.1.0.6']);
});

test('a node goes on after the address that it got last, and takes what it has noted for others only if nothing else is free', () => {
  const one = range('10.1.0.0/29');
  const next = (last: string, noted: string[], ...taken: string[]) => {
    const ip = nextFree(one, new Set(taken), { last: parseIp(last), noted: new Set(noted) });
    return ip && renderIp(ip);
  };
  expect(next('10.1.0.2', [])).toBe('10.1.0.3');
  expect(next('10.1.0.2', ['10.1.0.3'], '4')).toBe('10.1.0.5');
  expect(next('10.1.0.6', [], '1')).toBe('10.1.0.2');
  expect(next('10.9.0.6', [])).toBe('10.1.0.1');
  expect(next('10.1.0.2', ['10.1.0.5'], '1', '2', '3', '4', '6')).toBe('10.1.0.5');
  expect(next('10.1.0.2', [], '1', '2', '3', '4', '5', '6')).toBeUndefined();
});

test('a node uses its own slice, without what the range excludes', async () => {
  const allocations = [
    { nodeName: 'a', sliceRange: '10.1.0.0/26' },
    { nodeName: 'b', sliceRange: '10.1.0.64/26' },
    { nodeName: 'wider', sliceRange: '10.1.0.0/16' },
    { nodeName: 'elsewhere', sliceRange: '10.2.0.0/26' },
  ];
  const ask = async () => ({ status: { allocations } });
  const books = { server: { ask }, namespace: 'kube-system', network: '' } as unknown as Books;
  const whole = range('10.1.0.0/24', { exclude: ['10.1.0.65'] });
  const own = await findSlice(books, whole, 'b', 'net');
  expect(own.free.map(ends => ends.map(renderIp))).toEqual([['10.1.0.66', '10.1.0.126']]);
  for (const node of ['c', 'wider', 'elsewhere'])
    await expect(findSlice(books, whole, node, 'net')).rejects.toMatchObject({ code: 11 });
});

test('reservations are named as whereabouts names them', () => {
  const names = ['10.1.0.7', 'fd00::7', 'fd00::'].map(text => reservationName(parseIp(text)));
  expect(names).toEqual(['10.1.0.7', 'fd00--7', 'fd00--0']);
  expect(reservationName(parseIp('fd00::7'), 'net')).toBe('net-fd00--7');
});
