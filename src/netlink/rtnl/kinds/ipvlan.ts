// Which attributes does an ipvlan have?
import { attrs } from '../../codec/attrs.ts';
import { u16 } from '../../codec/fields.ts';

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
