import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  findConfFiles,
  findOddKeys,
  findPluginFiles,
  listNetworks,
  loadFile,
  loadNetwork,
} from '../../../../src/chain/config/load.ts';
import { CniError } from '../../../../src/cni/errors.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-load-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

function put(name: string, content: unknown): string {
  const file = path.join(dir, name);
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
  return file;
}
const list = (name: string, ...types: string[]) => ({
  cniVersion: '1.0.0',
  name,
  plugins: types.map(type => ({ type })),
});
const typesOf = (name: string) => loadNetwork(dir, name).plugins.map(entry => entry.type);
function errorOf(step: () => unknown): CniError {
  try {
    step();
  } catch (error) {
    if (error instanceof CniError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('listNetworks()', () => {
  test('reads lists, then single plugins, in byte order of their names', () => {
    put('20-b.conflist', list('b', 't'));
    put('10-a.conflist', list('a', 't'));
    put('.conflist', list('dot', 't'));
    put('05-c.conf', { cniVersion: '1.0.0', name: 'c', type: 't' });
    put('06-d.json', { cniVersion: '1.0.0', name: 'd', type: 't' });
    put('07.conf~', 'not read');
    put('08.conflist.bak', 'not read');
    put('sub/09.conflist', 'not read');
    put('folder.conflist/x', 'not read');
    const { networks, diagnostics } = listNetworks(dir);
    expect(networks.map(network => network.list.name)).toEqual(['dot', 'a', 'b', 'c', 'd']);
    expect(networks[1]?.file).toBe(path.join(dir, '10-a.conflist'));
    expect(diagnostics).toEqual([]);
  });

  test('keeps the first network of a name, a list before a single plugin', () => {
    put('00.conf', { cniVersion: '1.0.0', name: 'n', type: 'single' });
    put('10.conflist', list('n', 'first'));
    put('20.conflist', list('n', 'second'));
    const { networks, diagnostics } = listNetworks(dir);
    expect(networks.map(network => network.list.plugins[0]?.type)).toEqual(['first']);
    expect(diagnostics.map(({ severity, file }) => [severity, path.basename(file)])).toEqual([
      ['warning', '20.conflist'],
      ['warning', '00.conf'],
    ]);
    expect(diagnostics[0]?.error.message).toContain(`network "n" is already defined in "${dir}/10.conflist"`);
  });

  test('treats a missing directory as empty', () => {
    expect(listNetworks(path.join(dir, 'none'))).toEqual({ networks: [], diagnostics: [] });
  });

  test('skips files that cannot be used, and reports where each is wrong', () => {
    put('10.conflist', '{\n  "name": "broken",\n  "plugins": [{"type" "t"}]\n}');
    put(
      '20.conflist',
      '{\n  "name": "n2",\n  "cniVersion": "1.0.0",\n  "plugins": [\n    {"type":"a"},\n    {"tipe":"b"}\n  ]\n}',
    );
    put('30.conflist', '[]');
    put('40.conflist', '{"name":"n4","cniVersion":"7.0.0","plugins":[{"type":"a"}]}');
    put('50.conflist', list('../escape', 't'));
    fs.symlinkSync('.', path.join(dir, '60.conflist'));
    put('99.conflist', list('good', 't'));
    const { networks, diagnostics } = listNetworks(dir);
    expect(networks.map(network => network.list.name)).toEqual(['good']);
    expect(
      diagnostics.map(({ severity, file, line, column, error }) => {
        return [severity, path.basename(file), line, column, error.code];
      }),
    ).toEqual([
      ['warning', '60.conflist', undefined, undefined, 5],
      ['error', '10.conflist', 3, 23, 6],
      ['error', '20.conflist', 6, 5, 7],
      ['error', '30.conflist', 1, 1, 6],
      ['error', '40.conflist', 1, 27, 1],
      ['error', '50.conflist', 1, 30, 7],
    ]);
    expect(diagnostics[0]?.error.message).toBe(
      `Cannot read network configuration "${dir}/60.conflist": it is a symbolic link to a directory; it was skipped`,
    );
    expect(diagnostics[1]?.error.message).toBe(
      `Cannot read network configuration "${dir}/10.conflist" line 3, column 23: expected ":" after the key, found "\\""`,
    );
  });
});

describe('loadNetwork()', () => {
  test('reports odd keys of the requested network, with their position', () => {
    put('10.conflist', { name: 'other', Plugins: [], plugins: [{ type: 't' }] });
    put(
      '20.conflist',
      '{\n "name":"n", "cniVersion":"1.0.0",\n "DisableCheck":true,\n "plugins":[{"type":"t"}]\n}',
    );
    put('n/10.conf', { type: 'b', prevResult: {} });
    const told: string[] = [];
    const network = loadNetwork(dir, 'n', ({ severity, file, line, column, error }) => {
      told.push(
        `${severity} ${path.basename(file)}:${line}:${column} ${error.message.replace(/.*: key/, 'key')}`,
      );
    });
    expect(network.disableCheck).toBe(false);
    expect(told).toEqual([
      `warning 20.conflist:3:17 key "DisableCheck" is ignored: use "disableCheck", keys are case-sensitive`,
      `warning 10.conf:1:26 key "prevResult" is set by the runtime: it is dropped`,
    ]);
  });

  test('finds a network beside broken files', () => {
    put('10.conflist', '{');
    put('20.conflist', list('n', 't'));
    expect(typesOf('n')).toEqual(['t']);
  });

  test('throws the error of that file when it is broken', () => {
    put('10.conflist', { name: 'n', cniVersion: '1.0.0', plugins: [{}] });
    put('20.conflist', list('n', 't'));
    const error = errorOf(() => loadNetwork(dir, 'n'));
    expect(error.message).toContain(`${dir}/10.conflist" line 1`);
    expect(error.message).toContain('plugin 0 of the list: "type" must be of type string, it is missing');
  });

  test('names what it found, and what it could not read, when the network does not exist', () => {
    put('10.conflist', '{');
    put('20.conflist', list('a', 't'));
    const error = errorOf(() => loadNetwork(dir, 'n'));
    expect(error.code).toBe(7);
    expect(error.message).toBe(`Cannot find network "n" in "${dir}": found "a"`);
    expect(error.details).toContain(
      `not usable: Cannot read network configuration "${dir}/10.conflist" line 1, column 2`,
    );
  });

  test('adds the plugins of the folder named after the network, .conf files in order', () => {
    put('10.conflist', list('n', 'a'));
    put('n/20.conf', { type: 'c', name: 'other' });
    put('n/10.conf', { type: 'b' });
    put('n/30.json', 'not read');
    put('n/40.conflist', 'not read');
    expect(typesOf('n')).toEqual(['a', 'b', 'c']);
  });

  test.each<[string, unknown, string[] | string]>([
    ['absent', {}, ['b']],
    ['true', { loadOnlyInlinedPlugins: true, plugins: [{ type: 'a' }] }, ['a']],
    ['"TRUE"', { loadOnlyInlinedPlugins: 'TRUE', plugins: [{ type: 'a' }] }, ['a']],
    ['false', { loadOnlyInlinedPlugins: false, plugins: [{ type: 'a' }] }, ['a', 'b']],
    ['true without plugins', { loadOnlyInlinedPlugins: true }, 'it has no "plugins"'],
  ])('honours loadOnlyInlinedPlugins: %s', (_, more, expected) => {
    put('10.conflist', { name: 'n', cniVersion: '1.0.0', ...(more as object) });
    put('n/10.conf', { type: 'b' });
    if (typeof expected === 'string') expect(() => typesOf('n')).toThrow(expected);
    else expect(typesOf('n')).toEqual(expected);
  });

  test('a single plugin is not joined by files beside it', () => {
    put('10.conf', { name: 'n', cniVersion: '1.0.0', type: 'a' });
    put('n/10.conf', { type: 'b' });
    expect(typesOf('n')).toEqual(['a']);
  });

  test('reads only the folder of the requested network', () => {
    put('10.conflist', list('other', 'a'));
    put('other/10.conf', '{');
    put('20.conflist', list('n', 'a'));
    expect(typesOf('n')).toEqual(['a']);
    expect(() => typesOf('other')).toThrow(`${dir}/other/10.conf" line 1, column 2`);
  });
});

describe('loadFile()', () => {
  test('recognises a list or a single plugin by its content', () => {
    expect(loadFile(put('a.txt', list('n', 'a', 'b'))).plugins).toHaveLength(2);
    expect(loadFile(put('b.conflist', { cniVersion: '1.0.0', name: 'n', type: 'a' })).plugins).toHaveLength(
      1,
    );
  });

  test.each([
    ['a byte order mark', '\uFEFF{}', 6, 'line 1, column 1: expected a value'],
    ['a comment', '{"name":"n" // no\n}', 6, 'column 13: expected "," or "}", found "/"'],
    ['a trailing comma', '{"name":"n",}', 6, 'column 13: expected a key in double quotes, found "}"'],
    ['a second document', '{} {}', 6, 'column 4: expected the end of the document'],
    ['null', 'null', 6, 'expected a JSON object'],
    ['no name', '{"plugins":[]}', 7, 'missing network name'],
    [
      'an empty list',
      '{"name":"n","plugins":[]}',
      7,
      'column 23: Cannot use "plugins" of the list: it is empty',
    ],
    ['an odd flag', '{"name":"n","disableCheck":1}', 7, 'expected true or false, found 1'],
    ['a null flag', '{"name":"n","disableGC":null}', 7, 'expected true or false, found null'],
    ['a numeric version', '{"name":"n","cniVersion":1}', 7, 'expected a string, found 1'],
    ['plugins as an object', '{"name":"n","plugins":{}}', 7, 'expected an array of plugin configurations'],
    ['a null plugin', '{"name":"n","plugins":[{"type":"t"},null]}', 7, 'column 37: Cannot use plugin 1'],
    [
      'an odd capability',
      '{"name":"n","plugins":[{"type":"t","capabilities":{"a":1}}]}',
      7,
      '"capabilities.a" must be of type boolean, found 1',
    ],
  ])('refuses %s', (_, text, code, message) => {
    const error = errorOf(() => loadFile(put('x.conflist', text)));
    expect(error.code).toBe(code);
    expect(error.message).toContain(message);
  });

  test('reports a missing file', () => {
    const error = errorOf(() => loadFile(path.join(dir, 'none')));
    expect(error.code).toBe(5);
    expect(error.message).toContain(`Cannot read network configuration "${dir}/none": ENOENT`);
  });
});

function touch(...names: string[]): void {
  for (const name of names) {
    fs.mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
    fs.writeFileSync(path.join(dir, name), '');
  }
}
const names = (files: readonly string[]) => files.map(file => path.relative(dir, file));

test('findConfFiles() returns lists, then single plugins, each in byte order of their names', () => {
  touch(
    'b.conflist',
    'Z.conflist',
    'é.conflist',
    '.conflist',
    '1.json',
    '0.conf',
    'x.CONF',
    'y.conf~',
    'sub/z.conf',
  );
  expect(names(findConfFiles(dir))).toEqual([
    '.conflist',
    'Z.conflist',
    'b.conflist',
    'é.conflist',
    '0.conf',
    '1.json',
  ]);
});

test('findConfFiles() skips what is not a regular file, and says so', () => {
  touch('real/file');
  fs.symlinkSync('real', path.join(dir, 'a.conflist'));
  fs.symlinkSync('real/file', path.join(dir, 'b.conflist'));
  fs.symlinkSync('nowhere', path.join(dir, 'c.conflist'));
  fs.symlinkSync('f.conflist', path.join(dir, 'f.conflist'));
  fs.symlinkSync('real/file/below', path.join(dir, 'g.conflist'));
  fs.mkdirSync(path.join(dir, 'd.conflist'));
  execFileSync('mkfifo', [path.join(dir, 'e.conf')]);
  const skipped: string[] = [];
  const files = findConfFiles(dir, (file, problem) =>
    skipped.push(`${path.relative(dir, file)}: ${problem}`),
  );
  // A link that leads nowhere is kept: its reader reports the error.
  expect(names(files)).toEqual(['b.conflist', 'c.conflist', 'f.conflist', 'g.conflist']);
  expect(skipped).toEqual([
    'a.conflist: it is a symbolic link to a directory',
    'e.conf: it is not a regular file',
  ]);
});

test('findPluginFiles() returns .conf files of the directory named after the network', () => {
  touch('10.conflist', 'net/2.conf', 'net/1.conf', 'net/3.json', 'file');
  expect(names(findPluginFiles(path.join(dir, '10.conflist'), 'net'))).toEqual(['net/1.conf', 'net/2.conf']);
  expect(findPluginFiles(path.join(dir, '10.conflist'), 'none')).toEqual([]);
  expect(findPluginFiles(path.join(dir, '10.conflist'), 'file')).toEqual([]);
  // No directory can have such a name, and the files beside it have nothing to do with it.
  expect(findPluginFiles(path.join(dir, '10.conflist'), 'x'.repeat(300))).toEqual([]);
});

test('findConfFiles() treats a missing directory as empty', () => {
  expect(findConfFiles(path.join(dir, 'none'))).toEqual([]);
});

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
