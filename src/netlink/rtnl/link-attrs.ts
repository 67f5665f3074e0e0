// Which attributes does a link have?
import { attrs, byKind, listOf } from '../codec/attrs.ts';
import { mac, s32, str, u8, u32 } from '../codec/fields.ts';
import { layout } from '../codec/message.ts';
import { traced } from '../trace.ts';
import { bridge, bridgePort } from './kinds/bridge.ts';
import { dummy } from './kinds/dummy.ts';
import { ifb } from './kinds/ifb.ts';
import { ipvlan } from './kinds/ipvlan.ts';
import { macvlan } from './kinds/macvlan.ts';
import { tun } from './kinds/tun.ts';
import { veth } from './kinds/veth.ts';
import { vlan } from './kinds/vlan.ts';
import { vrf } from './kinds/vrf.ts';
import { vxlan } from './kinds/vxlan.ts';
import { ifinfomsg } from './link-header.ts';

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
