import { afterAll, expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { compileFront, findCompilers, renderTables } from '../../../../plugins/build/front.ts';
import { deadline } from '../../../helpers/deadline.ts';
import { testNeeding } from '../../../helpers/skip.ts';

// A compiler on a busy machine.
setDefaultTimeout(deadline(60_000));

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-compile-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

/** e_machine of elf.h, for each processor that the front is written for. */
const MACHINES = { x64: 62, arm64: 183 } as const;

for (const arch of ['x64', 'arm64'] as const) {
  testNeeding(
    `compileFront() makes a program for ${arch} that needs no C library`,
    async () => {
      const file = path.join(dir, arch);
      expect(await compileFront(file, path.join(dir, 'tables'), arch)).toHaveProperty('by');
      const elf = fs.readFileSync(file);
      expect(elf.toString('latin1', 0, 4)).toBe('\x7fELF');
      expect(elf.readUInt16LE(18)).toBe(MACHINES[arch]);
      // Program headers of 56 bytes each; type 3 names a dynamic loader.
      const at = Number(elf.readBigUInt64LE(32));
      const types = Array.from({ length: elf.readUInt16LE(56) }, (_, i) => elf.readUInt32LE(at + 56 * i));
      expect(types).not.toContain(3);
    },
    findCompilers(arch).length > 0 ? undefined : `needs a C compiler for ${arch}`,
  );
}

test('compileFront() says for which processor there is no compiler, and what would help', async () => {
  expect(await compileFront(path.join(dir, 'none'), path.join(dir, 'tables'), 'riscv64')).toEqual({
    problem: 'there is no C compiler for riscv64: the front is not written for it',
  });
  const { PATH } = process.env;
  process.env.PATH = dir;
  try {
    const other = process.arch === 'x64' ? 'arm64' : 'x64';
    expect(await compileFront(path.join(dir, 'none'), path.join(dir, 'tables'), other)).toEqual({
      problem: `there is no C compiler for ${other}: install gcc-${other === 'x64' ? 'x86-64' : 'aarch64'}-linux-gnu, clang and lld, or zig`,
    });
  } finally {
    process.env.PATH = PATH;
  }
});

test('renderTables() is the same every time, so a front is the same bytes wherever it is compiled', async () => {
  expect(await renderTables()).toBe(await renderTables());
});
