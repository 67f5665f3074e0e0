// Does a file of lines stay bounded, and does it come back after a failure?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { openRotatingFile } from '../../../src/observe/rotating-file.ts';
import { ROOT } from '../../helpers/source-tree.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-log-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true, force: true }));

const line = (text: string) => Buffer.from(`${text}\n`);
const read = (name: string) => fs.readFileSync(path.join(dir, name), 'utf8');

describe('openRotatingFile()', () => {
  test('creates files of whole lines, readable by their owner only, and keeps the newest', () => {
    const file = openRotatingFile(path.join(dir, 'log'), { maxBytes: 10, maxFiles: 3 });
    for (const text of ['one', 'two', 'three', 'four', 'five', 'six', 'seven']) file.append(line(text));
    file.close();
    expect(fs.readdirSync(dir).sort()).toEqual(['log', 'log.1', 'log.2']);
    expect([read('log'), read('log.1'), read('log.2')]).toEqual(['six\nseven\n', 'four\nfive\n', 'three\n']);
    for (const name of fs.readdirSync(dir)) {
      expect(fs.statSync(path.join(dir, name)).mode & 0o777).toBe(0o600);
    }
  });

  test('keeps a line that is larger than the limit of a file', () => {
    const file = openRotatingFile(path.join(dir, 'log'), { maxBytes: 4, maxFiles: 1 });
    for (const text of ['much too long', 'too long again']) file.append(line(text));
    file.close();
    expect(fs.readdirSync(dir)).toEqual(['log']);
    expect(read('log')).toBe('too long again\n');
  });

  test('continues an existing file', () => {
    fs.writeFileSync(path.join(dir, 'log'), 'older\n');
    const file = openRotatingFile(path.join(dir, 'log'), { maxBytes: 100, maxFiles: 2 });
    file.append(line('newer'));
    file.close();
    expect(read('log')).toBe('older\nnewer\n');
  });

  test('begins a line of its own behind one that another process could not complete', () => {
    fs.writeFileSync(path.join(dir, 'log'), 'whole\npart of a li');
    const file = openRotatingFile(path.join(dir, 'log'), { maxBytes: 100, maxFiles: 2 });
    for (const text of ['newer', 'newest']) file.append(line(text));
    file.close();
    expect(read('log')).toBe('whole\npart of a li\nnewer\nnewest\n');
  });

  test('reopens the file after it was moved', () => {
    const file = openRotatingFile(path.join(dir, 'log'), { maxBytes: 100, maxFiles: 2 });
    file.append(line('one'));
    fs.renameSync(path.join(dir, 'log'), path.join(dir, 'moved'));
    file.append(line('two'));
    file.close();
    expect([read('moved'), read('log')]).toEqual(['one\n', 'two\n']);
  });

  test('loses no line to another process that finds the same file full', async () => {
    const [writers, lines] = [3, 400];
    const source = path.join(ROOT, 'src/observe/rotating-file.ts');
    const script = `import { openRotatingFile } from ${JSON.stringify(source)};
      for (let i = 0; i < ${lines}; i++) {
        const file = openRotatingFile('log', { maxBytes: 100, maxFiles: 400 });
        file.append(Buffer.from(process.argv.at(-1) + ' ' + i + '\\n'));
        file.close();
      }`;
    fs.writeFileSync(path.join(dir, 'write.ts'), script);
    const started = Array.from({ length: writers }, (_, i) =>
      Bun.spawn([process.execPath, 'write.ts', `writer${i}`], { cwd: dir, stderr: 'inherit' }),
    );
    expect(await Promise.all(started.map(one => one.exited))).toEqual(started.map(() => 0));
    const files = fs.readdirSync(dir).filter(name => /^log(\.\d+)?$/.test(name));
    const kept = files.flatMap(name => read(name).trim().split('\n'));
    expect(new Set(kept).size).toBe(writers * lines);
  }, 60_000);

  test('fails for a line on a full disk, and recovers when there is space again', () => {
    fs.symlinkSync('/dev/full', path.join(dir, 'log'));
    const file = openRotatingFile(path.join(dir, 'log'), { maxBytes: 100, maxFiles: 2 });
    expect(() => file.append(line('one'))).toThrow('ENOSPC');
    fs.rmSync(path.join(dir, 'log'));
    file.append(line('two'));
    file.close();
    expect(read('log')).toBe('two\n');
  });
});
