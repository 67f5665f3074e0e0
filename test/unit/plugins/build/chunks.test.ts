// Do the layers of the executable's modules name files that exist?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { PROCESSES } from '../../../../plugins/build/chunks.ts';

test('every module that begins a kind of process exists', () => {
  const root = path.resolve(import.meta.dir, '../../../..');
  const missing = Object.values(PROCESSES)
    .flat()
    .filter(file => !fs.existsSync(path.join(root, file)));
  expect(missing).toEqual([]);
});
