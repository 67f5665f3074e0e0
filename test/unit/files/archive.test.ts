import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packArchive } from '../../../src/files/archive.ts';
import { run } from '../../helpers/command.ts';

const tmp = fs.mkdtempSync(join(tmpdir(), 'cat-archive-'));
afterAll(() => fs.rmSync(tmp, { recursive: true }));

const text = (value: string) => new TextEncoder().encode(value);
const ENTRIES = [
  { name: 'a/bin/one', mode: 0o755, content: text('x'.repeat(513)) },
  { name: 'a/bin/two', mode: 0o755, content: { sameAs: 'a/bin/one' } },
  { name: 'a/empty', mode: 0o644, content: text('') },
];

describe('packArchive()', () => {
  test('makes what tar understands: contents, modes, times, second names', async () => {
    const file = join(tmp, 'a.tar.gz');
    fs.writeFileSync(file, packArchive(ENTRIES, 946_684_800));
    const listed = await run(['tar', '--utc', '-tvzf', file], { env: { PATH: process.env.PATH ?? '' } });
    expect([listed.exitCode, listed.stderr]).toEqual([0, '']);
    expect(listed.stdout.split('\n').map(line => line.replace(/ +/g, ' '))).toEqual([
      '-rwxr-xr-x root/root 513 2000-01-01 00:00 a/bin/one',
      'hrwxr-xr-x root/root 0 2000-01-01 00:00 a/bin/two link to a/bin/one',
      '-rw-r--r-- root/root 0 2000-01-01 00:00 a/empty',
      '',
    ]);
    expect((await run(['tar', '-xzf', file, '-C', tmp])).exitCode).toBe(0);
    expect(fs.readFileSync(join(tmp, 'a/bin/two'), 'utf8')).toBe('x'.repeat(513));
    expect(fs.statSync(join(tmp, 'a/bin/two')).ino).toBe(fs.statSync(join(tmp, 'a/bin/one')).ino);
  });

  test('makes the same bytes each time', () => {
    expect(packArchive(ENTRIES, 1)).toEqual(packArchive(ENTRIES, 1));
  });

  test('refuses a name that does not fit', () => {
    const name = 'n'.repeat(101);
    expect(() => packArchive([{ name, mode: 0o644, content: text('') }], 0)).toThrow('is too long');
  });
});
