import { expect, test } from 'bun:test';
import { checkFree, nextIfname } from '../../../src/running/ifname.ts';

test.each([
  [[], 'net1'],
  [['lo', 'eth0', 'net0'], 'net1'],
  [['net1', 'net3'], 'net2'],
  [['net1', 'net2'], 'net3'],
])('after %j comes %s', (taken, expected) => {
  expect(nextIfname(new Set(taken))).toBe(expected);
});

test('a name that is taken is refused', () => {
  expect(() => checkFree('web', 'eth0', new Set(['eth0']))).toThrow('already has an interface "eth0"');
  expect(() => checkFree('web', 'eth1', new Set(['eth0']))).not.toThrow();
});
