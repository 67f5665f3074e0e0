import { describe, expect, test } from 'bun:test';
import { LineSplitter, toLine } from '../../../src/worker/protocol.ts';

describe('LineSplitter', () => {
  test('push() returns lines when they are complete, however they arrive', () => {
    const lines = new LineSplitter();
    const bytes = Buffer.from('{"a":"ä"}\n{"b":1}\n\n{"c":2');
    const found: string[] = [];
    for (const byte of bytes) found.push(...lines.push(Uint8Array.of(byte)));
    expect(found).toEqual(['{"a":"ä"}', '{"b":1}', '']);
    expect(lines.push(Buffer.from('}\n'))).toEqual(['{"c":2}']);
  });

  test('push() returns several lines of one chunk', () => {
    expect(new LineSplitter().push(Buffer.from('1\n2\n3'))).toEqual(['1', '2']);
  });
});

describe('toLine()', () => {
  test('makes one line of a message that contains line breaks', () => {
    const reply = { exitCode: 0, stdout: '{\n    "a": 1\n}\n', stderr: 'one\ntwo\n' };
    const line = toLine(reply);
    expect(line.indexOf('\n')).toBe(line.length - 1);
    expect(JSON.parse(line)).toEqual(reply);
  });
});
