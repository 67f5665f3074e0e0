// Which attributes does a macvlan have?
import { attrs } from '../../codec/attrs.ts';
import { u16, u32 } from '../../codec/fields.ts';

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
