// Which attributes do a VRF device have?
import { attrs } from '../../codec/attrs.ts';
import { u32 } from '../../codec/fields.ts';

/** `IFLA_INFO_DATA` of kind `vrf`; linux/if_link.h, IFLA_VRF_*. */
export const vrf = attrs('vrf', {
  table: [1, u32],
});
