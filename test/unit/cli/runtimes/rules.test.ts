// The rows of the table of real runtimes: order, which file wins, broken files, names that are there twice.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { dockershimIn, refusalOf, versionIn } from '../../../../src/cli/runtimes/libcni.ts';
import {
  type Candidate,
  choose,
  type RuntimeName,
  readCandidates,
  type Settings,
} from '../../../../src/cli/runtimes/rules.ts';
import { FIXTURE_PLUGINS } from '../../../helpers/noop-chain.ts';

function file(name: string, more: Partial<Candidate> & { network?: string } = {}): Candidate {
  const { network = name.replace(/\..*/, ''), ...rest } = more;
  const extension = (['.conflist', '.conf', '.json'] as const).find(end => name.endsWith(end));
  const list = { name: network, version: '1.0.0' as const, plugins: [], source: '{"cniVersion":"1.0.0"}' };
  return {
    name,
    path: `/d/${name}`,
    ...(extension ? { extension } : {}),
    ...(rest.broken || rest.ignored ? {} : { list }),
    ...rest,
  };
}

const [A, B, C] = [file('10-a.conflist'), file('20-b.conf'), file('30-c.conflist')];
const BAK = file('05-a.bak', { ignored: 'its name' });
const BROKEN = file('15-x.conflist', { broken: 'not JSON' });
const ABSENT = file('15-x.conflist', { unusable: 'Cannot find plugin "x"' });

function taken(runtime: RuntimeName, files: readonly Candidate[], settings?: Settings) {
  const { files: names, problem } = choose(runtime, files, settings);
  return problem === undefined ? names : [names, problem];
}

describe('choose() for containerd', () => {
  test('takes the first file by name, whatever its extension', () => {
    expect(taken('containerd', [BAK, A, B, C])).toEqual(['10-a.conflist']);
    expect(taken('containerd', [B, C])).toEqual(['20-b.conf']);
  });

  test('takes as many as max_conf_num says, and all with 0, even the same network twice', () => {
    const twin = file('40-d.conflist', { network: 'c' });
    expect(taken('containerd', [A, B, C], { maxConfNum: 2 })).toEqual(['10-a.conflist', '20-b.conf']);
    expect(taken('containerd', [A, C, twin], { maxConfNum: 0 })).toHaveLength(3);
  });

  test('loads nothing when a file that it reads is broken, and ignores files that it does not read', () => {
    const problem = '"15-x.conflist" cannot be loaded: not JSON';
    expect(taken('containerd', [BROKEN, C])).toEqual([[], problem]);
    expect(taken('containerd', [A, BROKEN, C], { maxConfNum: 3 })).toEqual([[], problem]);
    expect(taken('containerd', [A, BROKEN])).toEqual(['10-a.conflist']);
  });

  test('does not look for executables', () => {
    const problem = '"15-x.conflist" is used, but pods will fail: Cannot find plugin "x"';
    expect(taken('containerd', [ABSENT, C])).toEqual([['15-x.conflist'], problem]);
  });

  test('takes nothing from an empty directory', () => {
    expect(taken('containerd', [BAK])).toEqual([[], 'there is no configuration']);
  });
});

describe('choose() for CRI-O', () => {
  test('takes the first usable file, and skips broken ones and those with missing plugins', () => {
    expect(taken('CRI-O', [BAK, BROKEN, C])).toEqual(['30-c.conflist']);
    expect(taken('CRI-O', [ABSENT, C])).toEqual(['30-c.conflist']);
    expect(taken('CRI-O', [ABSENT])).toEqual([[], 'no configuration can be loaded and has all its plugins']);
  });

  test('takes only the configured network', () => {
    expect(taken('CRI-O', [A, B, C], { defaultNetwork: '30-c' })).toEqual(['30-c.conflist']);
    const missing = 'no usable file has network "z" (cni_default_network)';
    expect(taken('CRI-O', [A], { defaultNetwork: 'z' })).toEqual([[], missing]);
  });

  test('keeps the first of a name', () => {
    const second = file('20-z.conflist', { network: '10-a' });
    const { verdicts } = choose('CRI-O', [A, second]);
    expect(verdicts[1]).toEqual({
      file: '20-z.conflist',
      used: false,
      why: 'network "10-a" is already defined in "10-a.conflist"',
    });
  });
});

