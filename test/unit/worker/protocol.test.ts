import { describe, expect, test } from 'bun:test';
import { toLine } from '../../../src/worker/protocol.ts';

describe('toLine()', () => {
  test('makes one line of a message that contains line breaks', () => {
    const reply = { exitCode: 0, stdout: '{\n    "a": 1\n}\n', stderr: 'one\ntwo\n' };
    const line = toLine(reply);
    expect(line.indexOf('\n')).toBe(line.length - 1);
    expect(JSON.parse(line)).toEqual(reply);
  });
});
