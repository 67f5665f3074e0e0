// What do tests of the journal need?
import fs from 'node:fs';
import path from 'node:path';
import type { Intent } from '../../src/journal/record.ts';
import { startRunner } from '../../src/journal/runner.ts';

/** An intent as an ADD of this process would write it, with the given changes. */
export function intentOf(more: Partial<Intent> = {}): Intent {
  return {
    network: 'testnet',
    containerId: 'c1',
    ifname: 'eth0',
    netns: '/run/netns/none',
    netnsIdentity: undefined,
    boot: 'this-boot',
    owner: 'test',
    args: [['K', 'v']],
    capabilityArgs: { mac: '0a:00:00:00:00:01' },
    source: '{"cniVersion":"1.1.0","name":"testnet","plugins":[{"type":"noop"}]}',
    pluginDirs: ['/opt/cni/bin'],
    executables: ['/opt/cni/bin/noop'],
    cacheDir: '/var/lib/cni',
    runner: startRunner(),
    ...more,
  };
}

/** Every file below a directory, by its relative path; symbolic links are not followed. */
export function filesBelow(dir: string): string[] {
  if (!fs.existsSync(dir)) return [];
  return fs
    .readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter(entry => !entry.isDirectory())
    .map(entry => path.relative(dir, path.join(entry.parentPath, entry.name)))
    .sort();
}
