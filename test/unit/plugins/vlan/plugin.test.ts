import { expect, test } from 'bun:test';
import { VlanConf } from '../../../../plugins/vlan/config.ts';
import { planTags } from '../../../../plugins/vlan/plugin.ts';
import { decode } from '../../../../src/cni/json.ts';
import { findIfnameProblem } from '../../../../src/net/interface.ts';

const conf = (more: object) => decode(VlanConf, { type: 'vlan', master: 'eth0', ...more }, 'conf');

test('one VLAN is the interface', () => {
  expect(planTags(conf({ vlanId: 100 }), 'net1')).toEqual([
    { name: 'net1', data: { id: 100, protocol: 0x8100 } },
  ]);
});

test("of two VLANs the inner one is the interface, with the priorities; the protocol is the outer one's", () => {
  const map = [{ from: 0, to: 5 }];
  const tags = planTags(conf({ vlanId: [100, 7], protocol: '802.1ad', egressQosMap: map }), 'net1');
  expect(tags).toEqual([
    { name: 'net1-100', data: { id: 100, protocol: 0x88a8 } },
    { name: 'net1', data: { id: 7, protocol: 0x8100, egressQos: map } },
  ]);
});

test("the outer device's name fits, whatever the interface is called, and is another one for another interface", () => {
  const outerOf = (ifname: string) => planTags(conf({ vlanId: [4094, 1] }), ifname)[0]?.name ?? '';
  const names = ['fifteen-letters', 'fifteen-lettern', 'ääääääo'].map(outerOf);
  for (const name of names) expect(findIfnameProblem(name)).toBeUndefined();
  expect(new Set(names).size).toBe(3);
  expect(outerOf('net1')).toBe('net1-4094');
});
