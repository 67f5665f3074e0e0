import { describe, expect, test } from 'bun:test';
import {
  ConflistError,
  completeNetwork,
  findMismatch,
  isSinglePlugin,
  parseConflist,
  parseNetwork,
  parsePluginEntry,
  selectVersion,
  upgradeToConflist,
} from '../../../../src/chain/config/conflist.ts';
import { CniError } from '../../../../src/cni/errors.ts';
import type { JsonObject } from '../../../../src/cni/json.ts';

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

const select = (versions: { cniVersion?: string; cniVersions?: string[] }) =>
  selectVersion(parseConflist({ name: 'n', plugins: [{ type: 't' }], ...versions }));

describe('selectVersion()', () => {
  test.each([
    ['neither', {}, '0.1.0'],
    ['an empty cniVersion', { cniVersion: '' }, '0.1.0'],
    ['cniVersion alone', { cniVersion: '0.3.1' }, '0.3.1'],
    ['the highest of cniVersions', { cniVersions: ['0.4.0', '1.1.0', '1.0.0'] }, '1.1.0'],
    ['cniVersion among cniVersions', { cniVersion: '1.0.0', cniVersions: ['0.3.1', '0.4.0'] }, '1.0.0'],
    ['versions we do not speak yet', { cniVersions: ['1.0.0', '1.2.0', '2.0.0'] }, '1.0.0'],
    ['a newer cniVersion', { cniVersion: '9.0.0', cniVersions: ['0.4.0'] }, '0.4.0'],
    ['numbers in numeric order', { cniVersions: ['0.4.0', '0.10.0', '1.0.0'] }, '1.0.0'],
    ['missing parts', { cniVersions: ['1', '0.4'] }, '1.0.0'],
    ['leading zeros', { cniVersions: ['01.01.00'] }, '1.1.0'],
  ])('selects %s', (_, versions, expected) => {
    expect(select(versions)).toBe(expected as never);
  });

  test.each([
    ['an unknown cniVersion', { cniVersion: '1.2.3' }, 1],
    ['a short cniVersion, which plugins compare as text', { cniVersion: '1.0' }, 1],
    ['only newer versions', { cniVersions: ['1.2.0', '2.0.0'] }, 1],
    ['an empty cniVersions', { cniVersions: [] }, 1],
    ['an element with a letter', { cniVersions: ['v1.0.0'] }, 7],
    ['an element with a pre-release', { cniVersions: ['1.0.0-rc1'] }, 7],
    ['an element with four parts', { cniVersions: ['1.0.0.0'] }, 7],
    ['an element with a hole', { cniVersions: ['1..0'] }, 7],
    ['an element with space', { cniVersions: [' 1.0.0'] }, 7],
    ['a bad cniVersion beside cniVersions', { cniVersion: 'x', cniVersions: ['1.0.0'] }, 7],
  ])('refuses %s', (_, versions, code) => {
    try {
      select(versions);
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(CniError);
      expect((error as CniError).code).toBe(code);
    }
  });

  test('names the versions that it supports', () => {
    expect(() => select({ cniVersion: '1.2.3' })).toThrow(
      'Cannot use "cniVersion" of the list: found "1.2.3", supported versions are 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0',
    );
  });
});

describe('extensions of files', () => {
  const LIST = { name: 'podnet', plugins: [] };
  const SINGLE = { name: 'podnet', type: 'bridge' };

  test.each([
    ['10.conflist', SINGLE, 'type'],
    ['.conflist', SINGLE, 'type'],
    ['10.conf', LIST, 'plugins'],
    ['10.json', { ...LIST, type: 'bridge' }, 'plugins'],
  ])('%s does not contain what its extension promises', (file, content, key) => {
    expect(findMismatch(`/etc/cni/net.d/${file}`, content)).toEqual({
      problem: expect.any(String),
      key: key as 'type',
    });
  });

  test.each([
    ['10.conflist', LIST],
    ['10.conf', SINGLE],
    ['10.json', SINGLE],
    ['fd/63', SINGLE],
    ['list.txt', LIST],
  ])('%s matches its extension, or has one without a meaning', (file, content) => {
    expect(findMismatch(file, content)).toBeUndefined();
  });

  test('a .conf file of neither kind has no "type"', () => {
    expect(findMismatch('10.conf', { name: 'podnet' })).toEqual({ problem: 'it has no "type"' });
  });
});

