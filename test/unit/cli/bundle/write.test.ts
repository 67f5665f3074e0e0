// Does a report have what can be read, whatever else is beside it?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run } from '../../../../src/cli/bundle/write.ts';
import type { CommandCall } from '../../../../src/cli/command.ts';

const dir = fs.mkdtempSync(join(tmpdir(), 'cat-bundle-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

function callIn(told: string[], signal = new AbortController().signal): CommandCall {
  const texts: Record<string, string> = { 'conf-dir': dir, bundle: join(dir, 'report.tar.gz') };
  const call = {
    plugins: { types: [], find: async () => undefined },
    text: (option: string) => texts[option] ?? (option.endsWith('-dir') ? join(dir, option) : undefined),
    texts: (option: string) => (option === 'bin-dir' ? [dir] : []),
    on: () => false,
    format: 'json',
    env: { CATENA_RUN_DIR: join(dir, 'run') },
    cwd: dir,
    signal,
    runCommand: async () => 0,
    out: (text: string) => told.push(text),
    err: () => {},
  };
  return call as unknown as CommandCall;
}

test('a report that was interrupted is not written', async () => {
  await expect(run(callIn([], AbortSignal.abort()))).rejects.toThrow('abort');
  expect(fs.existsSync(join(dir, 'report.tar.gz'))).toBe(false);
});

test('a link that leads nowhere does not keep other files of its directory out', async () => {
  fs.writeFileSync(join(dir, '10-web.conflist'), '{}');
  fs.symlinkSync('10-web.conflist/below', join(dir, '20-below.conflist'));
  const told: string[] = [];
  expect(await run(callIn(told))).toBe(0);
  const { files } = JSON.parse(told.join('')) as { files: { name: string; what: string }[] };
  expect(files.map(({ name }) => name).filter(name => name.startsWith('conflists/'))).toEqual([
    'conflists/10-web.conflist',
  ]);
  expect(files.find(({ name }) => name === 'executables.json')?.what).toBe('files of the plugin directories');
});
