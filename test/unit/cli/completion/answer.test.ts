// Does completion know what to offer for each argument and option, or deliberately nothing?
import { expect, test } from 'bun:test';
import { COMMANDS } from '../../../../src/cli/commands.ts';
import { kindOfArgument, kindOfOption } from '../../../../src/cli/completion/answer.ts';

/** Only the user knows these. */
const FREE = [
  '<K=V;…>',
  '<address>',
  '<address:port>',
  '<id>',
  '<id>/<ifname>',
  '<json>',
  '<key=value>',
  '<kind>',
  '<levels>',
  '<n>',
  '<name>',
  '<number>',
  '<pattern>',
  '<place>',
  '<ports>',
  '<rate>',
  '<subnet>',
  '<seconds>',
  '<time>',
  '<url>',
  '<version>',
];

test('every option with a value', () => {
  const unknown = COMMANDS.flatMap(({ name, options = {} }) =>
    Object.entries(options)
      .filter(([option, one]) => one.type === 'string' && kindOfOption(option, one).kind === 'none')
      .filter(([, { placeholder = '' }]) => !FREE.includes(placeholder))
      .map(([option]) => `${name} --${option}`),
  );
  expect(unknown).toEqual([]);
});

test('every argument', () => {
  const unknown = COMMANDS.filter(({ usage }) => usage !== undefined).flatMap(command => {
    const count = Math.min(Array.from(command.usage.matchAll(/<[^>]*>/g)).length, command.positionals.max);
    const free = Array.from({ length: count }, (_, i) => i).filter(
      i => kindOfArgument(command, i).kind === 'none',
    );
    return free.map(i => `${command.name} ${i}`);
  });
  // A name that is still to be given, an address, the id of a request.
  expect(unknown).toEqual(['log 0', 'ipam 2', 'init 0']);
});
