// Since when is an attachment there?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { writeEntry } from '../../../src/attachments/entries.ts';
import { noteGeneration } from '../../../src/attachments/generation.ts';
import { ofEntry } from '../../../src/attachments/notes.ts';
import { cacheFileOf } from '../../../src/cni/attachment.ts';
import { runDir } from '../../../src/cni/directories.ts';
import { factsIn } from '../../../src/node/facts.ts';
import { readNode, sinceOf } from '../../../src/node/read-node.ts';

test('attachments are in the order of the names that people see', async () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-names-'));
  try {
    const [cacheDir, stateDir] = [`${dir}/cni`, `${dir}/state`];
    const pods = [
      ['c1', 'web', 'podnet'],
      ['c2', 'db', 'podnet'],
      ['c3', 'app', 'zone'],
    ] as const;
    for (const [containerId, pod, network] of pods) {
      const args = [
        ['K8S_POD_NAMESPACE', 'shop'],
        ['K8S_POD_NAME', pod],
      ] as const;
      const known = { network, containerId, ifname: 'eth0', netns: '/run/netns/none', args };
      writeEntry(cacheDir, { ...known, capabilityArgs: {}, source: '', result: undefined });
    }
    const runtime = { cacheDir, stateDir, env: { CATENA_RUN_DIR: `${dir}/run` }, pluginDirs: [] };
    const facts = factsIn(`${dir}/conf`, runtime);
    const places = { facts, runtime, findAbout: () => undefined, daemon: { state: 'none' }, version: '1' };
    const { attachments } = await readNode(places as unknown as Parameters<typeof readNode>[0]);
    expect(attachments.map(({ podName }) => podName)).toEqual(['app', 'db', 'web']);
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
});

test('of an attachment of another runtime, sinceOf() is the time of its ADD, also after its cached result was written again', () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-origin-'));
  try {
    const env = { CATENA_RUN_DIR: path.join(dir, 'run') };
    const id = { network: 'podnet', containerId: 'c1', ifname: 'eth0' };
    const known = { ...id, netns: '', args: [], capabilityArgs: {}, source: '', result: undefined };
    writeEntry(dir, known);
    fs.utimesSync(cacheFileOf(dir, known), 2_000, 2_000);
    const one = ofEntry(known, dir, []);
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
