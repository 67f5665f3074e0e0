// Are records and cached results of the same attachment listed as one?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { listKnown } from '../../../../src/chain/records/known-attachments.ts';
import { toRemembered } from '../../../../src/chain/records/remembered-add.ts';
import { cacheFileOf, writeAttachment } from '../../../../src/journal/entries.ts';
import type { CachedAttachment } from '../../../../src/journal/entry.ts';
import { recordFileOf } from '../../../../src/journal/place.ts';
import { readRecord, replaceRecord } from '../../../../src/journal/store.ts';
import { intentOf } from '../../../helpers/journal.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-known-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const at = (name: string) => path.join(dir, name);
const cached = (containerId: string, network = 'testnet'): CachedAttachment => ({
  ...{ network, containerId, ifname: 'eth0', netns: '/n', args: [], capabilityArgs: {} },
  ...{ source: '{}', result: { cniVersion: '1.1.0' } },
});

/** A record of an ADD that succeeded, and the cached result that it wrote. */
function attach(containerId: string, journal: string, cacheDir: string): void {
  const id = { network: 'testnet', containerId, ifname: 'eth0' };
  const intent = { ...intentOf({ cacheDir }), ...id };
  const result = { cniVersion: '1.1.0' };
  replaceRecord(journal, intent, [
    { event: 'link', verb: 'ADD', index: 0, result },
    { event: 'done', op: intent.runner.op },
  ]);
  const record = readRecord(journal, id);
  if (record) writeAttachment(cacheDir, toRemembered(record));
}

const list = (network?: string) =>
  listKnown({ cacheDir: at('cache'), journals: [at('state'), at('delegates')] }, network);
const shown = (network?: string) =>
  list(network).attachments.map(({ known, stateDir, cached }) => {
    const place = stateDir === undefined ? 'cache' : path.basename(stateDir);
    return `${known.containerId} ${place}${cached ? '' : ' only'}`;
  });

test('what has a record and a cached result is one attachment', () => {
  attach('ours', at('state'), at('cache'));
  writeAttachment(at('cache'), cached('theirs'));
  expect(shown()).toEqual(['theirs cache', 'ours state']);
  fs.rmSync(cacheFileOf(at('cache'), cached('ours')));
  expect(shown()).toEqual(['theirs cache', 'ours state only']);
});

test('a cached result that its record names elsewhere is found, and is not that of the same name here', () => {
  attach('c1', at('delegates'), at('own'));
  writeAttachment(at('cache'), cached('c1'));
  expect(shown()).toEqual(['c1 cache', 'c1 delegates']);
});

test('another attachment of that name, made later, is what is known', () => {
  attach('c1', at('state'), at('cache'));
  const later = { ...cached('c1'), netns: '/later' };
  writeAttachment(at('cache'), later);
  expect(list().attachments.map(({ known }) => known)).toEqual([later]);
});

test('one network, and without what cannot be used', () => {
  attach('c1', at('state'), at('cache'));
  writeAttachment(at('cache'), cached('c1', 'other'));
  expect([shown('testnet'), shown('other')]).toEqual([['c1 state'], ['c1 cache']]);
  attach('c2', at('delegates'), at('own'));
  for (const file of [recordFileOf(at('state'), cached('c1')), cacheFileOf(at('own'), cached('c2'))])
    fs.writeFileSync(file, 'half');
  expect(shown('testnet')).toEqual(['c1 cache', 'c2 delegates only']);
  expect(list().damaged).toHaveLength(2);
});
