import { describe, expect, test } from 'bun:test';
import { condense, diffStates, renderDifference } from '../../../src/lab/diff.ts';
import { type StateObject, stateOf } from '../../../src/lab/state/object.ts';

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
