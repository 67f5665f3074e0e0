import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseNetwork } from '../../../../src/chain/config/conflist.ts';
import { findNameProblem, renderProject, writeProject } from '../../../../src/cli/init/project.ts';

describe('findNameProblem()', () => {
  test.each(['motd', 'a', '9p', 'my-own-plugin', 'x'.repeat(64)])('accepts %s', name => {
    expect(findNameProblem(name)).toBeUndefined();
  });

  test.each([
    ['', 'lower-case'],
    ['Motd', 'lower-case'],
    ['a_b', 'lower-case'],
    ['a--b', 'single hyphens'],
    ['-a', 'single hyphens'],
    ['a-', 'single hyphens'],
    ['a/b', 'lower-case'],
    ['a\n', 'lower-case'],
    ['x'.repeat(65), 'longer than 64'],
    ['catena', 'the tool itself'],
  ])('refuses %j', (name, problem) => {
    expect(findNameProblem(name)).toContain(problem);
  });
});

describe('renderProject()', () => {
  const tarball = new Uint8Array([1]);
  const library = { dependency: 'file:vendor/a.tgz', files: new Map([['vendor/a.tgz', tarball]]) };
  const rendered = renderProject('motd', library);
  const files = new Map([...rendered].filter((row): row is [string, string] => typeof row[1] === 'string'));

  test('leaves no placeholder unfilled', () => {
    for (const text of files.values()) expect(text).not.toMatch(/\{\{|\}\}/);
  });

  test('requires the versions that we are built with', () => {
    const manifest = JSON.parse(files.get('package.json') ?? '');
    expect(manifest.name).toBe('motd');
    const asked = { ...manifest.dependencies, ...manifest.devDependencies };
    expect(Object.keys(asked).sort()).toEqual(['@types/bun', 'bun', 'catena-cni', 'typescript', 'zod']);
    const { 'catena-cni': own, ...others } = asked;
    for (const version of Object.values(others)) expect(version).toMatch(/^\^\d+\.\d+\.\d+$/);
    expect([own, rendered.get('vendor/a.tgz')]).toEqual(['file:vendor/a.tgz', tarball]);
  });

  test('puts the plugin between others in its example', () => {
    const { plugins } = parseNetwork(files.get('motd.conflist') ?? '');
    expect(plugins.map(({ type }) => type)).toEqual(['bridge', 'motd', 'tuning']);
  });
});

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-write-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const FILES = new Map([
  ['a.txt', 'one'],
  ['src/deep/b.ts', 'two'],
]);

test('writeProject() creates the directory and all below it', () => {
  writeProject(path.join(dir, 'x/y'), FILES);
  expect(fs.readFileSync(path.join(dir, 'x/y/src/deep/b.ts'), 'utf8')).toBe('two');
});

test('writeProject() changes nothing in a directory that is not empty', () => {
  fs.writeFileSync(path.join(dir, '.hidden'), '');
  expect(() => writeProject(dir, FILES)).toThrow(
    `Cannot make a project in "${dir}": it already contains ".hidden"`,
  );
  expect(fs.readdirSync(dir)).toEqual(['.hidden']);
});

test('writeProject() reports why it fails', () => {
  fs.writeFileSync(path.join(dir, 'file'), '');
  expect(() => writeProject(path.join(dir, 'file'), FILES)).toThrow('ENOTDIR');
  expect(() => writeProject('/proc/nowhere', FILES)).toThrow('Cannot write to "/proc/nowhere"');
});
