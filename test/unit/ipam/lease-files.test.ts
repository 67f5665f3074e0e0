import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { linkSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bootOf, noteBoot, parseOwner, renderOwner, thisBoot } from '../../../src/ipam/lease-files.ts';

describe('renderOwner()', () => {
  test('writes the bytes of the reference', () => {
    expect(renderOwner({ containerId: 'dummy', ifname: 'eth0' })).toBe('dummy\r\neth0');
    expect(renderOwner({ containerId: ' dummy\n ', ifname: 'eth0' })).toBe('dummy\r\neth0');
  });
});

describe('parseOwner()', () => {
  test('reads current and older leases, and ignores surrounding white space', () => {
    expect(parseOwner('dummy\r\neth0')).toEqual({ containerId: 'dummy', ifname: 'eth0' });
    expect(parseOwner(' dummy\r\neth0\n')).toEqual({ containerId: 'dummy', ifname: 'eth0' });
    expect(parseOwner('dummy\n')).toEqual({ containerId: 'dummy' });
  });

  test('rejects empty and foreign text', () => {
    expect(['', '\n', 'dummy\neth0', 'a\r\nb\r\nc', '{"id": 1}'].map(parseOwner)).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
  });
});

let file: string;
beforeEach(() => {
  file = join(mkdtempSync(join(tmpdir(), 'note-')), '10.0.0.2');
  writeFileSync(file, 'cid\r\neth0');
});
afterEach(() => rmSync(join(file, '..'), { recursive: true }));

const EARLIER = { ...thisBoot(), bootId: '11111111-2222-4333-8444-555555555555' };

describe('bootOf()', () => {
  test('knows nothing of a file without a note, or of a missing one', () => {
    expect([bootOf(file), bootOf(`${file}.gone`)]).toEqual(['unknown', 'unknown']);
  });

  test('distinguishes this boot from another one, on this machine only', () => {
    expect(noteBoot(file)).toBe(true);
    expect(bootOf(file)).toBe('this');
    noteBoot(file, EARLIER);
    expect(bootOf(file)).toBe('earlier');
    noteBoot(file, { ...EARLIER, machine: 'another' });
    expect(bootOf(file)).toBe('unknown');
  });

  test('belongs to the file, not to its name or content', () => {
    noteBoot(file, EARLIER);
    const text = readFileSync(file);
    linkSync(file, `${file}.linked`);
    renameSync(file, `${file}.moved`);
    writeFileSync(file, text);
    expect([`${file}.linked`, `${file}.moved`, file].map(bootOf)).toEqual(['earlier', 'earlier', 'unknown']);
  });

  test('leaves the content as the reference wrote it', () => {
    noteBoot(file);
    expect(readFileSync(file, 'utf8')).toBe('cid\r\neth0');
  });
});

describe('noteBoot()', () => {
  test('reports that a note cannot be written', () => {
    expect(noteBoot('/proc/self/status')).toBe(false);
  });

  test('writes no note when the boot is unknown', () => {
    expect(noteBoot(file, { ...thisBoot(), bootId: '' })).toBe(false);
    expect(bootOf(file)).toBe('unknown');
  });
});
