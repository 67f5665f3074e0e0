// Is the note about nodes read as it was written?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseNodes } from '../../../src/between/described.ts';
import { noteFileOf, readNote, removeNote, writeNote } from '../../../src/between/note.ts';
import { peersIn } from '../../../src/between/peers.ts';
import { parseCidr, parseIp } from '../../../src/net/ip.ts';

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
      limits: { within: [parseCidr('10.0.0.0/8')], never: [parseIp('10.96.0.1')] },
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

  test('tells the node of an address by its smallest block, and none for its own', () => {
    expect(peersIn(dir)('10.244.2.9')).toBeUndefined();
    const C = { name: 'c', addresses: ['192.0.2.3'], blocks: ['10.244.0.0/16'] };
    const limits = { never: [] };
    const nodes = parseNodes(JSON.stringify([A, B, C]), 'f');
    writeNote(dir, { own: 'a', ways: 'auto', vni: 7, port: 8, limits, nodes });
    const find = peersIn(dir);
    const found = ['10.244.1.9', '10.244.2.9', '10.244.3.9', 'fd00:2::9', '10.9.9.9'].map(
      ip => find(ip)?.node,
    );
    expect(found).toEqual([undefined, 'b', 'c', 'b', undefined]);
  });
});
