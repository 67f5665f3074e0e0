// Which attributes does a VLAN device have?
import { attrs, listOf } from '../../codec/attrs.ts';
import { u16, u16be, u32 } from '../../codec/fields.ts';
import { struct } from '../../codec/struct.ts';

/** linux/if_link.h: struct ifla_vlan_qos_mapping { __u32 from; __u32 to; } */
const qosMapping = struct('vlan qos mapping', [
  ['from', u32],
  ['to', u32],
]);

/** linux/if_link.h: struct ifla_vlan_flags { __u32 flags; __u32 mask; } */
const vlanFlags = struct('vlan flags', [
  ['flags', u32],
  ['mask', u32],
]);

/** linux/if_link.h, IFLA_VLAN_QOS_MAPPING */
const IFLA_VLAN_QOS_MAPPING = 1;

/** `IFLA_INFO_DATA` of kind `vlan`; linux/if_link.h, IFLA_VLAN_*. */
export const vlan = attrs('vlan', {
  id: [1, u16],
  flags: [2, vlanFlags],
  egressQos: [3, listOf(qosMapping, { type: IFLA_VLAN_QOS_MAPPING })],
  ingressQos: [4, listOf(qosMapping, { type: IFLA_VLAN_QOS_MAPPING })],
  protocol: [5, u16be],
});

/** linux/if_ether.h, ETH_P_8021Q and ETH_P_8021AD: the tag's EtherType. */
export const VLAN_PROTOCOLS = { '802.1q': 0x8100, '802.1ad': 0x88a8 } as const;

/** A key of {@link VLAN_PROTOCOLS}. */
export type VlanProtocol = keyof typeof VLAN_PROTOCOLS;
