import { describe, expect, test } from 'bun:test';
import {
  ConflistError,
  parseConflist,
  parsePluginEntry,
  upgradeToConflist,
} from '../../../src/cni/conflist.ts';
import type { JsonObject } from '../../../src/cni/json.ts';

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
