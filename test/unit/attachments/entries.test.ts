import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  type Entry,
  listEntries,
  parseEntry,
  readEntry,
  removeEntry,
  renderEntry,
  replaceEntry,
  writeEntry,
} from '../../../src/attachments/entries.ts';
import { cacheFileOf, digestOf } from '../../../src/cni/attachment.ts';

const FULL: Entry = {
  network: 'n1',
  containerId: 'c1',
  ifname: 'eth0',
  netns: '/run/netns/x',
  args: [
    ['A', 'b'],
    ['IgnoreUnknown', '1'],
  ],
  capabilityArgs: { portMappings: [{ hostPort: 80, containerPort: 8080 }], b: { z: 1, a: 2 } },
  source: '{"name":"n1"}\n',
  result: {
    cniVersion: '1.1.0',
    ips: [{ address: '10.0.0.2/24', gateway: '10.0.0.1' }],
    dns: { domain: '<&>' },
  },
};

// What libcni writes: fields in its order, keys of free objects sorted, <, > and & escaped.
const FULL_BYTES =
  '{"kind":"cniCacheV1","containerId":"c1","config":"eyJuYW1lIjoibjEifQo=","ifName":"eth0","networkName":"n1",' +
  '"netns":"/run/netns/x","cniArgs":[["A","b"],["IgnoreUnknown","1"]],' +
  '"capabilityArgs":{"b":{"a":2,"z":1},"portMappings":[{"containerPort":8080,"hostPort":80}]},' +
  '"result":{"cniVersion":"1.1.0","dns":{"domain":"\\u003c\\u0026\\u003e"},"ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}]}}';

describe('renderEntry()', () => {
  test('writes the bytes of libcni', () => {
    expect(renderEntry(FULL)).toBe(FULL_BYTES);
  });

  test('leaves empty fields out', () => {
    const empty = { ...FULL, netns: '', args: [], capabilityArgs: {}, result: undefined };
    expect(renderEntry(empty)).toBe(
      '{"kind":"cniCacheV1","containerId":"c1","config":"eyJuYW1lIjoibjEifQo=","ifName":"eth0","networkName":"n1"}',
    );
  });
});

describe('parseEntry()', () => {
  const ID = { network: 'n1', containerId: 'c1', ifname: 'eth0' };

  test('reads what renderEntry() writes', () => {
    expect(parseEntry(FULL_BYTES, 'f', undefined)).toEqual(FULL);
  });

  test('trusts the fields rather than the file name', () => {
    expect(parseEntry(FULL_BYTES, 'f', { ...ID, containerId: 'other' }).containerId).toBe('c1');
  });

  test('ignores unusable values of optional fields', () => {
    const odd = {
      ...JSON.parse(FULL_BYTES),
      netns: 1,
      cniArgs: [['A'], ['B', 'c']],
      capabilityArgs: [],
      result: 5,
    };
    expect(parseEntry(JSON.stringify(odd), 'f', undefined)).toEqual({
      ...FULL,
      netns: '',
      args: [['B', 'c']],
      capabilityArgs: {},
      result: undefined,
    });
  });

  test('takes the namespace from the result when the file does not have it, as of podman 4.3 and containerd 1.6', () => {
    const interfaces = [
      { name: 'eth0', mac: '0a:00:00:00:00:01' },
      { name: 'net1', sandbox: '/run/netns/other' },
      { name: 'eth0', Sandbox: '/run/netns/own' },
    ];
    const { netns: _, ...silent } = JSON.parse(FULL_BYTES);
    const netnsOf = (record: object) => parseEntry(JSON.stringify(record), 'f', ID).netns;
    expect(netnsOf({ ...silent, result: { interfaces } })).toBe('/run/netns/own');
    expect(netnsOf({ ...silent, netns: '/run/netns/x', result: { interfaces } })).toBe('/run/netns/x');
    expect(netnsOf({ ...silent, result: { interfaces: [{ name: 'net1', sandbox: '/x' }, 7] } })).toBe('');
    expect(netnsOf({ cniVersion: '0.4.0', interfaces })).toBe('/run/netns/own');
  });

  test('reads the bare result of libcni 0.7 when its file name has only one reading', () => {
    const bare = '{"cniVersion":"0.3.1"}';
    expect(parseEntry(bare, 'f', ID)).toMatchObject({
      ...ID,
      source: '',
      result: { cniVersion: '0.3.1' },
    });
    expect(() => parseEntry(bare, 'f', undefined)).toThrow('its name does not identify an attachment');
  });
});

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-cache-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const ID = { network: 'n1', containerId: 'c1', ifname: 'eth0' };
function put(name: string, content: unknown): void {
  fs.mkdirSync(path.join(dir, 'results'), { recursive: true });
  const text = typeof content === 'string' ? content : JSON.stringify(content);
  fs.writeFileSync(path.join(dir, 'results', name), text);
}
const current = (networkName: string, containerId: string, ifName = 'eth0') => ({
  kind: 'cniCacheV1',
  containerId,
  config: 'e30=',
  ifName,
  networkName,
});

