// Are command lines understood as parseArgs() of node:util understands them?
import { expect, test } from 'bun:test';
import { parseArgs } from 'node:util';
import {
  type Command,
  type CommandCall,
  parseArguments,
  readCommandLine,
  UsageError,
} from '../../../src/cli/command.ts';
import { COMMANDS, GLOBAL_OPTIONS } from '../../../src/cli/commands.ts';
import { PRINTABLE } from '../../../src/cli/install/print-options.ts';

const OPTIONS = {
  file: { type: 'string' },
  arg: { type: 'string', multiple: true, short: 'a' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

const WORDS = [
  'net',
  '',
  '-',
  '--',
  '--file',
  '--file=x',
  '--file=',
  '--file=a=b',
  '--file=-1',
  '--arg',
  '--arg=\n1',
];
const MORE = [
  '--json',
  '--json=1',
  '--help',
  '-h',
  '-a',
  '-a1',
  '-x',
  '--nope',
  '--no-json',
  '--__proto__',
  '--toString=1',
  '-1',
  '---',
];

test('every command line of up to three words', () => {
  const words = [...WORDS, ...MORE];
  const one = words.map(word => [word]);
  const two = one.flatMap(line => words.map(word => [...line, word]));
  const three = two.flatMap(line => words.map(word => [...line, word]));
  for (const args of [[], ...one, ...two, ...three])
    expect([args, outcomeOf(args)]).toEqual([args, nodeOutcomeOf(args)]);
});

test.each([
  ['--fil', [], 'Cannot use --fil: no such option; did you mean --file?'],
  ['-x', [], 'Cannot use -x: no such option'],
  ['-file', [], 'Cannot use -file: no such option; did you mean --file?'],
  ['-a', [], 'Cannot use -a: its value is missing'],
  ['--json=1', [], 'Cannot use --json=1: --json takes no value'],
  ['--file', [], 'Cannot use --file: its value is missing'],
  ['--file', ['-1'], 'Cannot use --file: its value is missing or begins with a dash: --file=-1'],
])('%s %p: %s', (first, others, message) => {
  expect(() => parseArguments([first, ...others], OPTIONS)).toThrow(new Error(message));
});

function outcomeOf(args: string[]): unknown {
  try {
    return parseArguments(args, OPTIONS);
  } catch {
    return 'refused';
  }
}

function nodeOutcomeOf(args: string[]): unknown {
  try {
    const { values, positionals } = parseArgs({ args, options: OPTIONS, allowPositionals: true });
    return { values: { ...values }, positionals };
  } catch {
    return 'refused';
  }
}

test('a value that is not one of its choices is refused with those that there are', () => {
  const options = { print: { type: 'string', choices: ['alerts', 'board'] } } as const;
  expect(parseArguments(['--print=board'], options).values).toEqual({ print: 'board' });
  for (const args of [['--print', 'alert'], ['--print=alert']])
    expect(() => parseArguments(args, options)).toThrow(
      'Cannot use --print "alert": expected alerts, board; did you mean "alerts"?',
    );
});

test('every printed file can be asked for', () => {
  const { options } = COMMANDS.find(({ name }) => name === 'install') as Command;
  for (const what of PRINTABLE)
    expect(parseArguments(['--print', what], options).values).toEqual({ print: what });
});

test.each([
  ['doctor --traffic --bundle report.tar.gz', 'both --traffic and --bundle'],
  ['doctor --to 192.0.2.1', '--to without --traffic'],
  ['daemon --stop --ping', 'both --stop and --ping'],
  ['daemon --status --deadline 1', '--deadline without --ping'],
  ['gc podnet --all --grace 1', '--grace without --gone'],
  ['gc --gone --valid web/eth0', 'both --valid and --gone'],
  ['ls --check --unsettled', 'both --check and --unsettled'],
  ['log --requests --follow', 'both --follow and --requests'],
  ['init podnet --kind bridge --dir podnet', '--dir without --plugin'],
  ['init motd --plugin --kind bridge', 'both --kind and --plugin'],
  ['daemon --status --workers 2', 'both --workers and --status'],
  ['daemon --ping --metrics *:9464', 'both --metrics and --ping'],
  ['networks --versions podnet --files-only', 'both --files-only and --versions'],
  ['validate --schema bridge --strict', 'both --strict and --schema'],
  ['install --with-account', '--with-account without --print'],
])('an option that would do nothing is refused: catena %s', (line, problem) => {
  const [name = '', ...args] = line.split(' ');
  expect(() => read(name, args)).toThrow(`Cannot use ${problem}; see catena help ${name}`);
  expect(read(name, [...args, '--help']).on('help')).toBe(true);
});

test.each([
  ['install --as-default', '--as-default without a list'],
  ['install --print daemonset --conf-name 05-podnet.conflist', '--conf-name without a list'],
  ['ipam ls --force', '--force with "ipam ls"'],
  ['ipam pools --dry-run', '--dry-run with "ipam pools"'],
  ['log 4f --since 2h', '--since with the id "4f"'],
  ['log 4f --follow', '--follow with the id "4f"'],
  ['log --kernel', '--kernel without an id'],
])('an option that does nothing beside the arguments is refused: catena %s', async (line, problem) => {
  const [name = '', ...args] = line.split(' ');
  const call = read(name, args) as CommandCall;
  const { run } = (await COMMANDS.find(one => one.name === name)?.load(call)) ?? {};
  expect(() => run?.(call)).toThrow(new UsageError(`Cannot use ${problem}`));
});

test('an option is needed or excluded by one of the same command', () => {
  for (const { options } of COMMANDS)
    for (const { with: needed, not = [] } of Object.values(options))
      for (const one of [...(needed === undefined ? [] : [needed]), ...not])
        expect(Object.keys(options)).toContain(one);
});

function read(name: string, args: string[]) {
  const command = COMMANDS.find(one => one.name === name) as Command;
  return readCommandLine(command, args, { commands: COMMANDS, globalOptions: GLOBAL_OPTIONS }, undefined);
}
