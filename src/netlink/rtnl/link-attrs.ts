// Which attributes does a link have?
import type { Ip } from '../../net/ip.ts';
import { attrs, byKind, type Field, ip, listOf, mac, s32, str, u8, u16, u16be, u32 } from '../codec/attrs.ts';
import { layout, struct } from '../codec/message.ts';
import { traced } from '../trace.ts';

/** The ends of a tunnel that was made without learning. */
export interface Vxlan {
  /** VXLAN network identifier: 24 bits. */
  readonly id: number;
  /** This end's address, from which the packets are sent. */
  readonly local: Ip;
  /** UDP port of every end. */
  readonly port: number;
}

/** What the kernel is told of a new tunnel. Same as: `type vxlan id <id> local <address> dstport <port> nolearning` */
export function vxlanData({ id, local, port }: Vxlan) {
  return { id, ...(local.family === 4 ? { local } : { local6: local }), learning: 0, port };
}

/** The ends of a link of kind `vxlan`; undefined for one of another kind, or without an address of its own. */
export function vxlanOf({
  kind,
  attrs,
}: {
  readonly kind: string;
  readonly attrs: ReturnType<typeof linkAttrs.decode>;
}): (Vxlan & { readonly learning: boolean }) | undefined {
  const data = attrs.linkinfo?.data;
  if (kind !== 'vxlan' || data === undefined || !('port' in data)) return undefined;
  const { id = 0, local = data.local6, port = 0, learning = 0 } = data;
  return local && { id, local, port, learning: learning !== 0 };
}

/**
 * linux/rtnetlink.h: struct ifinfomsg { unsigned char ifi_family; unsigned char __ifi_pad; unsigned short ifi_type;
 * int ifi_index; unsigned ifi_flags; unsigned ifi_change; }
 */
export const ifinfomsg = struct('ifinfomsg', [
  ['family', u8],
  ['_pad', u8],
  ['type', u16],
  ['index', s32],
  ['flags', u32],
  ['change', u32],
]);

/** linux/if.h */
export const IFF_UP = 0x1;
export const IFF_LOOPBACK = 0x8;
/** Neither ARP nor neighbour discovery: a dummy, or an ipvlan of mode l3. */
export const IFF_NOARP = 0x80;
export const IFF_PROMISC = 0x100;
export const IFF_ALLMULTI = 0x200;
export const IFF_MULTICAST = 0x1000;
/** Carrier: of a bridge, that a port of it is up and has one. */
export const IFF_LOWER_UP = 0x10000;

/** linux/if.h, RFC 2863 operational states as `IFLA_OPERSTATE` has them. */
export const OPERSTATES = [
  'unknown',
  'notpresent',
  'down',
  'lowerlayerdown',
  'testing',
  'dormant',
  'up',
] as const;

/** `IFLA_INFO_DATA` of kind `bridge`; linux/if_link.h, IFLA_BR_*. */
const bridge = attrs('bridge', {
  forwardDelay: [1, u32],
  helloTime: [2, u32],
  maxAge: [3, u32],
  ageingTime: [4, u32],
  stpState: [5, u32],
  priority: [6, u16],
  vlanFiltering: [7, u8],
  vlanProtocol: [8, u16be],
  groupFwdMask: [9, u16],
});

/** `IFLA_INFO_SLAVE_DATA` of kind `bridge` and `IFLA_PROTINFO`; linux/if_link.h, IFLA_BRPORT_*. */
const bridgePort = attrs('bridge port', {
  state: [1, u8],
  priority: [2, u16],
  cost: [3, u32],
  hairpin: [4, u8], // IFLA_BRPORT_MODE
  guard: [5, u8],
  protect: [6, u8],
  fastLeave: [7, u8],
  learning: [8, u8],
  unicastFlood: [9, u8],
  isolated: [33, u8],
});

/** Kind `dummy` has no data of its own: it drops what is sent to it. */
const dummy = attrs('dummy', {});

/** Kind `ifb` has no data of its own: qdiscs and redirects determine what it shapes. */
const ifb = attrs('ifb', {});

/** `IFLA_INFO_DATA` of kind `ipvlan`; linux/if_link.h, IFLA_IPVLAN_*. */
export const ipvlan = attrs('ipvlan', {
  mode: [1, u16],
  flags: [2, u16],
});

/** linux/if_link.h, enum ipvlan_mode. */
export const IPVLAN_MODES = { l2: 0, l3: 1, l3s: 2 } as const;

/** linux/if_link.h, IPVLAN_F_*: how children of one master reach each other. */
export const IPVLAN_FLAGS = { bridge: 0, private: 1, vepa: 2 } as const;

/** A key of {@link IPVLAN_MODES}. */
export type IpvlanMode = keyof typeof IPVLAN_MODES;

/** A key of {@link IPVLAN_FLAGS}. */
export type IpvlanFlags = keyof typeof IPVLAN_FLAGS;

