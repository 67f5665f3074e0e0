import { describe, expect, test } from 'bun:test';
import { type CachedAttachment, parseRecord, renderAttachment } from '../../../src/attachments/entry.ts';

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

describe('parseRecord()', () => {
  const ID = { network: 'n1', containerId: 'c1', ifname: 'eth0' };

  test('reads what renderAttachment() writes', () => {
    expect(parseRecord(FULL_BYTES, 'f', undefined)).toEqual(FULL);
  });

  test('trusts the fields rather than the file name', () => {
    expect(parseRecord(FULL_BYTES, 'f', { ...ID, containerId: 'other' }).containerId).toBe('c1');
  });

  test('ignores unusable values of optional fields', () => {
    const odd = {
      ...JSON.parse(FULL_BYTES),
      netns: 1,
      cniArgs: [['A'], ['B', 'c']],
      capabilityArgs: [],
      result: 5,
    };
    expect(parseRecord(JSON.stringify(odd), 'f', undefined)).toEqual({
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
    const netnsOf = (record: object) => parseRecord(JSON.stringify(record), 'f', ID).netns;
    expect(netnsOf({ ...silent, result: { interfaces } })).toBe('/run/netns/own');
    expect(netnsOf({ ...silent, netns: '/run/netns/x', result: { interfaces } })).toBe('/run/netns/x');
    expect(netnsOf({ ...silent, result: { interfaces: [{ name: 'net1', sandbox: '/x' }, 7] } })).toBe('');
    expect(netnsOf({ cniVersion: '0.4.0', interfaces })).toBe('/run/netns/own');
  });

  test('reads the bare result of libcni 0.7 when its file name has only one reading', () => {
    const bare = '{"cniVersion":"0.3.1"}';
    expect(parseRecord(bare, 'f', ID)).toMatchObject({
      ...ID,
      source: undefined,
      result: { cniVersion: '0.3.1' },
    });
    expect(() => parseRecord(bare, 'f', undefined)).toThrow('its name does not identify an attachment');
  });
});
