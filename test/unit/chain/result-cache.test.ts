import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  type CachedAttachment,
  cacheFileOf,
  listAttachments,
  readAttachment,
  removeAttachment,
  renderAttachment,
  writeAttachment,
} from '../../../src/chain/result-cache.ts';

const FULL: CachedAttachment = {
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

describe('renderAttachment()', () => {
  test('writes the bytes of libcni', () => {
    expect(renderAttachment(FULL)).toBe(FULL_BYTES);
  });

  test('leaves empty fields out', () => {
    const empty = { ...FULL, netns: '', args: [], capabilityArgs: {}, result: undefined };
    expect(renderAttachment(empty)).toBe(
      '{"kind":"cniCacheV1","containerId":"c1","config":"eyJuYW1lIjoibjEifQo=","ifName":"eth0","networkName":"n1"}',
    );
  });
});

describe('writeAttachment()', () => {
  test('puts the file where libcni looks, for root only, and leaves nothing else', () => {
    const cache = path.join(dir, 'cache');
    writeAttachment(cache, FULL);
    writeAttachment(cache, FULL);
    const file = path.join(cache, 'results', 'n1-c1-eth0');
    expect(cacheFileOf(cache, ID)).toBe(file);
    expect(fs.readFileSync(file, 'utf8')).toBe(FULL_BYTES);
    expect(fs.readdirSync(path.dirname(file))).toEqual(['n1-c1-eth0']);
    expect(fs.statSync(file).mode & 0o777).toBe(0o600);
    expect(fs.statSync(path.dirname(file)).mode & 0o777).toBe(0o700);
    expect(fs.statSync(cache).mode & 0o777).toBe(0o700);
  });

  test('says which file it could not write', () => {
    fs.writeFileSync(path.join(dir, 'results'), '');
    expect(() => writeAttachment(dir, FULL)).toThrow(
      `Cannot write cached result "${dir}/results/n1-c1-eth0": E`,
    );
  });
});

describe('readAttachment()', () => {
  test('reads what was written', () => {
    put('n1-c1-eth0', FULL_BYTES);
    expect(readAttachment(dir, ID)).toEqual(FULL);
  });

  test('reads the layout of libcni 0.7, which is the bare result', () => {
    const result = { cniVersion: '0.3.1', ips: [{ version: '4', address: '10.0.0.2/24' }] };
    put('n1-c1-eth0', result);
    expect(readAttachment(dir, ID)).toEqual({
      ...ID,
      netns: '',
      args: [],
      capabilityArgs: {},
      source: undefined,
      result,
    });
  });

  test('finds nothing where there is nothing', () => {
    expect(readAttachment(dir, ID)).toBeUndefined();
  });

  test('does not take the file of another attachment whose name reads the same', () => {
    put('a-b-c-eth0', current('a-b', 'c'));
    expect(readAttachment(dir, { network: 'a', containerId: 'b-c', ifname: 'eth0' })).toBeUndefined();
    expect(readAttachment(dir, { network: 'a-b', containerId: 'c', ifname: 'eth0' })).toBeDefined();
  });

  test('refuses what is neither layout', () => {
    put('n1-c1-eth0', '{"kind":');
    expect(() => readAttachment(dir, ID)).toThrow(`Cannot read cached result "${dir}/results/n1-c1-eth0"`);
  });
});

test('removeAttachment() is content when there is none', () => {
  removeAttachment(dir, ID);
  put('n1-c1-eth0', FULL_BYTES);
  removeAttachment(dir, ID);
  expect(readAttachment(dir, ID)).toBeUndefined();
});

describe('listAttachments()', () => {
  test('lists those of the network by what the files say, and passes over what is no attachment', () => {
    put('n1-c2-eth0', current('n1', 'c2'));
    put('n1-c1-eth0', current('n1', 'c1'));
    put('n1-x-c1-eth0', current('n1-x', 'c1'));
    put('n2-c1-eth0', current('n2', 'c1'));
    put('n1-legacy-eth1', { cniVersion: '0.3.1' });
    put('n1-two-readings-eth1', { cniVersion: '0.3.1' });
    put('n1-torn-eth0', '{"kind":"cniC');
    put('n1-empty-eth0', { ...current('n1', ''), ifName: '' });
    fs.mkdirSync(path.join(dir, 'results', 'n1-folder-eth0'));
    expect(listAttachments(dir, 'n1').map(({ containerId, ifname }) => [containerId, ifname])).toEqual([
      ['c1', 'eth0'],
      ['c2', 'eth0'],
      ['legacy', 'eth1'],
    ]);
  });

  test('takes a missing directory for an empty one, and reports one that is none', () => {
    expect(listAttachments(dir, 'n1')).toEqual([]);
    fs.writeFileSync(path.join(dir, 'results'), '');
    expect(() => listAttachments(dir, 'n1')).toThrow(
      `Cannot list cached results in "${dir}/results": ENOTDIR`,
    );
  });
});
