// Are nodes read from JSON as they were written, and is anything else refused with the reason?
import { describe, expect, test } from 'bun:test';
import { describeNode, parseNodes } from '../../../src/between/described.ts';

const A = { name: 'a', addresses: ['192.0.2.1', '2001:db8::1'], blocks: ['10.244.1.0/24'] };
const B = { name: 'b', addresses: ['192.0.2.2'], blocks: ['10.244.2.0/24', 'fd00:2::/64'] };

describe('parseNodes()', () => {
  test('reads one node or a list, and writes it again', () => {
    expect(parseNodes(JSON.stringify(A), 'f').map(describeNode)).toEqual([A]);
    expect(parseNodes(JSON.stringify([A, B]), 'f').map(describeNode)).toEqual([A, B]);
  });

  test.each([
    ['{', 'Cannot use nodes in "f"'],
    ['{"name": "a", "addresses": ["x"], "blocks": []}', 'must be an IP address'],
    ['[{"name": "a", "addresses": [], "blocks": ["10.0.0.0"]}]', 'must be an address with a prefix'],
    ['[{"name": "", "addresses": [], "blocks": []}]', 'name'],
    ['7', 'must be'],
  ])('refuses %p', (text, problem) => {
    expect(() => parseNodes(text, 'f')).toThrow(problem);
  });
});
