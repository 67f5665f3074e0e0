import { expect, test } from 'bun:test';
import { completeNetwork, isSinglePlugin, parseNetwork } from '../../../../src/chain/config/conflist.ts';
import { parseConflist, parsePluginEntry } from '../../../../src/cni/conflist.ts';

test('parseNetwork() keeps the text of a list, byte for byte', () => {
  const text = '{ "name":"n",\n "cniVersion": "1.0.0", "plugins":[ {"type":"t"} ], "extra": 1.0 }\n';
  const network = parseNetwork(text);
  expect(network.source).toBe(text);
  expect(network).toMatchObject({ name: 'n', version: '1.0.0', disableCheck: false, disableGC: false });
});

test('parseNetwork() makes a list of a single plugin, lifting the keys of a list', () => {
  const conf = { name: 'n', cniVersion: '1.0.0', type: 't', disableCheck: 'True', cniVersions: ['1.1.0'] };
  const network = parseNetwork(JSON.stringify(conf));
  expect(network).toMatchObject({ name: 'n', version: '1.1.0', disableCheck: true, disableGC: false });
  expect(network.plugins.map(entry => entry.conf)).toEqual([conf]);
  expect(parseNetwork(network.source)).toEqual(network);
});

test('parseNetwork() refuses a list without plugins', () => {
  expect(() => parseNetwork('{"name":"n","cniVersion":"1.0.0"}')).toThrow('it has no "plugins"');
});

test('completeNetwork() adds plugins after the inlined ones, and its source contains them all', () => {
  const text = '{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"a"}],"extra":1}';
  const network = completeNetwork(parseConflist(JSON.parse(text)), text, [
    parsePluginEntry({ type: 'b', k: 1 }),
  ]);
  expect(network.plugins.map(entry => entry.type)).toEqual(['a', 'b']);
  expect(JSON.parse(network.source)).toEqual({
    name: 'n',
    cniVersion: '1.0.0',
    extra: 1,
    loadOnlyInlinedPlugins: true,
    plugins: [{ type: 'a' }, { type: 'b', k: 1 }],
  });
  expect(parseNetwork(network.source).plugins).toEqual(network.plugins);
});

test('isSinglePlugin() looks for keys that only one of the kinds has', () => {
  expect(isSinglePlugin({ type: 't' })).toBe(true);
  expect(isSinglePlugin({ plugins: [] })).toBe(false);
  expect(isSinglePlugin({ plugins: [], type: 't' })).toBe(false);
  expect(isSinglePlugin({ name: 'n' })).toBe(false);
});