describe('writeEntry()', () => {
  test('writes the file where libcni looks, for its owner only, and leaves nothing else', () => {
    const cache = path.join(dir, 'cache');
    writeEntry(cache, FULL);
    writeEntry(cache, FULL);
    const file = path.join(cache, 'results', 'n1-c1-eth0');
    expect(cacheFileOf(cache, ID)).toBe(file);
    expect(fs.readFileSync(file, 'utf8')).toBe(FULL_BYTES);
    expect(fs.readdirSync(path.dirname(file))).toEqual(['n1-c1-eth0']);
    expect(fs.statSync(file).mode & 0o777).toBe(0o600);
    expect(fs.statSync(path.dirname(file)).mode & 0o777).toBe(0o700);
    expect(fs.statSync(cache).mode & 0o777).toBe(0o700);
  });

  test('names the file that it could not write', () => {
    fs.writeFileSync(path.join(dir, 'results'), '');
    expect(() => writeEntry(dir, FULL)).toThrow(`Cannot write cached result "${dir}/results/n1-c1-eth0": E`);
  });
});

describe('readEntry()', () => {
  test('returns what was written', () => {
    put('n1-c1-eth0', FULL_BYTES);
    expect(readEntry(dir, ID)).toEqual(FULL);
  });

  test('reads the layout of libcni 0.7, which is the bare result', () => {
    const result = { cniVersion: '0.3.1', ips: [{ version: '4', address: '10.0.0.2/24' }] };
    put('n1-c1-eth0', result);
    expect(readEntry(dir, ID)).toEqual({
      ...ID,
      netns: '',
      args: [],
      capabilityArgs: {},
      source: '',
      result,
    });
  });

  test('returns nothing where no file exists, or can exist', () => {
    expect(readEntry(dir, ID)).toBeUndefined();
    expect(readEntry(dir, { ...ID, network: 'n'.repeat(250) })).toBeUndefined();
  });

  test('ignores the file of another attachment with the same file name', () => {
    put('a-b-c-eth0', current('a-b', 'c'));
    expect(readEntry(dir, { network: 'a', containerId: 'b-c', ifname: 'eth0' })).toBeUndefined();
    expect(readEntry(dir, { network: 'a-b', containerId: 'c', ifname: 'eth0' })).toBeDefined();
  });

  test('refuses what is neither layout', () => {
    put('n1-c1-eth0', '{"kind":');
    expect(() => readEntry(dir, ID)).toThrow(`Cannot read cached result "${dir}/results/n1-c1-eth0"`);
  });
});

describe('removeEntry()', () => {
  test('succeeds when there is none, or can be none', () => {
    removeEntry(dir, ID);
    removeEntry(dir, { ...ID, network: 'n'.repeat(250) });
    put('n1-c1-eth0', FULL_BYTES);
    removeEntry(dir, ID);
    expect(readEntry(dir, ID)).toBeUndefined();
  });

  test('removes a damaged file, but not the record of another attachment with the same file name', () => {
    put('n1-c1-eth0', '{');
    put('a-b-c-eth0', current('a-b', 'c'));
    removeEntry(dir, ID);
    removeEntry(dir, { network: 'a', containerId: 'b-c', ifname: 'eth0' });
    expect(fs.readdirSync(path.join(dir, 'results'))).toEqual(['a-b-c-eth0']);
  });
});

test.each([
  { network: '', containerId: 'c', ifname: 'eth0' },
  { network: 'n', containerId: '../c', ifname: 'eth0' },
  { network: 'n', containerId: 'c', ifname: '' },
])('cacheFileOf() refuses %j', id => {
  expect(() => cacheFileOf(dir, id)).toThrow(
    `it needs a network ("${id.network}"), a container id ("${id.containerId}") and an interface ("${id.ifname}")`,
  );
});

