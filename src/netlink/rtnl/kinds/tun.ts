// Which attributes does a tun or tap device have?
import { attrs } from '../../codec/attrs.ts';
import { u8, u32 } from '../../codec/fields.ts';

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
