// Which attributes does a VXLAN device have?
import { attrs } from '../../codec/attrs.ts';
import { ip, u8, u16be, u32 } from '../../codec/fields.ts';

/** `IFLA_INFO_DATA` of kind `vxlan`; linux/if_link.h, IFLA_VXLAN_*. */
export const vxlan = attrs('vxlan', {
  id: [1, u32],
  local: [4, ip],
  learning: [7, u8],
  port: [15, u16be],
  local6: [17, ip],
});
