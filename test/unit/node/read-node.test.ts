// Since when is an attachment there?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { writeAttachment } from '../../../src/attachments/entries.ts';
import { noteGeneration } from '../../../src/attachments/generation.ts';
import { cacheFileOf } from '../../../src/attachments/place.ts';
import { runDir } from '../../../src/cni/directories.ts';
import { sinceOf } from '../../../src/node/read-node.ts';

test('of an attachment of another runtime, sinceOf() is the time of its ADD, also after its cached result was written again', () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-origin-'));
  try {
    const env = { CATENA_RUN_DIR: path.join(dir, 'run') };
    const id = { network: 'podnet', containerId: 'c1', ifname: 'eth0' };
    const known = { ...id, netns: '', args: [], capabilityArgs: {}, source: undefined, result: undefined };
    writeAttachment(dir, known);
    fs.utimesSync(cacheFileOf(dir, known), 2_000, 2_000);
    const one = { known, record: undefined, cached: known, cacheDir: dir };
    expect(sinceOf(one, env)).toBe(new Date(2_000_000).toISOString());
    noteGeneration(runDir(env), id, { renew: true, boot: '' });
    const [note = ''] = fs
      .readdirSync(path.join(dir, 'run'), { recursive: true, encoding: 'utf8' })
      .filter(name => name.endsWith('c1:eth0'));
    fs.lutimesSync(path.join(dir, 'run', note), 1_000, 1_000);
    expect(sinceOf(one, env)).toBe(new Date(1_000_000).toISOString());
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
});
