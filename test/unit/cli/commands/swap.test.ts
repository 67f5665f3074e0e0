// Does what swap says while it works fit the terminal, and does a command that was interrupted change nothing?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CommandCall } from '../../../../src/cli/command.ts';
import { run, tell } from '../../../../src/cli/commands/swap.ts';
import { findDigest, putSwap } from '../../../../src/cli/install/swap.ts';

test.each([
  ['text', 'link tuning of\n  network "podnet"\n'],
  ['json', ''],
])('what is told is broken between words, and is not beside data: %s', (format, expected) => {
  let told = '';
  const out = (text: string) => {
    told += text;
  };
  tell(
    { format, env: { COLUMNS: '20' }, out } as unknown as CommandCall,
    'link tuning of network "podnet"\n',
  );
  expect(told).toBe(expected);
});

test('what is interrupted before it begins is not done, though --yes was given', async () => {
  const dir = fs.mkdtempSync(join(tmpdir(), 'cat-swap-'));
  try {
    const [target, candidate] = [join(dir, 'tuning'), join(dir, 'new')];
    fs.writeFileSync(target, 'old');
    fs.writeFileSync(candidate, 'new');
    const [before = '', after = ''] = [target, candidate].map(findDigest);
    putSwap({ target, candidate, before, after });
    fs.writeFileSync(join(dir, 'web.conflist'), '{"name":"web","plugins":[{"type":"tuning"}]}');
    let told = '';
    const call = {
      positionals: ['web'],
      plugins: { types: [] },
      text: (option: string) => (option === 'plugin' ? 'tuning' : option.endsWith('-dir') ? dir : undefined),
      texts: (option: string) => (option === 'bin-dir' ? [dir] : []),
      on: (option: string) => ['undo', 'yes', 'force'].includes(option),
      format: 'json',
      env: {},
      cwd: dir,
      signal: AbortSignal.abort(),
      out(text: string) {
        told += text;
      },
    };
    expect(await run(call as unknown as CommandCall)).toBe(1);
    expect(JSON.parse(told)).toMatchObject({ outcome: 'declined' });
    expect(fs.readFileSync(target, 'utf8')).toBe('new');
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
});
