// Does what swap says while it works fit the terminal?

import { expect, test } from 'bun:test';
import type { CommandCall } from '../../../../src/cli/command.ts';
import { tell } from '../../../../src/cli/commands/swap.ts';

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
