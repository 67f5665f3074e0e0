// Is the note about nodes read as it was written?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseNodes } from '../../../src/between/described.ts';
import { noteFileOf, readNote, removeNote, writeNote } from '../../../src/between/note.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-nodes-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const A = { name: 'a', addresses: ['192.0.2.1', '2001:db8::1'], blocks: ['10.244.1.0/24'] };
const B = { name: 'b', addresses: ['192.0.2.2'], blocks: ['10.244.2.0/24', 'fd00:2::/64'] };

describe('the note', () => {
  test('is read as it was written, and tells when there is none', () => {
    expect(readNote(dir)).toBeUndefined();
    const note = {
      own: 'a',
      ways: 'vxlan',
      vni: 7,
      port: 8,
      nodes: parseNodes(JSON.stringify([A, B]), 'f'),
    } as const;
    writeNote(dir, note);
    expect(readNote(dir)).toEqual(note);
    fs.writeFileSync(noteFileOf(dir), '[');
    expect(() => readNote(dir)).toThrow('between.json');
    removeNote(dir);
    removeNote(dir);
    expect(readNote(dir)).toBeUndefined();
  });
});
