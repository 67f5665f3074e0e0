// Are results seen through that do not have the form of their version?
import { describe, expect, test } from 'bun:test';
import type { JsonObject } from '../../../../src/cni/json.ts';
import type { SpecVersion } from '../../../../src/cni/result.ts';
import { findLayoutProblems } from '../../../../src/lab/conformance/attachments.ts';

const NEW = {
  cniVersion: '1.1.0',
  interfaces: [{ name: 'eth0', mac: '02:00:00:00:00:01', sandbox: '/n' }],
  ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 0 }],
  routes: [{ dst: '0.0.0.0/0' }],
};
const MIDDLE = { ...NEW, cniVersion: '0.4.0', ips: [{ version: '4', address: '10.1.0.2/24', interface: 0 }] };
const OLD = { cniVersion: '0.2.0', ip4: { ip: '10.1.0.2/24' } };

describe('findLayoutProblems()', () => {
  test.each([
    ['1.1.0', NEW],
    ['0.4.0', MIDDLE],
    ['0.2.0', OLD],
  ] as [SpecVersion, JsonObject][])('finds none in a result of %s', (version, result) => {
    expect(findLayoutProblems(result, version)).toEqual([]);
  });

  test.each([
    ['an address without prefix', '1.1.0', { ...NEW, ips: [{ address: '10.1.0.2' }] }, 'ips[0].address'],
    [
      'an index out of range',
      '1.1.0',
      { ...NEW, ips: [{ address: '10.1.0.2/24', interface: 1 }] },
      'is 1, of 1',
    ],
    [
      'a negative index',
      '1.1.0',
      { ...NEW, ips: [{ address: '10.1.0.2/24', interface: -1 }] },
      'is -1, of 1',
    ],
    ['no family', '0.4.0', { ...MIDDLE, ips: [{ address: '10.1.0.2/24' }] }, 'ips[0].version is undefined'],
    [
      'another family',
      '0.4.0',
      { ...MIDDLE, ips: [{ address: '10.1.0.2/24', version: '6' }] },
      'version is "6"',
    ],
    ['an old form', '1.1.0', { ...NEW, ip4: {} }, '"ip4" does not exist in version 1.1.0'],
    ['a new form', '0.2.0', { ...OLD, interfaces: [] }, '"interfaces" does not exist in version 0.2.0'],
    ['no address', '0.2.0', { cniVersion: '0.2.0' }, 'neither "ip4" nor "ip6"'],
    ['a long name', '1.1.0', { interfaces: [{ name: 'sixteen-bytes-xx' }] }, 'interfaces[0].name'],
    ['no mac', '1.1.0', { interfaces: [{ name: 'a', mac: 'zz' }] }, 'interfaces[0].mac'],
  ] as [string, SpecVersion, JsonObject, string][])('finds %s', (_what, version, result, words) => {
    expect(findLayoutProblems(result, version).join('; ')).toContain(words);
  });
});
