// Does a reader wait for what is no file?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { readIfThere, tryRead } from '../../../src/files/read-file.ts';

test('a FIFO is read as empty, instead of until a process writes to it', () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-fifo-'));
  try {
    const fifo = path.join(dir, 'fifo');
    Bun.spawnSync(['mkfifo', fifo]);
    expect([readIfThere(fifo, 'file'), tryRead(fifo)]).toEqual(['', '']);
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
});
