import { expect, test } from 'bun:test';
import {
  asksForData,
  DATA_FORMATS,
  LIST_FORMATS,
  outputOption,
  readFormat,
} from '../../../../src/cli/output/format.ts';

const LIST = outputOption(LIST_FORMATS, '');
const COMMAND = { name: 'ls' };

test.each([
  [{}, 'text'],
  [{ json: true }, 'json'],
  [{ output: 'yaml' }, 'yaml'],
  [{ output: 'wide' }, 'wide'],
  [{ output: 'json', json: true }, 'json'],
])('%j selects %s', (values, format) => {
  expect(readFormat(values, LIST, COMMAND)).toBe(format);
});

test('a format that the command does not have is refused with those that it has', () => {
  const option = outputOption(DATA_FORMATS, '');
  expect(() => readFormat({ output: 'wide' }, option, COMMAND)).toThrow(
    'Cannot use --output "wide": expected json, yaml; see catena help ls',
  );
  expect(() => readFormat({ output: 'name', json: true }, LIST, COMMAND)).toThrow(
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
