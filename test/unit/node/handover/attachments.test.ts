// Which attachments are found, whichever runtime made them?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { writeAttachment } from '../../../../src/attachments/entries.ts';
import type { Runtime } from '../../../../src/chain/run/runtime.ts';
import { findMissing, isMadeIn, listAttached } from '../../../../src/node/handover/attachments.ts';

let dir: string;
let runtime: Runtime;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(tmpdir(), 'cat-attached-'));
  runtime = { pluginDirs: [], cacheDir: dir, stateDir: path.join(dir, 'state') };
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const LIST = {
  cniVersion: '1.0.0',
  name: 'net',
  plugins: [{ type: 'bridge', ipam: { type: 'host-local' } }, { type: 'portmap' }],
};

function cache(containerId: string, netns: string, sandbox: string): void {
  const interfaces = [{ name: 'cni0' }, { name: 'eth0', sandbox }];
  writeAttachment(dir, {
    network: 'net',
    containerId,
    ifname: 'eth0',
    netns,
    args: [],
    capabilityArgs: {},
    source: JSON.stringify(LIST),
    result: { cniVersion: '1.0.0', interfaces },
  });
}

describe('listAttached()', () => {
  test('takes the namespace from the result when the cache does not have it', () => {
    cache('one', '', '/proc/self/ns/net');
    cache('two', '', '/nonexistent');
    const found = listAttached(undefined, runtime);
    expect(found.map(({ containerId, netns, isGone }) => [containerId, netns, isGone])).toEqual([
      ['one', '/proc/self/ns/net', false],
      ['two', '/nonexistent', true],
    ]);
  });

  test('names every executable that its plugins call', () => {
    cache('one', '/proc/self/ns/net', '');
    const [found] = listAttached('net', runtime);
    expect(found?.types).toEqual(['bridge', 'host-local', 'portmap']);
    expect(listAttached('other', runtime)).toEqual([]);
  });
});

describe('isMadeIn()', () => {
  test('trusts the record, and accepts every attachment without one', () => {
    expect(isMadeIn('/opt/cni/bin', { pluginDirs: undefined })).toBe(true);
    expect(isMadeIn('/opt/cni/bin', { pluginDirs: ['/opt/cni/bin/'] })).toBe(true);
    expect(isMadeIn('/opt/cni/bin', { pluginDirs: ['/srv/bin'] })).toBe(false);
  });
});

describe('findMissing()', () => {
  const executables = new Map([['bridge', '/usr/lib/cni/bridge']]);

  test('names the executables missing for its DEL', () => {
    expect(findMissing({ types: ['bridge'] }, executables, '"/x"')).toBeUndefined();
    expect(findMissing({ types: ['bridge', 'sbr'] }, executables, '"/x"')).toBe(
      'there is no "sbr" in "/x" to delete it',
    );
  });

  test('reports a runner whose attachments only it knows', () => {
    expect(findMissing({ types: ['catena'] }, executables, '"/x"')).toContain('only it can detach them');
  });
});
