// Do bash, zsh and fish offer the words that a command line may go on with?
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { SHELLS } from '../../src/cli/completion/question.ts';
import { CATENA } from '../helpers/catena.ts';
import { run } from '../helpers/command.ts';
import { deadline } from '../helpers/deadline.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { complete, findShell } from '../helpers/shells.ts';
import { describeNeeding, requiresRoot } from '../helpers/skip.ts';

setDefaultTimeout(deadline(120_000));

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-completion-'));
const confDir = path.join(dir, 'net.d');
const cache = path.join(dir, 'cni');
const env = { NETCONFPATH: confDir, CATENA_STATE_DIR: path.join(dir, 'state'), CNI_PATH: BIN_DIR };

beforeAll(() => {
  fs.mkdirSync(confDir);
  fs.mkdirSync(path.join(cache, 'results'), { recursive: true });
  for (const name of ['web-net', 'web-storage', 'other'])
    fs.writeFileSync(
      path.join(confDir, `${name}.conflist`),
      JSON.stringify({ cniVersion: '1.0.0', name, plugins: [{ type: 'ptp' }] }),
    );
});
afterAll(() => fs.rmSync(dir, { recursive: true }));

/** What each shell offers for a line up to the cursor. */
const LINES = [
  ['catena valid', ['validate']],
  ['catena uninstall --pu', ['--purge']],
  ['catena ls --output m', ['mermaid']],
  ['catena add web-', ['web-net', 'web-storage']],
  // Also the path of a file.
  ['catena validate --explain web-', ['web-net', 'web-storage']],
  ['catena help --completion ', ['bash', 'fish', 'zsh']],
  ['catena help ui', ['ui']],
] as const;

for (const shell of SHELLS)
  describeNeeding(
    shell,
    () => {
      test.each(LINES)('%p', async (line, offered) => {
        expect(await complete(shell, BIN_DIR, line, env)).toEqual([...offered]);
      });

      test('a value in the word of its option', async () => {
        const [only = '', ...more] = await complete(shell, BIN_DIR, 'catena ls --output=mer', env);
        expect([only.replace('--output=', ''), more]).toEqual(['mermaid', []]);
      });
    },
    findShell(shell) === undefined ? `needs ${shell}` : undefined,
    shell === 'zsh' ? requiresRoot() : undefined,
  );

test('an installation with --share-dir has a file for each shell, and its removal none', async () => {
  const [binDir, share] = [path.join(dir, 'bin'), path.join(dir, 'share')];
  const options = ['--bin-dir', binDir, '--conf-dir', path.join(dir, 'conf')];
  const done = await run([CATENA, 'install', ...options, '--share-dir', share]);
  expect(done).toMatchObject({ exitCode: 0, stderr: '' });
  // The files are many, so they are one line.
  expect(done.stdout.split('\n').filter(line => line.includes(share))).toEqual([
    expect.stringMatching(/^create {3}\d+ files below .*\/share: shell completion and the manual$/),
  ]);
  const files = [
    'bash-completion/completions/catena',
    'fish/vendor_completions.d/catena.fish',
    'zsh/site-functions/_catena',
  ];
  for (const [i, shell] of SHELLS.toSorted().entries()) {
    const { stdout } = await run([CATENA, 'help', '--completion', shell]);
    expect(fs.readFileSync(path.join(share, files[i] ?? ''), 'utf8')).toBe(stdout);
  }
  expect(await run([CATENA, 'uninstall', ...options])).toMatchObject({ exitCode: 0 });
  expect(files.filter(file => fs.existsSync(path.join(share, file)))).toEqual([]);
});

test('another shell is refused, with the name that was meant', async () => {
  const { exitCode, stderr } = await run([CATENA, 'help', '--completion', 'fisch']);
  expect([exitCode, stderr]).toEqual([2, expect.stringContaining('did you mean "fish"')]);
});