describe('choose() for podman', () => {
  test('takes lists only, all of them, each by its name', () => {
    expect(taken('podman', [A, B, BROKEN, C])).toEqual(['10-a.conflist', '30-c.conflist']);
    expect(taken('podman', [B])).toEqual([[], 'there is no usable list']);
  });
});

test.each(['containerd', 'CRI-O', 'podman'] as const)(
  '%s has a verdict with a reason for every file',
  runtime => {
    const { verdicts } = choose(runtime, [BAK, A, BROKEN, B, C]);
    expect(verdicts.map(({ file: name }) => name)).toEqual([BAK, A, BROKEN, B, C].map(({ name }) => name));
    expect(verdicts.filter(({ why }) => why === '')).toEqual([]);
  },
);

describe('an installed runtime', () => {
  const said = 'podman version 4.3.1\n';
  const podman = versionIn('podman', 'podman', said, [5, 2]);
  const containerd = versionIn(
    'containerd',
    'containerd',
    'containerd github.com/containerd/containerd v2.0.1 x',
    [2, 0],
  );
  const list = (source: object) =>
    file('50-new.conflist', {
      list: { name: 'new', version: '1.1.0', plugins: [], source: JSON.stringify(source) },
    });

  test('tells its version, and so that of its libcni', () => {
    expect(podman).toEqual({ runtime: 'podman', program: 'podman 4.3.1', newest: '1.0.0' });
    expect(containerd).toMatchObject({ program: 'containerd 2.0.1', newest: '1.1.0' });
    expect(versionIn('podman', 'podman', 'nothing', [5, 2])).toBeUndefined();
  });

  test('refuses a list that says only a newer version, and uses one that says an older one, too', () => {
    if (podman === undefined) throw new Error('it has a version');
    const both = list({ cniVersion: '1.0.0', cniVersions: ['1.0.0', '1.1.0'] });
    expect(choose('podman', [both], { installed: podman }).problem).toBeUndefined();
    const { problem, verdicts } = choose('podman', [list({ cniVersion: '1.1.0' })], { installed: podman });
    expect(problem).toContain(
      'podman 4.3.1 refuses results of 1.1.0, since its libcni knows CNI up to 1.0.0',
    );
    expect(verdicts[0]?.why).toBe(
      `by name: --network new, but every container fails: ${problem?.split('fails: ')[1]}`,
    );
    expect(problem).toContain('write "cniVersion": "1.0.0" and "cniVersions": ["1.0.0", "1.1.0"]');
  });
});

test('a kubelet with dockershim refuses what is newer than 0.4.0', () => {
  const sockets = [
    'Num       RefCount Protocol Flags    Type St Inode Path',
    '0000000000000000: 00000002 00000000 00010000 0001 01 2061 /var/run/dockershim.sock',
    '0000000000000000: 00000003 00000000 00000000 0001 03 2062',
  ].join('\n');
  const [shim] = dockershimIn(sockets);
  if (shim === undefined) throw new Error('there is one');
  expect(refusalOf({ cniVersion: '1.0.0' }, shim)).toStartWith(
    'the dockershim of kubelet refuses results of 1.0.0, since its libcni knows CNI up to 0.4.0: write',
  );
  expect(refusalOf({ cniVersion: '0.4.0' }, shim)).toBeUndefined();
  expect(dockershimIn(sockets.replace('dockershim', 'cri-dockerd'))).toEqual([]);
  expect(dockershimIn(undefined)).toEqual([]);
});

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
  fs.symlinkSync('83-itself.conflist', join(dir, '83-itself.conflist'));
  fs.symlinkSync('09-broken.conflist/below', join(dir, '84-below.conflist'));
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
    ['83-itself.conflist', 'it is a dangling symbolic link', false],
    ['84-below.conflist', 'it is a dangling symbolic link', false],
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
