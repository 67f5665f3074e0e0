// How are packets redirected to another device?
import type { Action } from './action.ts';
import { tcMirred } from './mirred.ts';

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
