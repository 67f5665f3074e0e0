import { describe, expect, test } from 'bun:test';
import { failureOf, parseReply } from '../../../src/cni/invocation.ts';

const plugin = { network: 'n', type: 'bridge', index: 0, verb: 'ADD' };

describe('parseReply()', () => {
  test('reads the object, or nothing', () => {
    expect(parseReply(' {"a":1}\n', plugin)).toEqual({ a: 1 });
    expect(parseReply('\n', plugin)).toBeUndefined();
    expect(parseReply('null', plugin)).toEqual({});
  });

  test.each(['up', '[]', '{"a":1}{"b":2}'])('refuses %j, quoting it', stdout => {
    expect(() => parseReply(stdout, plugin)).toThrow(
      expect.objectContaining({
        code: 6,
        plugin,
        message: expect.stringContaining('Cannot decode output of plugin "bridge": '),
        details: `printed ${JSON.stringify(stdout)}`,
      }),
    );
  });

  test('quotes only the beginning of a long output', () => {
    try {
      parseReply('x'.repeat(5000), plugin);
    } catch (error) {
      expect((error as { details: string }).details).toHaveLength('printed ""'.length + 1001);
    }
  });
});

describe('failureOf()', () => {
  test.each([
    ['an error object', '{"code":7,"msg":"bad","details":"d"}', '', 7, 'bad', 'd'],
    ['an error object without code', '{"msg":"bad"}', 'ignored', 0, 'bad', undefined],
    [
      'a code without words',
      '{"code":11}',
      '',
      11,
      'Plugin "bridge" failed with no error message: exit status 1',
      undefined,
    ],
    [
      'an empty object',
      '{}',
      '',
      0,
      'Plugin "bridge" failed and its output is not a CNI error: "{}"',
      'exit status 1',
    ],
    [
      'a negative code',
      '{"code":-1,"msg":"x"}',
      '',
      0,
      'Plugin "bridge" failed and its output is not a CNI error: "{\\"code\\":-1,\\"msg\\":\\"x\\"}"',
      'exit status 1',
    ],
    [
      'two documents',
      '{} {}',
      '',
      0,
      'Plugin "bridge" failed and its output is not a CNI error: "{} {}"',
      'exit status 1',
    ],
    [
      'words on standard error',
      '',
      'no such device\n',
      0,
      'Plugin "bridge" failed with "no such device": exit status 1',
      undefined,
    ],
    ['nothing', '', ' \n', 0, 'Plugin "bridge" failed with no error message: exit status 1', undefined],
  ])('makes an error of %s', (_, stdout, stderr, code, message, details) => {
    expect(failureOf({ exitCode: 1, stdout, stderr }, plugin)).toMatchObject({
      code,
      message,
      details,
      plugin,
    } as never);
  });

  test('names the signal', () => {
    expect(failureOf({ signal: 'SIGSEGV', stdout: '', stderr: '' }, plugin).message).toBe(
      'Plugin "bridge" failed with no error message: ended by SIGSEGV',
    );
  });

  test('names the cause in the report of a crash of Bun, which begins with the machine', () => {
    const stderr =
      '=====\nBun v1.4.5 (Linux x64)\nRSS: 48.1 MB\n\npanic(main thread): abort() called\noh no: Bun has crashed.\n';
    expect(failureOf({ signal: 'SIGABRT', stdout: '', stderr }, plugin).message).toBe(
      'Plugin "bridge" failed with "panic(main thread): abort() called": ended by SIGABRT',
    );
  });
});