/** `IFLA_INFO_DATA` of kind `macvlan`; linux/if_link.h, IFLA_MACVLAN_*. */
export const macvlan = attrs('macvlan', {
  mode: [1, u32],
  flags: [2, u16],
  queueLength: [7, u32], // IFLA_MACVLAN_BC_QUEUE_LEN
  queueLengthUsed: [8, u32], // IFLA_MACVLAN_BC_QUEUE_LEN_USED
});

/** linux/if_link.h, enum macvlan_mode: how children of one master reach each other. */
export const MACVLAN_MODES = { private: 1, vepa: 2, bridge: 4, passthru: 8 } as const;

/** A key of {@link MACVLAN_MODES}. */
export type MacvlanMode = keyof typeof MACVLAN_MODES;

/** `IFLA_INFO_DATA` of kind `tun`, which the kernel reports and does not take; linux/if_link.h, IFLA_TUN_*. */
export const tun = attrs('tun', {
  owner: [1, u32],
  group: [2, u32],
  /** 1 for tun, 2 for tap. */
  type: [3, u8],
  pi: [4, u8],
  vnetHdr: [5, u8],
  persist: [6, u8],
  multiQueue: [7, u8],
  queues: [8, u32],
  disabledQueues: [9, u32],
});

/** IFLA_TUN_TYPE of a tap. */
export const TUN_TYPE_TAP = 2;

/** Attributes for creating the other end. */
const peerAttrs = attrs('veth peer', {
  address: [1, mac], // IFLA_ADDRESS
  ifname: [3, str], // IFLA_IFNAME
  mtu: [4, u32], // IFLA_MTU
  txqlen: [13, u32], // IFLA_TXQLEN
  netnsFd: [28, u32], // IFLA_NET_NS_FD
});

type PeerAttrs = ReturnType<typeof peerAttrs.decode>;

/** linux/veth.h, VETH_INFO_PEER: a struct ifinfomsg and then link attributes. */
const peer: Field<PeerAttrs> = {
  nested: true,
  encode(writer, value) {
    ifinfomsg.encode(writer, {});
    peerAttrs.encode(writer, value, value);
  },
  decode: bytes => peerAttrs.decode(bytes.subarray(ifinfomsg.size), {}),
};

/** `IFLA_INFO_DATA` of kind `veth`. */
const veth = attrs('veth', {
  peer: [1, peer], // VETH_INFO_PEER
});

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

/** `IFLA_INFO_DATA` of kind `vrf`; linux/if_link.h, IFLA_VRF_*. */
const vrf = attrs('vrf', {
  table: [1, u32],
});

/** `IFLA_INFO_DATA` of kind `vxlan`; linux/if_link.h, IFLA_VXLAN_*. */
const vxlan = attrs('vxlan', {
  id: [1, u32],
  local: [4, ip],
  learning: [7, u8],
  port: [15, u16be],
  local6: [17, ip],
});

/** linux/if_link.h, IFLA_INFO_* */
const linkInfo = attrs('linkinfo', {
  kind: [1, str],
  data: [
    2,
    byKind('kind', { veth, bridge, ifb, dummy, macvlan, macvtap: macvlan, ipvlan, tun, vlan, vrf, vxlan }),
  ],
  portKind: [4, str], // IFLA_INFO_SLAVE_KIND
  portData: [5, byKind('portKind', { bridge: bridgePort })], // IFLA_INFO_SLAVE_DATA
});

/** linux/if_link.h, IFLA_* */
export const linkAttrs = attrs('link', {
  address: [1, mac],
  ifname: [3, str],
  mtu: [4, u32],
  link: [5, u32],
  qdisc: [6, str],
  master: [10, u32],
  protinfo: [12, bridgePort],
  txqlen: [13, u32],
  operstate: [16, u8],
  linkinfo: [18, linkInfo],
  alias: [20, str], // IFLA_IFALIAS
  group: [27, u32],
  netnsFd: [28, u32],
  extMask: [29, u32],
  promiscuity: [30, u32],
  linkNetnsId: [37, s32],
  propList: [52, listOf(str, { type: 53 })], // IFLA_PROP_LIST of IFLA_ALT_IFNAME
  altIfname: [53, str],
  permAddress: [54, mac], // IFLA_PERM_ADDRESS
  parentDevName: [56, str], // IFLA_PARENT_DEV_NAME
  parentDevBusName: [57, str],
  allmulti: [61, u32],
});

/** RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK and RTM_NEWLINKPROP. */
export const linkMessage = traced(
  'NETLINK_ROUTE',
  {
    16: 'RTM_NEWLINK',
    17: 'RTM_DELLINK',
    18: 'RTM_GETLINK',
    19: 'RTM_SETLINK',
    108: 'RTM_NEWLINKPROP',
  },
  layout(ifinfomsg, linkAttrs),
);