const list = (more: JsonObject) => ({ name: 'n', plugins: [{ type: 't' }], ...more });

describe('parseConflist()', () => {
  test('reads every key', () => {
    const conf = { type: 't', Capabilities: { mac: true }, mine: 1 };
    expect(
      parseConflist({
        name: 'n',
        cniVersion: '1.0.0',
        cniVersions: ['0.4.0'],
        disableCheck: true,
        disableGC: 'True',
        loadOnlyInlinedPlugins: 'false',
        plugins: [conf],
      }),
    ).toEqual({
      name: 'n',
      cniVersion: '1.0.0',
      cniVersions: ['0.4.0'],
      disableCheck: true,
      disableGC: true,
      loadOnlyInlinedPlugins: false,
      plugins: [{ type: 't', capabilities: { mac: true }, conf }],
    });
  });

  test('has defaults for all but the name, and distinguishes missing from empty plugins', () => {
    expect(parseConflist({ name: 'n' })).toEqual({
      name: 'n',
      cniVersion: '',
      cniVersions: undefined,
      disableCheck: false,
      disableGC: false,
      loadOnlyInlinedPlugins: false,
      plugins: undefined,
    });
  });

  test('keeps the entry object, not a copy', () => {
    const conf = { type: 't' };
    expect(parseConflist({ name: 'n', plugins: [conf] }).plugins?.[0]?.conf).toBe(conf);
  });

  test('respects the letter case of the keys of the list', () => {
    expect(() => parseConflist({ Name: 'n', plugins: [] })).toThrow('missing network name');
  });

  test.each<[JsonObject, (string | number)[], string]>([
    [list({ name: undefined }), ['name'], 'missing network name'],
    [list({ name: '' }), ['name'], 'missing network name'],
    [list({ name: 5 }), ['name'], 'it must be a string, found "5"'],
    [list({ name: '../x' }), ['name'], 'found "../x"'],
    [list({ cniVersion: null }), ['cniVersion'], 'expected a string, found null'],
    [list({ cniVersions: null }), ['cniVersions'], 'expected an array of strings, found null'],
    [list({ cniVersions: ['1.0.0', 1] }), ['cniVersions'], 'expected an array of strings'],
    [list({ disableCheck: 'yes' }), ['disableCheck'], 'expected true or false, found "yes"'],
    [list({ disableGC: 1 }), ['disableGC'], 'expected true or false, found 1'],
    [
      list({ loadOnlyInlinedPlugins: null }),
      ['loadOnlyInlinedPlugins'],
      'expected true or false, found null',
    ],
    [list({ plugins: null }), ['plugins'], 'expected an array of plugin configurations, found null'],
    [list({ plugins: [] }), ['plugins'], 'it is empty'],
    [
      list({ plugins: [{ type: 't' }, 'x'] }),
      ['plugins', 1],
      'Cannot use plugin 1 of the list: expected an object, found "x"',
    ],
    [list({ plugins: [{ type: '' }] }), ['plugins', 0], 'Cannot use plugin 0 of the list: "type"'],
  ])('refuses %j', (object, path, message) => {
    try {
      parseConflist(object);
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(ConflistError);
      expect(error).toMatchObject({ code: 7, path });
      expect((error as Error).message).toContain(message);
    }
  });
});

test('parsePluginEntry() reads a plugin outside a list', () => {
  expect(parsePluginEntry({ type: 't' })).toEqual({ type: 't', capabilities: {}, conf: { type: 't' } });
  expect(() => parsePluginEntry({})).toThrow('Cannot use plugin configuration: "type"');
});

test('upgradeToConflist() lifts the keys that only a list uses', () => {
  const conf = { name: 'n', type: 't', disableGC: true, cniVersions: ['1.0.0'] };
  expect(upgradeToConflist(conf)).toEqual({
    name: 'n',
    cniVersion: '',
    cniVersions: ['1.0.0'],
    disableGC: true,
    plugins: [conf],
  });
});
