// Do man's own programs show the pages of the manual, without a complaint and within the terminal?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { COMMANDS } from '../../src/cli/commands.ts';
import { CATENA } from '../helpers/catena.ts';
import { run } from '../helpers/command.ts';
import { describeNeeding, requires } from '../helpers/skip.ts';

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-man-'));
const files = ['catena.1', ...COMMANDS.map(({ name }) => `catena-${name}.1`)].map(name =>
  path.join(dir, name),
);

beforeAll(async () => {
  await Promise.all(
    files.map(async file => {
      const [, command] = /^catena-(.*)\.1$/.exec(path.basename(file)) ?? [];
      const page = await run([CATENA, 'help', '--man', ...(command === undefined ? [] : [command])]);
      expect(page).toMatchObject({ exitCode: 0, stderr: '' });
      fs.writeFileSync(file, page.stdout);
    }),
  );
});
afterAll(() => fs.rmSync(dir, { recursive: true }));

/** Bold is a character, a backspace and the character again. */
const AGAIN = new RegExp(`.${String.fromCharCode(8)}`, 'gu');

function plain(text: string): string {
  return text.replaceAll(AGAIN, '');
}

describeNeeding(
  'mandoc',
  () => {
    test('finds nothing wrong', async () => {
      const { stdout, stderr } = await run(['mandoc', '-T', 'lint', '-W', 'warning', ...files]);
      // A build has no date, so that it can be made again with the same bytes.
      const said = (stdout + stderr).split('\n').filter(line => !line.includes('missing date'));
      expect(said).toEqual(['']);
    });

    test.each([60, 80, 120])(
      'keeps to %d columns, but for lines that are there to be copied',
      async width => {
        const { stdout, exitCode } = await run(['mandoc', '-T', 'utf8', '-O', `width=${width}`, ...files]);
        expect(exitCode).toBe(0);
        const lines = plain(stdout).split('\n');
        const long = lines.filter(line => line.length > width && !/^ +catena /.test(line));
        expect(long).toEqual([]);
        expect(lines.length).toBeGreaterThan(500);
      },
    );
  },
  requires('mandoc'),
);

describeNeeding(
  'groff',
  () => {
    test('formats every page without a warning, with options and examples as they are typed', async () => {
      const argv = ['groff', '-man', '-T', 'utf8', '-P', '-c', '-ww', '-rLL=78n', ...files];
      const { stdout, stderr, exitCode } = await run(argv);
      expect([exitCode, stderr]).toEqual([0, '']);
      const shown = plain(stdout);
      expect(shown).toContain('--share-dir <dir>');
      expect(shown).toContain('catena set /run/netns/web eth0 -p 8081:80');
      expect(shown).toContain('whether the packet arrives is not known');
    });
  },
  requires('groff'),
);

test('a page that does not exist is refused, with the command that was meant', async () => {
  const { exitCode, stderr } = await run([CATENA, 'help', '--man', 'atach']);
  expect([exitCode, stderr]).toEqual([2, expect.stringContaining('did you mean "attach"')]);
});
