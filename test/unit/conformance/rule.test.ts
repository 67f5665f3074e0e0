// Do the words of a rule say what was seen?
import { describe, expect, test } from 'bun:test';
import { ErrorCode } from '../../../src/cni/errors.ts';
import {
  Broken,
  describeReply,
  insist,
  insistError,
  Skipped,
  skipUnless,
} from '../../../src/conformance/rule.ts';
import { toReply } from '../../../src/testing/call.ts';

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
