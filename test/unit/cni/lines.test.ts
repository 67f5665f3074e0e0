import { describe, expect, test } from 'bun:test';
import { LineSplitter } from '../../../src/cni/json.ts';

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

  test('push() refuses a line that is too long, also an unfinished one', () => {
    const lines = new LineSplitter(3);
    expect(lines.push(Buffer.from('123\n12'))).toEqual(['123']);
    expect(() => lines.push(Buffer.from('34'))).toThrow('too long');
  });
});
