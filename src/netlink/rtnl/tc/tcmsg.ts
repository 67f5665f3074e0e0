// What is the fixed header of traffic control messages, and what do its numbers mean?
import { s32, u8, u16, u32 } from '../../codec/attrs.ts';
import { struct } from '../../codec/message.ts';

/**
 * linux/rtnetlink.h: struct tcmsg { unsigned char tcm_family; unsigned char tcm__pad1; unsigned short tcm__pad2;
 * int tcm_ifindex; __u32 tcm_handle; __u32 tcm_parent; __u32 tcm_info; }
 */
export const tcmsg = struct('tcmsg', [
  ['family', u8],
  ['_pad1', u8],
  ['_pad2', u16],
  ['index', s32],
  ['handle', u32],
  ['parent', u32],
  ['info', u32],
]);

/** linux/pkt_sched.h: where a qdisc is attached to its device. */
export const TC_H_ROOT = 0xffffffff;
export const TC_H_INGRESS = 0xfffffff1;

/** Parent of the filters that see incoming packets, for `ingress` and `clsact` alike: TC_H_CLSACT, TC_H_MIN_INGRESS. */
export const TC_H_INGRESS_FILTERS = 0xfffffff2;

/** A handle from its two halves: `1:` is (1, 0). */
export function tcHandle(major: number, minor: number): number {
  return ((major << 16) | minor) >>> 0;
}

/** A handle as `tc` prints it: `1:`, `ffff:fff2`, `root`. */
export function renderTcHandle(handle: number): string {
  if (handle === TC_H_ROOT) return 'root';
  const minor = handle & 0xffff;
  return `${(handle >>> 16).toString(16)}:${minor ? minor.toString(16) : ''}`;
}
