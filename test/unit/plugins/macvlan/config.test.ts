import { describe, expect, test } from 'bun:test';
import { MacvlanConf, modeOf, validateMacvlanConf } from '../../../../plugins/macvlan/config.ts';
import { decode } from '../../../../src/cni/json.ts';

const conf = (more: object) => decode(MacvlanConf, { type: 'macvlan', ...more }, 'conf');

describe('validateMacvlanConf()', () => {
  test.each([
    {},
    { mode: '' },
    { mode: 'passthru', mtu: 9000, bcqueuelen: 5000 },
    { master: 'eth0' },
    { hostAccess: true, ipam: { type: 'static' } },
  ])('accepts %j', more => {
    expect(() => validateMacvlanConf(conf(more))).not.toThrow();
  });

  test.each([
    { mode: 'Bridge' },
    { mtu: -1 },
    { mtu: 67 },
    { mtu: 65536 },
    { bcqueuelen: -1 },
    { master: 'a/b' },
    { hostAccess: true },
    { hostAccess: true, ipam: { type: 'static' }, mode: 'private' },
    { hostAccess: true, ipam: { type: 'static' }, linkInContainer: true },
  ])('refuses %j with code 7', more => {
    expect(() => validateMacvlanConf(conf(more))).toThrow(expect.objectContaining({ code: 7 }));
  });
});

test('an empty mode is the default', () => {
  expect(modeOf(conf({ mode: '' }))).toBe('bridge');
  expect(modeOf(conf({ mode: 'vepa' }))).toBe('vepa');
});
