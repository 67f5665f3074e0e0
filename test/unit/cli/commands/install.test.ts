// Are the files for shells and man shown in a few lines, and those that differ with lines of their own?
import { expect, test } from 'bun:test';
import { renderShared } from '../../../../src/cli/commands/install.ts';

const at = (path: string, action: string, why?: string) => ({
  path: `/usr/share/${path}`,
  action,
  ...(why === undefined ? {} : { why }),
});

test('files to which the same happens are one line, with the directory that they share', () => {
  expect(renderShared([at('man/man1/a.1', 'create'), at('man/man1/b.1', 'create')])).toEqual([
    'create   2 files below /usr/share/man/man1: shell completion and the manual',
  ]);
  expect(renderShared([at('man/man1/a.1', 'same'), at('fish/c', 'same'), at('man/b', 'update')])).toEqual([
    'same     2 files below /usr/share: shell completion and the manual',
    'update   /usr/share/man/b',
  ]);
});

test('a file that is kept is named, with the reason', () => {
  const steps = [at('a', 'create'), at('b', 'create'), at('c', 'keep', 'it is of another package')];
  expect(renderShared(steps)[1]).toBe('keep     /usr/share/c: it is of another package');
  expect(renderShared([])).toEqual([]);
});
