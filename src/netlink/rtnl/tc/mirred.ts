// How is the action encoded that redirects packets to another device?
import { attrs, s32, u32 } from '../../codec/attrs.ts';
import { struct } from '../../codec/message.ts';

/**
 * linux/tc_act/tc_mirred.h: struct tc_mirred { tc_gen; int eaction; __u32 ifindex; }, where linux/pkt_cls.h has
 * tc_gen as __u32 index; __u32 capab; int action; int refcnt; int bindcnt.
 */
export const tcMirred = struct('tc_mirred', [
  ['index', u32],
  ['capab', u32],
  ['action', s32],
  ['refcnt', s32],
  ['bindcnt', s32],
  ['eaction', s32],
  ['ifindex', u32],
]);

/** `TCA_ACT_OPTIONS` of kind `mirred`; linux/tc_act/tc_mirred.h, TCA_MIRRED_*. */
export const mirred = attrs('mirred', {
  parms: [2, tcMirred],
});