describe('listEntries()', () => {
  const shown = (filter: { network?: string; containerId?: string } = {}) =>
    listEntries(dir, filter).entries.map(one => [one.network, one.containerId, one.ifname].join(' '));

  test('reads names from the content of the files', () => {
    put('n1-c2-eth0', current('n1', 'c2'));
    put('n1-c1-eth0', current('n1', 'c1'));
    put('n1-x-c1-eth0', current('n1-x', 'c1'));
    put('n2-c1-eth0', current('n2', 'c1'));
    put('n1-legacy-eth1', { cniVersion: '0.3.1' });
    put('.being-written.tmp', '{');
    fs.mkdirSync(path.join(dir, 'results', 'n1-folder-eth0'));
    expect(shown()).toHaveLength(5);
    expect(shown({ network: 'n1' })).toEqual(['n1 c1 eth0', 'n1 c2 eth0', 'n1 legacy eth1']);
    expect(shown({ containerId: 'c1' })).toEqual(['n1 c1 eth0', 'n1-x c1 eth0', 'n2 c1 eth0']);
    expect(shown({ network: 'n2', containerId: 'c1' })).toEqual(['n2 c1 eth0']);
    expect(listEntries(dir).damaged).toEqual([]);
  });

  test.each([
    ['is torn', 'n1-torn-eth0', '{"kind":"cniC', 'it is not a JSON object'],
    [
      'names no attachment',
      'n1-c-eth0',
      { ...current('n1', ''), ifName: '' },
      'it does not name an attachment',
    ],
    [
      'is of another kind',
      'n1-c-eth0',
      { ...current('n1', 'c'), kind: 'cniCacheV9' },
      'its kind is "cniCacheV9"',
    ],
    ['has two readings', 'n1-two-readings-eth1', { cniVersion: '0.3.1' }, 'its name does not identify'],
  ])('reports a file that %s, and continues', (_, name, content, problem) => {
    put(name, content);
    put('n1-good-eth0', current('n1', 'good'));
    const { entries, damaged } = listEntries(dir, { network: 'n1' });
    expect(entries.map(({ containerId }) => containerId)).toEqual(['good']);
    expect(damaged.map(({ code, message }) => [code, message])).toEqual([
      [6, expect.stringContaining(`Cannot read cached result "${dir}/results/${name}": `)],
    ]);
    expect(damaged[0]?.message).toContain(problem);
    expect(listEntries(dir, { network: 'other' }).damaged).toEqual([]);
  });

  test('treats a missing directory as empty, and reports a path that is not a directory', () => {
    expect(listEntries(dir)).toEqual({ entries: [], damaged: [] });
    fs.writeFileSync(path.join(dir, 'results'), '');
    expect(() => listEntries(dir)).toThrow(`Cannot list cached results in "${dir}/results": ENOTDIR`);
  });
});

describe('replaceEntry()', () => {
  const later = { ...FULL, netns: '/run/netns/later' };
  const changed = { ...FULL, capabilityArgs: {} };
  const isFull = (cached: Entry | undefined) => cached?.netns === FULL.netns;
  const names = () => fs.readdirSync(path.join(dir, 'results'));
  const file = () => cacheFileOf(dir, ID);

  test('replaces what the caller has seen, and leaves nothing else', () => {
    writeEntry(dir, FULL);
    replaceEntry(dir, changed, isFull);
    expect([readEntry(dir, ID), names()]).toEqual([changed, ['n1-c1-eth0']]);
  });

  test('puts back what another runtime has written since', () => {
    writeEntry(dir, later);
    replaceEntry(dir, changed, isFull);
    expect([readEntry(dir, ID), names()]).toEqual([later, ['n1-c1-eth0']]);
    put('n1-c1-eth0', '{"kind":');
    replaceEntry(dir, changed, isFull);
    expect([fs.readFileSync(file(), 'utf8'), names()]).toEqual(['{"kind":', ['n1-c1-eth0']]);
  });

  test('leaves what another runtime writes at that very moment', () => {
    writeEntry(dir, FULL);
    replaceEntry(dir, changed, cached => {
      writeEntry(dir, later);
      return isFull(cached);
    });
    expect([readEntry(dir, ID), names()]).toEqual([later, ['n1-c1-eth0']]);
  });

  test('reports what it cannot read, and puts it back', () => {
    writeEntry(dir, FULL);
    fs.rmSync(file());
    const aside = path.join(dir, 'results', `.catena-aside-${digestOf('n1-c1-eth0')}`);
    // A link to itself, once it is aside. As without a free descriptor, nothing is known of what is there.
    fs.symlinkSync(path.basename(aside), file());
    expect(() => replaceEntry(dir, changed, isFull)).toThrow(`Cannot read cached result "${aside}": `);
    expect(names()).toEqual(['n1-c1-eth0']);
  });

  test('puts back what was taken aside, after a failure and after a process that died', () => {
    writeEntry(dir, FULL);
    expect(() =>
      replaceEntry(dir, changed, () => {
        throw new Error('it fails');
      }),
    ).toThrow('it fails');
    expect([readEntry(dir, ID), names()]).toEqual([FULL, ['n1-c1-eth0']]);
    fs.renameSync(file(), path.join(dir, 'results', `.catena-aside-${digestOf('n1-c1-eth0')}`));
    replaceEntry(dir, changed, isFull);
    expect([readEntry(dir, ID), names()]).toEqual([changed, ['n1-c1-eth0']]);
    fs.renameSync(file(), path.join(dir, 'results', '.catena-aside-of-another'));
    removeEntry(dir, ID);
    expect(names()).toEqual(['.catena-aside-of-another']);
  });
});
