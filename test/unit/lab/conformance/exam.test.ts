// Do the words of a rule say what was seen, and is the configuration of a plugin found in a list?
import { afterAll, describe, expect, test } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ErrorCode } from '../../../../src/cni/errors.ts';
import { toReply } from '../../../../src/lab/call.ts';
import {
  Broken,
  describeReply,
  Exam,
  findSample,
  insist,
  insistError,
  readObject,
  Skipped,
  skipUnless,
} from '../../../../src/lab/conformance/exam.ts';

const reply = (exitCode: number, stdout = '', stderr = '') =>
  toReply({ exitCode, stdout, stderr, durationMs: 1 });

describe('describeReply()', () => {
  test.each([
    [reply(0), 'success'],
    [reply(0, '{"a":\n  1}'), 'success, and prints "{\\"a\\": 1}"'],
    [reply(1, '{"code":7,"msg":"no","details":"why"}'), 'code 7 "no" ("why")'],
    [reply(2, '', 'panic: oops\n'), 'exit status 2 without an error object, output: "panic: oops"'],
    [reply(1), 'exit status 1 without an error object'],
  ])('renders %j', (given, words) => {
    expect(describeReply(given)).toBe(words);
  });
});

describe('insistError()', () => {
  const failed = reply(1, '{"code":7,"msg":"no"}');

  test('accepts one of the codes, or any when none is given', () => {
    insistError(failed, 'ADD', ErrorCode.decodingFailure, ErrorCode.invalidConfig);
    insistError(failed, 'ADD');
  });

  test('names the expected code', () => {
    expect(() => insistError(failed, 'ADD', ErrorCode.ioFailure)).toThrow('ADD: code 7 "no", expected 5');
    expect(() => insistError(reply(0), 'ADD')).toThrow('ADD: it succeeds');
    expect(() => insistError(reply(1), 'ADD')).toThrow('ADD: exit status 1 without an error object');
  });
});

test('insist() breaks a rule, skipUnless() skips it', () => {
  expect(() => insist(false, 'seen')).toThrow(Broken);
  expect(() => skipUnless(false, 'why')).toThrow(Skipped);
});

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

test('begin() takes only text for a version', async () => {
  const exam = new Exam({} as ConstructorParameters<typeof Exam>[0]);
  exam.ask = async () => reply(0, '{"supportedVersions": [["1.0.0"], 7, "9.9.9", "1.1.0"]}');
  await exam.begin();
  expect(exam.versions).toEqual(['1.1.0']);
});
