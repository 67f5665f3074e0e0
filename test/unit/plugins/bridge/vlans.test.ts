// Which VLANs follow from vlan, vlanTrunk and preserveDefaultVlan?
import { describe, expect, test } from 'bun:test';
import { BridgeConf } from '../../../../plugins/bridge/config.ts';
import { planVlans, renderVlans, wantsFiltering } from '../../../../plugins/bridge/vlans.ts';
import { decode } from '../../../../src/cni/json.ts';

function confOf(conf: object): BridgeConf {
  return decode(BridgeConf, { name: 'n', type: 'bridge', ...conf }, 'test');
}

function plan(conf: object) {
  const planned = planVlans(confOf(conf));
  return planned && [planned.leavesDefault, ...renderVlans(planned.vlans)];
}

describe('planVlans()', () => {
  test('without VLANs the port is left alone', () => {
    expect(plan({})).toBeUndefined();
    expect(plan({ vlanTrunk: [] })).toBeUndefined();
  });

  test('"vlan" is the VLAN of untagged frames, and the only one', () => {
    expect(plan({ vlan: 100 })).toEqual([true, '100 pvid untagged']);
  });

  test('"preserveDefaultVlan" leaves the port where the bridge put it', () => {
    expect(plan({ vlan: 100, preserveDefaultVlan: true })).toEqual([false, '100 pvid untagged']);
  });

  test('a trunk is tagged, next to the default VLAN', () => {
    expect(plan({ vlanTrunk: [{ id: 101 }, { minID: 200, maxID: 210 }] })).toEqual([
      true,
      '1 pvid untagged',
      '101',
      '200-210',
    ]);
  });

  test('entries may overlap, repeat, adjoin, be in any order and have both forms', () => {
    const vlanTrunk = [{ minID: 20, maxID: 30 }, { id: 10 }, { id: 31, minID: 25, maxID: 27 }, { id: 10 }];
    expect(plan({ vlan: 5, vlanTrunk })).toEqual([true, '5 pvid untagged', '10', '20-31']);
  });

  test('a trunk that names the native VLAN does not tag it', () => {
    expect(plan({ vlan: 100, vlanTrunk: [{ minID: 99, maxID: 101 }] })).toEqual([
      true,
      '99',
      '100 pvid untagged',
      '101',
    ]);
    expect(plan({ vlanTrunk: [{ id: 1 }, { id: 2 }] })).toEqual([true, '1 pvid untagged', '2']);
  });

  test('all VLANs are two entries', () => {
    expect(plan({ vlan: 1, vlanTrunk: [{ minID: 1, maxID: 4094 }] })).toEqual([
      true,
      '1 pvid untagged',
      '2-4094',
    ]);
  });
});

test('wantsFiltering() is true for any VLAN key, even an empty trunk', () => {
  expect(
    [{}, { vlan: 7 }, { vlanTrunk: [{ id: 7 }] }, { vlanTrunk: [] }].map(c => wantsFiltering(confOf(c))),
  ).toEqual([false, true, true, true]);
});
