import { describe, expect, test } from 'bun:test';
import { IpvlanConf, validateIpvlanConf } from '../../../../plugins/ipvlan/config.ts';
import { decode } from '../../../../src/cni/json.ts';

const conf = (more: object) => decode(IpvlanConf, { type: 'ipvlan', ...more }, 'conf');

describe('validateIpvlanConf()', () => {
  test.each([{}, { mode: '' }, { mode: 'l3s', flags: 'private' }])('accepts %j', more => {
    expect(() => validateIpvlanConf(conf(more))).not.toThrow();
  });

  test.each([
    { mode: 'L2' },
    { flags: '' },
    { mtu: -1 },
    { mtu: 67 },
    { master: 'a/b' },
    { mac: 'c2:11:22:33:44:55' },
    { runtimeConfig: { mac: 'c2:11:22:33:44:55' } },
  ])('refuses %j with code 7', more => {
    expect(() => validateIpvlanConf(conf(more))).toThrow(expect.objectContaining({ code: 7 }));
  });
});
