import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readCandidates } from '../../../../src/cli/runtimes/candidate.ts';
import { FIXTURE_PLUGINS } from '../../../helpers/noop-chain.ts';

const dir = fs.mkdtempSync(join(tmpdir(), 'cat-candidates-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

const LIST = { cniVersion: '1.0.0', name: 'net', plugins: [{ type: 'noop' }] };
const SINGLE = { cniVersion: '1.0.0', name: 'one', type: 'noop' };

beforeAll(() => {
  const files: Record<string, unknown> = {
    '10-list.conflist': LIST,
    '20-list.conf': LIST,
    '30-single.conf': SINGLE,
    '31-single.conflist': SINGLE,
    '32-single.json': SINGLE,
    '40-nameless.conf': { cniVersion: '1.0.0', type: 'noop' },
    '50-future.conflist': { ...LIST, cniVersion: '9.0.0' },
    '60-absent.conflist': { ...LIST, plugins: [{ type: 'absent' }] },
    '70-typeless.json': { name: 'x' },
  };
  for (const [name, content] of Object.entries(files))
    fs.writeFileSync(join(dir, name), JSON.stringify(content));
  fs.writeFileSync(join(dir, '09-broken.conflist'), '{');
  fs.writeFileSync(join(dir, 'notes.txt'), '');
  fs.mkdirSync(join(dir, '80-directory.conflist'));
  fs.symlinkSync('/nonexistent', join(dir, '81-dangling.conflist'));
  fs.symlinkSync('/', join(dir, '82-leads.conflist'));
});

test('readCandidates() describes each entry, sorted by name', async () => {
  const found = await readCandidates(dir, { pluginDirs: [FIXTURE_PLUGINS] });
  const told = found.map(({ name, list, ignored, broken, unusable, nameless }) => [
    name,
    ignored ?? broken ?? unusable ?? list?.name,
    nameless ?? false,
  ]);
  expect(told).toEqual([
    ['09-broken.conflist', expect.stringContaining('line 1, column 2'), false],
    ['10-list.conflist', 'net', false],
    ['20-list.conf', 'it is a list, which belongs in a .conflist file', false],
    ['30-single.conf', 'one', false],
    ['31-single.conflist', 'it is a single plugin configuration, not a list', false],
    ['32-single.json', 'one', false],
    ['40-nameless.conf', '40-nameless.conf', true],
    ['50-future.conflist', expect.stringContaining('9.0.0'), false],
    ['60-absent.conflist', expect.stringContaining('Cannot find plugin "absent"'), false],
    ['70-typeless.json', 'it has no "type"', false],
    ['80-directory.conflist', 'it is a directory', false],
    ['81-dangling.conflist', 'it is a dangling symbolic link', false],
    ['82-leads.conflist', 'it is a symbolic link to a directory', false],
    ['notes.txt', 'its name does not end in .conflist, .conf or .json', false],
  ]);
});

test('readCandidates() examines only files when there is no plugin directory', async () => {
  const found = await readCandidates(dir);
  expect(found.find(({ name }) => name.startsWith('60'))).not.toHaveProperty('unusable');
});

test('readCandidates() returns nothing for a missing directory', async () => {
  expect(await readCandidates('/nonexistent')).toEqual([]);
});
