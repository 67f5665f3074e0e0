// Which names are common to both twins?
import { describe, expect, test } from 'bun:test';
import { normalise, withCommonNames } from '../../../src/compare/normalise.ts';
import type { SceneRecord } from '../../../src/compare/scene.ts';

const none = () => undefined;
const MAC = '0a:11:22:33:44:55';

describe('normalise()', () => {
  test('numbers random interface names in order of appearance', () => {
    expect(normalise(['vethdeadbeef', 'veth00000001', 'on vethdeadbeef'], '', new Map(), none)).toEqual([
      'veth#1',
      'veth#2',
      'on veth#1',
    ]);
  });

  test('names hardware addresses after their owner, in results and in observations', () => {
    const result = {
      interfaces: [{ name: 'eth0', mac: MAC, sandbox: '/n' }],
      seen: `${MAC} and 0a1122334455`,
    };
    expect(normalise(result, '', new Map(), none)).toEqual({
      interfaces: [{ name: 'eth0', mac: 'mac of /n/eth0', sandbox: '/n' }],
      seen: 'mac of /n/eth0 and (mac of /n/eth0)',
    });
    const observed = { host: { br0: { address: MAC } } };
    const holder = (value: Record<string, unknown>, path: readonly string[]) =>
      typeof value.address === 'string' ? ([value.address, path.join('/')] as const) : undefined;
    expect(normalise(observed, '', new Map(), holder)).toEqual({
      host: { br0: { address: 'mac of host/br0' } },
    });
  });

  test('names link-local addresses after the hardware address they derive from', () => {
    const interfaces = [{ name: 'eth0', mac: MAC }];
    expect(normalise({ interfaces, ip: 'fe80::811:22ff:fe33:4455' }, '', new Map(), none).ip).toBe(
      'fe80::(mac of host/eth0)',
    );
  });

  test('names link-local addresses written without a leading zero word', () => {
    const interfaces = [{ name: 'eth0', mac: '02:00:1b:86:c1:77' }];
    expect(normalise({ interfaces, ip: 'fe80::1bff:fe86:c177' }, '', new Map(), none).ip).toBe(
      'fe80::(mac of host/eth0)',
    );
  });

  test('keeps addresses that the configuration names', () => {
    expect(normalise([MAC], `{"mac":"${MAC.toUpperCase()}"}`, new Map(), none)).toEqual([MAC]);
  });

  test('replaces names that only one twin uses', () => {
    expect<object>(normalise({ '/tmp/a1/x': 1 }, '', new Map([['/tmp/a1', '{tmp}']]), none)).toEqual({
      '{tmp}/x': 1,
    });
  });
});

test('withCommonNames() hides what only one twin has: namespaces, times, names', () => {
  const began = Date.now();
  const files = (ms: number, inode: string) => ({
    [`/run/lock-${inode}`]: `${ms} ${new Date(ms).toISOString()} ${Math.floor(ms / 1000)} 4000000000`,
  });
  const twin = (inode: string, ms: number, mac: string): SceneRecord => ({
    namespaces: { host: inode },
    began,
    ended: began,
    before: { places: { host: { link: { br0: { kind: 'bridge', mac } } } }, files: files(ms, inode) },
    moments: [],
  });
  const one = withCommonNames(twin('4026531840', began, '0a:00:00:00:00:01'), '[]');
  const other = withCommonNames(twin('4026532999', began + 900, '0a:00:00:00:00:02'), '[]');
  expect(one).toEqual(other);
  expect(one.before.files).toEqual({ '/run/lock-{host}': '{time} {time} {time} 4000000000' });
});
