import { describe, expect, test } from 'bun:test';
import { VlanConf, validateVlanConf } from '../../../../plugins/vlan/config.ts';
import { decode } from '../../../../src/cni/json.ts';

const conf = (more: object) => decode(VlanConf, { type: 'vlan', master: 'eth0', ...more }, 'conf');

describe('validateVlanConf()', () => {
  test.each([
    {},
    { vlanId: 4094 },
    { vlanId: [100, 7], protocol: '802.1ad' },
    { egressQosMap: [{ from: 0, to: 7 }], ingressQosMap: [{ from: 7, to: 100 }] },
  ])('accepts %j', more => {
    expect(() => validateVlanConf(conf(more))).not.toThrow();
  });

  test.each([
    { master: '' },
    { vlanId: 4095 },
    { vlanId: -1 },
    { vlanId: [] },
    { vlanId: [1, 2, 3] },
    { vlanId: [1, 4095] },
    { protocol: '802.1AD' },
    { mtu: -1 },
    { mtu: 67 },
    { egressQosMap: [{ from: 0, to: 8 }] },
    { ingressQosMap: [{ from: 8, to: 0 }] },
  ])('refuses %j with code 7', more => {
    expect(() => validateVlanConf(conf(more))).toThrow(expect.objectContaining({ code: 7 }));
  });
});
