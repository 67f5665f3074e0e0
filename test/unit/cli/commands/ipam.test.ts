// Are the leases of a node listed, whatever else is beside their directories?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CommandCall } from '../../../../src/cli/command.ts';
import { run } from '../../../../src/cli/commands/ipam.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(join(tmpdir(), 'cat-ipam-'));
  fs.mkdirSync(join(dir, 'web'));
  fs.writeFileSync(join(dir, 'web', '10.1.0.2'), 'c1\r\neth0');
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

/** `ipam ls` of leases and records in the directory. */
async function list(...network: string[]): Promise<unknown> {
  let told = '';
  const call = {
    positionals: ['ls', ...network],
    text: (option: string) => (option.endsWith('-dir') ? dir : undefined),
    on: () => false,
    format: 'json',
    env: {},
    out(text: string) {
      told += text;
    },
  };
  expect(await run(call as unknown as CommandCall)).toBe(0);
  return JSON.parse(told).items;
}

test('a link that leads nowhere is no network', async () => {
  fs.symlinkSync('gone', join(dir, 'old'));
  expect(await list()).toMatchObject([{ network: 'web', address: '10.1.0.2' }]);
});

test('a record that Multus keeps in its own directory is one', async () => {
  fs.mkdirSync(join(dir, 'multus', 'results'), { recursive: true });
  const netns = '/proc/self/ns/net';
  const record = { kind: 'cniCacheV1', containerId: 'c1', ifName: 'eth0', networkName: 'web', netns };
  fs.writeFileSync(join(dir, 'multus', 'results', 'web-c1-eth0'), JSON.stringify(record));
  const evidence = expect.arrayContaining([`an ADD is recorded for namespace "${netns}", which exists`]);
  expect(await list('web')).toMatchObject([{ state: 'live', evidence }]);
});

test('what is no name of a network has no leases', async () => {
  // As of an unset variable of a shell; the directory itself is that of all networks.
  for (const name of ['', '.', '../other']) expect(list(name)).rejects.toThrow('network name');
});
