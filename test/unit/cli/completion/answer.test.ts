// Does completion know what to offer for each argument and option, or deliberately nothing?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { COMMANDS } from '../../../../src/cli/commands.ts';
import { answer, kindOfArgument, kindOfOption } from '../../../../src/cli/completion/answer.ts';

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
      .filter(([option, one]) => one.type === 'string' && kindOfOption(option, one) === undefined)
      .filter(([, { placeholder = '' }]) => !FREE.includes(placeholder))
      .map(([option]) => `${name} --${option}`),
  );
  expect(unknown).toEqual([]);
});

test('every argument', () => {
  const unknown = COMMANDS.filter(({ usage }) => usage !== undefined).flatMap(command => {
    const count = Math.min(Array.from(command.usage.matchAll(/<[^>]*>/g)).length, command.positionals.max);
    const free = Array.from({ length: count }, (_, i) => i).filter(
      i => kindOfArgument(command, i) === undefined,
    );
    return free.map(i => `${command.name} ${i}`);
  });
  // A name that is still to be given, an address, the id of a request.
  expect(unknown).toEqual(['log 0', 'ipam 2', 'init 0']);
});

const confDir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-completion-'));
fs.writeFileSync(path.join(confDir, 'web.conflist'), '{"name":"web","plugins":[{"type":"ptp"}]}');
afterAll(() => fs.rmSync(confDir, { recursive: true }));

/** The words that are offered for the last one. */
function offered(...words: string[]): string[] {
  const lines = answer(words, { env: { NETCONFPATH: confDir }, types: [] }).split('\n');
  return lines.filter(Boolean).map(line => line.split('\t')[0] ?? '');
}

test.each([
  [['validate', '']],
  [['validate', 'one.conflist', '']],
  [['validate', '--explain', '']],
  [['try', '']],
  [['networks', '--versions', '']],
])('what may be a network is also a file: %j', words => {
  expect(offered(...words)).toEqual(['web', ':files']);
});

test.each([
  [['add', '-p', '8080:80', '']],
  [['add', '-p8080:80', '']],
  [['add', '--port', '8080:80', '']],
  [['add', '--dry-run', '']],
])('an option of one letter is no argument: %j', words => {
  expect(offered(...words)).toEqual(['web']);
});

test('an argument that is not repeated is offered once', () => {
  expect([offered('ls', ''), offered('status', 'web', '')]).toEqual([[], []]);
});
