// Which attributes do a bridge and its ports have?
import { attrs } from '../../codec/attrs.ts';
import { u8, u16, u16be, u32 } from '../../codec/fields.ts';

/** `IFLA_INFO_DATA` of kind `bridge`; linux/if_link.h, IFLA_BR_*. */
export const bridge = attrs('bridge', {
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
export const bridgePort = attrs('bridge port', {
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
