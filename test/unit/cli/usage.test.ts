// Does the usage text fit the terminal, and does every command have a group and examples that its own parser takes?
import { describe, expect, test } from 'bun:test';
import { optionsOf, parseArguments } from '../../../src/cli/command.ts';
import { COMMANDS, GLOBAL_OPTIONS } from '../../../src/cli/commands.ts';
import { EXAMPLES, GROUPS, renderCommandUsage, renderUsage } from '../../../src/cli/usage.ts';
import { wordsOf } from '../../helpers/words.ts';

const TABLE = { commands: COMMANDS, globalOptions: GLOBAL_OPTIONS };
const NAMES = COMMANDS.map(({ name }) => name).sort();

test('every command is in one group and has an example', () => {
  expect(GROUPS.flatMap(({ commands }) => commands).sort()).toEqual(NAMES);
  expect(Object.keys(EXAMPLES).sort()).toEqual(NAMES);
});

// Those that look, those of temporary namespaces, and processes that end with their caller.
const CHANGES_NOTHING = [
  ...['check', 'compare', 'conformance', 'daemon', 'doctor', 'help', 'log', 'ls', 'networks', 'status'],
  ...['try', 'ui', 'validate', 'who', 'why-not'],
];

test('every command that changes something has --dry-run', () => {
  const without = COMMANDS.filter(({ options }) => options['dry-run'] === undefined);
  expect(without.map(({ name }) => name).sort()).toEqual(CHANGES_NOTHING);
});

test.each(COMMANDS.map(command => [command.name, command] as const))(
  'the examples of %s have its options and arguments',
  (name, { options, positionals }) => {
    for (const [, line] of EXAMPLES[name] ?? []) {
      const [tool, command, ...args] = wordsOf(line);
      expect([tool, command]).toEqual(['catena', name]);
      const parsed = parseArguments(args, optionsOf(options, { globalOptions: GLOBAL_OPTIONS }) ?? {});
      expect(parsed.positionals.length).toBeWithin(positionals.min, positionals.max + 1);
    }
  },
);

describe.each([60, 80, 120])('at %d columns', width => {
  const tooWide = (text: string) => {
    return text.split('\n').filter(line => line.length > width && !line.startsWith('  catena '));
  };

  test('the usage text fits', () => {
    expect(tooWide(renderUsage(TABLE, width))).toEqual([]);
  });

  test.each(COMMANDS.map(command => [command.name, command] as const))('that of %s fits', (_, command) => {
    expect(tooWide(renderCommandUsage(command, TABLE, width))).toEqual([]);
  });
});
