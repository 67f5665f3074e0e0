import { expect, test } from 'bun:test';
import { findOddKeys } from '../../../../src/chain/config/odd-keys.ts';

const shown = (...args: Parameters<typeof findOddKeys>) =>
  findOddKeys(...args).map(({ path, problem }) => `${path.join('.')}: ${problem}`);

test('findOddKeys() of a list returns keys that differ in letter case only', () => {
  const list = {
    name: 'n',
    CNIVersion: '1.0.0',
    disablegc: true,
    args: {},
    plugins: [{ Type: 't', Name: 'x' }],
  };
  expect(shown(list, 'list')).toEqual([
    `CNIVersion: key "CNIVersion" is ignored: use "cniVersion", keys are case-sensitive`,
    `disablegc: key "disablegc" is ignored: use "disableGC", keys are case-sensitive`,
  ]);
});

test("findOddKeys() returns the runtime's keys in every plugin", () => {
  const plugins = [{ type: 'a' }, { type: 'b', prevResult: {}, runtimeConfig: {}, 'cni.dev/x': 1 }, 5];
  expect(shown({ name: 'n', plugins }, 'list').map(text => text.split(':')[0])).toEqual([
    'plugins.1.prevResult',
    'plugins.1.runtimeConfig',
    'plugins.1.cni.dev/x',
  ]);
  expect(shown({ type: 'a', prevResult: {} }, 'entry')).toEqual([
    `prevResult: key "prevResult" is set by the runtime: it is dropped`,
  ]);
});

test('findOddKeys() of a single plugin checks the keys that belong to a list', () => {
  const plugin = { Type: 't', NAME: 'n', disablecheck: true, prevResult: {} };
  expect(shown(plugin, 'plugin').map(text => text.split(':')[0])).toEqual(['disablecheck', 'prevResult']);
  expect(shown({ plugins: 5 }, 'list')).toEqual([]);
});
