// How are packets redirected to another device?
import { attrs, byKind, s32, str, u32 } from '../../codec/attrs.ts';
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
const mirred = attrs('mirred', {
  parms: [2, tcMirred],
});

/** One action of a filter; linux/pkt_cls.h, TCA_ACT_*. */
export const action = attrs('action', {
  kind: [1, str],
  options: [2, byKind('kind', { mirred })],
  index: [3, u32],
});

/** Values of {@link action}. */
type Action = ReturnType<typeof action.decode>;

/** linux/pkt_cls.h: the action has consumed the packet, and processing stops. */
const TC_ACT_STOLEN = 4;
/** linux/tc_act/tc_mirred.h */
const TCA_EGRESS_REDIR = 1;

/** Redirects packets to the egress of a device. Same as: `action mirred egress redirect dev <device>` */
export function egressRedirect(index: number): Action {
  const parms = { ...tcMirred.zero, action: TC_ACT_STOLEN, eaction: TCA_EGRESS_REDIR, ifindex: index };
  return { kind: 'mirred', options: { parms } };
}

/** Index of the device that an action redirects to (0: it no longer exists); undefined for another kind of action. */
export function redirectTarget({ options }: Action): number | undefined {
  if (options === undefined || options instanceof Uint8Array) return undefined;
  return options.parms?.eaction === TCA_EGRESS_REDIR ? options.parms.ifindex : undefined;
}
