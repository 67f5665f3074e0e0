// Which attributes does a macvtap device have?
import { attrs } from '../../codec/attrs.ts';
import { u32 } from '../../codec/fields.ts';

/** `IFLA_INFO_DATA` of kind `macvtap`; linux/if_link.h, IFLA_MACVLAN_*. */
export const macvtap = attrs('macvtap', {
  mode: [1, u32],
});

/** linux/if_link.h, enum macvlan_mode */
export const MACVTAP_MODES = { private: 1, vepa: 2, bridge: 4, passthru: 8 } as const;
