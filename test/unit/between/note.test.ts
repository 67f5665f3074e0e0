// Is the note about nodes read as it was written?

import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  describeNode,
  noteFileOf,
  parseNodes,
  peersIn,
  readNote,
  removeNote,
  writeNote,
} from '../../../src/between/note.ts';
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

describe('nodes as JSON', () => {
  // Are nodes read from JSON as they were written, and is anything else refused with the reason?
  const A = { name: 'a', addresses: ['192.0.2.1', '2001:db8::1'], blocks: ['10.244.1.0/24'] };
  const B = { name: 'b', addresses: ['192.0.2.2'], blocks: ['10.244.2.0/24', 'fd00:2::/64'] };

  describe('parseNodes()', () => {
    test('reads one node or a list, and writes it again', () => {
      expect(parseNodes(JSON.stringify(A), 'f').map(describeNode)).toEqual([A]);
      expect(parseNodes(JSON.stringify([A, B]), 'f').map(describeNode)).toEqual([A, B]);
    });

    test.each([
      ['{', 'Cannot use nodes in "f"'],
      ['{"name": "a", "addresses": ["x"], "blocks": []}', 'must be an IP address'],
      ['[{"name": "a", "addresses": [], "blocks": ["10.0.0.0"]}]', 'must be an address with a prefix'],
      ['[{"name": "", "addresses": [], "blocks": []}]', 'name'],
      ['7', 'must be'],
    ])('refuses %p', (text, problem) => {
      expect(() => parseNodes(text, 'f')).toThrow(problem);
    });
  });
});
