import { expect, test } from 'bun:test';
import { readFormat } from '../../../../src/cli/command.ts';
import { asksForData } from '../../../../src/cli/output/format.ts';

test.each([
  [{}, 'text'],
  [{ json: true }, 'json'],
  [{ output: 'yaml' }, 'yaml'],
  [{ output: 'wide' }, 'wide'],
  [{ output: 'json', json: true }, 'json'],
])('%j selects %s', (values, format) => {
  expect(readFormat(values)).toBe(format);
});

test('--json beside another format is refused', () => {
  expect(() => readFormat({ output: 'name', json: true })).toThrow(
    'Cannot use both --json and --output "name"',
  );
});

test.each([
  [['ls', '--json'], true],
  [['ls', '--output', 'json'], true],
  [['ls', '--output=yaml', '--nonsense'], true],
  [['ls', '--output', 'wide'], false],
  [['ls', 'yaml'], false],
])('%j asks for data: %p', (args, asks) => {
  expect(asksForData(args)).toBe(asks);
});
