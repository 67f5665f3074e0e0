// Does a report have what can be read, whatever else is beside it?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run } from '../../../../src/cli/bundle/write.ts';
import type { CommandCall } from '../../../../src/cli/command.ts';

const dir = fs.mkdtempSync(join(tmpdir(), 'cat-bundle-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

test('a link that leads nowhere does not keep other files of its directory out', async () => {
  fs.writeFileSync(join(dir, '10-web.conflist'), '{}');
  fs.symlinkSync('10-web.conflist/below', join(dir, '20-below.conflist'));
  const texts: Record<string, string> = { 'conf-dir': dir, bundle: join(dir, 'report.tar.gz') };
  let told = '';
  const call = {
    plugins: { types: [], find: async () => undefined },
    text: (option: string) => texts[option] ?? (option.endsWith('-dir') ? join(dir, option) : undefined),
    texts: (option: string) => (option === 'bin-dir' ? [dir] : []),
    on: () => false,
    format: 'json',
    env: { CATENA_RUN_DIR: join(dir, 'run') },
    cwd: dir,
    signal: new AbortController().signal,
    runCommand: async () => 0,
    out(text: string) {
      told += text;
    },
    err: () => {},
  };
  expect(await run(call as unknown as CommandCall)).toBe(0);
  const { files } = JSON.parse(told) as { files: { name: string; what: string }[] };
  expect(files.map(({ name }) => name).filter(name => name.startsWith('conflists/'))).toEqual([
    'conflists/10-web.conflist',
  ]);
  expect(files.find(({ name }) => name === 'executables.json')?.what).toBe('files of the plugin directories');
});
