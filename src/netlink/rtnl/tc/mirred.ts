// How are packets sent out through another device instead?
import { attrs } from '../../codec/attrs.ts';
import { s32, u32 } from '../../codec/fields.ts';
import { struct } from '../../codec/struct.ts';
import type { Action } from './action.ts';

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

/** linux/pkt_cls.h: the packet is ours now, nobody else sees it. */
const TC_ACT_STOLEN = 4;
/** linux/tc_act/tc_mirred.h */
const TCA_EGRESS_REDIR = 1;

/** Sends packets out through a device. Same as: `action mirred egress redirect dev <device>` */
export function egressRedirect(index: number): Action {
  const parms = { ...tcMirred.zero, action: TC_ACT_STOLEN, eaction: TCA_EGRESS_REDIR, ifindex: index };
  return { kind: 'mirred', options: { parms } };
}

/** Index of the device that an action redirects to (0: it is gone), or undefined for another kind of action. */
export function redirectTarget({ options }: Action): number | undefined {
  if (options === undefined || options instanceof Uint8Array) return undefined;
  return options.parms?.eaction === TCA_EGRESS_REDIR ? options.parms.ifindex : undefined;
}
