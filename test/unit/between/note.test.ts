// Is the note about nodes read as it was written, and are nodes learned from files, live, and kept while these cannot be read?

import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { NodeEvents, NodeSource } from '../../../src/between/claims.ts';
import { noteFileOf } from '../../../src/between/names.ts';
import {
  describeNode,
  openFilesSource,
  parseNodes,
  peersIn,
  readNote,
  removeNote,
  writeNote,
} from '../../../src/between/note.ts';
import { parseCidr, parseIp } from '../../../src/net/ip.ts';
import { deadline } from '../../helpers/deadline.ts';
import { until } from '../../helpers/until.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-nodes-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true, force: true }));

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

let told: string[];
let problems: string[];
const open: NodeSource[] = [];
const events: NodeEvents = {
  nodes: nodes => void told.push(nodes.map(({ name, blocks }) => `${name}:${blocks.length}`).join(' ')),
  problem: text => void problems.push(text),
};

beforeEach(() => {
  [told, problems] = [[], []];
});
afterEach(() => {
  for (const source of open.splice(0)) source.close();
});

const last = (texts: readonly string[]) => texts.at(-1);

describe('openFilesSource()', () => {
  test('follows the files of a directory', async () => {
    fs.writeFileSync(`${dir}/a.json`, JSON.stringify(A));
    open.push(openFilesSource(dir, events));
    await until(() => last(told) === 'a:1');
    fs.writeFileSync(`${dir}/b.json`, JSON.stringify(B));
    await until(() => last(told) === 'a:1 b:2');
    fs.writeFileSync(`${dir}/b.json`, '{"name":');
    await until(() => problems.length === 1);
    expect(problems[0]).toContain('b.json');
    fs.rmSync(`${dir}/b.json`);
    await until(() => last(told) === 'a:1');
    fs.writeFileSync(`${dir}/readme.txt`, 'not a node');
    await Bun.sleep(200);
    expect(told).toEqual(['a:1', 'a:1 b:2', 'a:1']);
  });

  test('tells the nodes again when a problem has gone, though they are the same', async () => {
    fs.writeFileSync(`${dir}/a.json`, JSON.stringify(A));
    open.push(openFilesSource(dir, events));
    await until(() => last(told) === 'a:1');
    fs.writeFileSync(`${dir}/a.json`, '{"name":');
    await until(() => problems.length > 0);
    fs.writeFileSync(`${dir}/a.json`, JSON.stringify(A));
    await until(() => told.length === 2);
    expect(told).toEqual(['a:1', 'a:1']);
  });

  test('follows one file that is replaced by rename, and waits for one that does not exist', async () => {
    const file = `${dir}/sub/nodes.json`;
    open.push(openFilesSource(file, events));
    await until(() => problems.length === 1);
    expect(problems[0]).toContain('no such file');
    fs.mkdirSync(`${dir}/sub`);
    fs.writeFileSync(file, JSON.stringify([A]));
    await until(() => last(told) === 'a:1');
    fs.writeFileSync(`${file}.new`, JSON.stringify([A, B]));
    fs.renameSync(`${file}.new`, file);
    await until(() => last(told) === 'a:1 b:2');
    fs.rmSync(`${dir}/sub`, { recursive: true });
    await until(() => problems.length === 2);
    expect(last(told)).toBe('a:1 b:2');
  });

  test('reads the files from time to time where inotify has no instance left', async () => {
    fs.writeFileSync(`${dir}/a.json`, JSON.stringify(A));
    const script = `
      const { openFilesSource } = await import(${JSON.stringify(path.resolve('src/between/note.ts'))});
      openFilesSource(${JSON.stringify(dir)}, {
        nodes(nodes) { console.log('nodes', nodes.length); process.exit(0); },
        problem(text) { console.log('problem', text); },
      });
      setTimeout(() => process.exit(1), ${deadline(20_000)});`;
    const limit = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$0" -e "$1"';
    const child = Bun.spawn(['unshare', '-Ur', 'sh', '-c', limit, process.execPath, script], {
      stderr: 'pipe',
    });
    expect(await new Response(child.stdout).text()).toBe('nodes 1\n');
    expect(await child.exited).toBe(0);
  });
});
