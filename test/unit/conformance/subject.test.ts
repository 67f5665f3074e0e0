// Is the configuration of a plugin found in a list?
import { afterAll, expect, test } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findSample, readObject } from '../../../src/conformance/subject.ts';

const dir = mkdtempSync(join(tmpdir(), 'catena-sample-'));
const file = join(dir, 'net.conflist');
const plugins = [
  { type: 'first', a: 1 },
  { type: 'second', capabilities: { portMappings: true } },
];
writeFileSync(file, JSON.stringify({ cniVersion: '1.1.0', name: 'net', plugins }));

afterAll(() => rmSync(dir, { recursive: true }));

test('findSample() returns the entry of that type, and the entries before it', () => {
  expect(findSample(file, 'first', {})).toEqual({
    conf: { type: 'first', a: 1, name: 'net' },
    chained: false,
  });
});

test('findSample() returns the capabilities of the entry', () => {
  const { conf, chained } = findSample(file, 'second', { portMappings: [{ hostPort: 1 }], bandwidth: {} });
  expect(chained).toBe(true);
  expect(conf.runtimeConfig).toEqual({ portMappings: [{ hostPort: 1 }] });
});

test('findSample() names the types in the list when it has no such entry', () => {
  expect(() => findSample(file, 'third', {})).toThrow(
    `Cannot find "third" in "${file}": its plugins are "first", "second"`,
  );
});

test('readObject() says why a file cannot be read', () => {
  expect(() => readObject(join(dir, 'none'))).toThrow(`Cannot read "${join(dir, 'none')}": ENOENT`);
});
