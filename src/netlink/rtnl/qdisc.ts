// How are queueing disciplines put on devices, read and taken off?
import { Errno } from '../../sys/errno.ts';
import { attrs, byKind } from '../codec/attrs.ts';
import { str } from '../codec/fields.ts';
import { layout, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE } from '../codec/message.ts';
import { tolerating } from '../errors.ts';
import type { NetlinkSocket } from '../socket.ts';
import { traced } from '../trace.ts';
import { ingressOptions } from './tc/ingress.ts';
import { type Tbf, tbfFromOptions, tbfOptions, tbfToOptions } from './tc/tbf.ts';
import { renderTcHandle, TC_H_INGRESS, TC_H_ROOT, tcHandle, tcmsg } from './tc/tcmsg.ts';

/** linux/rtnetlink.h */
const RTM_NEWQDISC = 36;
const RTM_DELQDISC = 37;
const RTM_GETQDISC = 38;

/** linux/rtnetlink.h, TCA_* */
const qdiscAttrs = attrs('qdisc', {
  kind: [1, str],
  options: [2, byKind('kind', { tbf: tbfOptions, ingress: ingressOptions, clsact: ingressOptions })],
});

/** RTM_NEWQDISC, RTM_DELQDISC and RTM_GETQDISC. */
export const qdiscMessage = traced(
  'NETLINK_ROUTE',
  { 36: 'RTM_NEWQDISC', 37: 'RTM_DELQDISC', 38: 'RTM_GETQDISC' },
  layout(tcmsg, qdiscAttrs),
);

/** Where on a device a qdisc sits: what leaves goes through `root`, what comes in through `ingress`. */
export type Hook = 'root' | 'ingress';

const PARENTS: Readonly<Record<Hook, number>> = { root: TC_H_ROOT, ingress: TC_H_INGRESS };

/** A qdisc as the kernel describes it. */
export interface Qdisc {
  /** Of the device. */
  readonly index: number;
  readonly kind: string;
  /** 0 for what the kernel put there by itself. */
  readonly handle: number;
  readonly parent: number;
  /** For kind `tbf`. */
  readonly tbf: Tbf | undefined;
}

/** Qdiscs of the namespace, or of one device. Same as: `tc qdisc show [dev <link>]` */
export function listQdiscs(socket: NetlinkSocket, index?: number): Qdisc[] {
  const body = qdiscMessage.encode({}, {});
  const all = socket.dump({ op: 'list qdiscs', type: RTM_GETQDISC, body }).map(decodeQdisc);
  return all.filter(qdisc => index === undefined || qdisc.index === index);
}

/**
 * The qdisc that sits on a device, or undefined when nobody put one there or the device is gone. Asks for that one: the kernel lists qdiscs
 * only for all devices at once, and a node has hundreds.
 * Same as: `tc qdisc show dev <link> root` / `… ingress`
 */
export function findQdisc(socket: NetlinkSocket, index: number, hook: Hook): Qdisc | undefined {
  const op = `find ${hook} qdisc of link with index ${index}`;
  const body = qdiscMessage.encode({ index, parent: PARENTS[hook] }, {});
  const reply = tolerating([Errno.ENOENT, Errno.ENODEV], () =>
    // The answer is a notification, and the asker gets it only as an echo.
    socket.request({ op, type: RTM_GETQDISC, flags: NLM_F_ECHO, body }),
  );
  const qdisc = reply?.[0] && decodeQdisc(reply[0]);
  return qdisc?.handle ? qdisc : undefined;
}

/**
 * Limits what leaves a device, in place of a token bucket with handle `1:` or of the kernel's default.
 * Same as: `tc qdisc replace dev <link> root handle 1: tbf rate … burst … limit …`
 */
export function replaceTbf(socket: NetlinkSocket, index: number, tbf: Tbf): void {
  const body = qdiscMessage.encode(
    { index, handle: tcHandle(1, 0), parent: TC_H_ROOT },
    { kind: 'tbf', options: tbfToOptions(tbf) },
  );
  const op = `put a token bucket on link with index ${index}`;
  socket.request({ op, type: RTM_NEWQDISC, flags: NLM_F_CREATE | NLM_F_REPLACE, body });
}

/**
 * Makes room for filters on what comes into a device; one of kind `ingress` or `clsact` that is there already is EEXIST.
 * Same as: `tc qdisc add dev <link> ingress`
 */
export function addIngress(socket: NetlinkSocket, index: number): void {
  const body = qdiscMessage.encode(
    { index, handle: tcHandle(0xffff, 0), parent: TC_H_INGRESS },
    { kind: 'ingress', options: {} },
  );
  const op = `put an ingress qdisc on link with index ${index}`;
  socket.request({ op, type: RTM_NEWQDISC, flags: NLM_F_CREATE | NLM_F_EXCL, body });
}

/**
 * Takes a qdisc off its device, with its filters; one that is gone is fine.
 * Same as: `tc qdisc del dev <link> root` / `… ingress`
 */
export function removeQdisc(socket: NetlinkSocket, qdisc: Pick<Qdisc, 'index' | 'handle' | 'parent'>): void {
  const { index, handle, parent } = qdisc;
  const body = qdiscMessage.encode({ index, handle, parent }, {});
  const op = `delete qdisc "${renderTcHandle(handle)}" from link with index ${index}`;
  // The kernel says EINVAL when another handle, or none, is at that place by now.
  tolerating([Errno.ENOENT, Errno.ENODEV, Errno.EINVAL], () =>
    socket.request({ op, type: RTM_DELQDISC, body }),
  );
}

function decodeQdisc(body: Uint8Array): Qdisc {
  const { header, attrs: own } = qdiscMessage.decode(body);
  const { index, handle, parent } = header;
  const { kind = '', options } = own;
  const isTbf = kind === 'tbf' && options !== undefined && !(options instanceof Uint8Array);
  return { index, kind, handle, parent, tbf: isTbf ? tbfFromOptions(options) : undefined };
}
