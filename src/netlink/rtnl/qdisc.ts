// How are queueing disciplines attached to devices, listed and removed?

import { Errno } from '../../sys/errno.ts';
import { askAll, type Question } from '../ask.ts';
import { attrs, byKind, str, u32, type ValuesOf } from '../codec/attrs.ts';
import { Writer } from '../codec/bytes.ts';
import {
  layout,
  NLM_F_CREATE,
  NLM_F_ECHO,
  NLM_F_EXCL,
  NLM_F_REPLACE,
  type Request,
  struct,
} from '../codec/message.ts';
import type { NetlinkSocket } from '../socket.ts';
import { traced } from '../trace.ts';
import { defaultClassIn, htbOptions, htbToOptions } from './tc/htb.ts';
import { type Tbf, tbfFromOptions, tbfOptions, tbfToOptions } from './tc/tbf.ts';
import { renderTcHandle, TC_H_INGRESS, TC_H_ROOT, tcHandle, tcmsg } from './tc/tcmsg.ts';

/** Neither has options: they shape nothing, filters are attached to them. */
const ingressOptions = attrs('ingress', {});

/** linux/pkt_sched.h: struct tc_fifo_qopt { __u32 limit; } */
export const tcFifoQopt = struct('tc_fifo_qopt', [['limit', u32]]);

/** `TCA_OPTIONS` of kind `bfifo`: the struct itself, without attributes. */
function bfifoToOptions(limitBytes: number): Uint8Array {
  const writer = new Writer();
  tcFifoQopt.encode(writer, { limit: limitBytes });
  return writer.finish();
}

/** Maximum length of the queue in bytes. */
function bfifoFromOptions(options: Uint8Array): number {
  return tcFifoQopt.decode(options).limit;
}

/** linux/rtnetlink.h */
const RTM_NEWQDISC = 36;
const RTM_DELQDISC = 37;
const RTM_GETQDISC = 38;

/** linux/rtnetlink.h, TCA_* */
const qdiscAttrs = attrs('qdisc', {
  kind: [1, str],
  options: [
    2,
    byKind('kind', { tbf: tbfOptions, htb: htbOptions, ingress: ingressOptions, clsact: ingressOptions }),
  ],
});

/** RTM_NEWQDISC, RTM_DELQDISC and RTM_GETQDISC. */
export const qdiscMessage = traced(
  'NETLINK_ROUTE',
  { 36: 'RTM_NEWQDISC', 37: 'RTM_DELQDISC', 38: 'RTM_GETQDISC' },
  layout(tcmsg, qdiscAttrs),
);

/** Where a qdisc is attached to a device: outgoing packets pass `root`, incoming ones `ingress`. */
type Hook = 'root' | 'ingress';

const PARENTS: Readonly<Record<Hook, number>> = { root: TC_H_ROOT, ingress: TC_H_INGRESS };

/** A qdisc as the kernel reports it. */
export interface Qdisc {
  /** Index of the device. */
  readonly index: number;
  readonly kind: string;
  /** 0 for the kernel's default qdisc. */
  readonly handle: number;
  readonly parent: number;
  /** For kind `tbf`. */
  readonly tbf?: Tbf | undefined;
  /** For kind `htb`: minor number of the class for packets that match no filter. */
  readonly defaultClass?: number | undefined;
  /** For kind `bfifo`: maximum length of the queue in bytes. */
  readonly limitBytes?: number | undefined;
}

/** The device and position of a qdisc. */
interface QdiscPlace {
  /** Index of the device. */
  readonly index: number;
  /** A hook, or the handle of a class. */
  readonly at: Hook | number;
}

/** Qdiscs of the namespace, or of one device. Same as: `tc qdisc show [dev <link>]` */
export function listQdiscs(socket: NetlinkSocket, index?: number): Qdisc[] {
  const body = qdiscMessage.encode({}, {});
  const all = socket.dump({ op: 'list qdiscs', type: RTM_GETQDISC, body }).map(decodeQdisc);
  return all.filter(qdisc => index === undefined || qdisc.index === index);
}

/**
 * The qdisc attached to a device, or undefined when there is only the kernel's default or the device does not exist. Asks for
 * that one qdisc: the kernel lists qdiscs only for all devices at once, and a node has hundreds.
 * Same as: `tc qdisc show dev <link> root` / `… ingress`
 */
export function findQdisc(socket: NetlinkSocket, index: number, at: Hook | number): Qdisc | undefined {
  return findQdiscs(socket, [{ index, at }])[0];
}

/** Like {@link findQdisc} for several qdiscs at once. */
export function findQdiscs(socket: NetlinkSocket, places: readonly QdiscPlace[]): (Qdisc | undefined)[] {
  return askAll(socket, places.map(qdiscQuestion));
}

/** The question of {@link findQdisc}, for a batch. */
export function qdiscQuestion({ index, at }: QdiscPlace): Question<Qdisc> {
  return {
    op: `find ${typeof at === 'number' ? renderTcHandle(at) : at} qdisc of link with index ${index}`,
    type: RTM_GETQDISC,
    // The answer is a notification, which the requester only gets as an echo; some qdiscs have none.
    flags: NLM_F_ECHO,
    body: qdiscMessage.encode({ index, parent: typeof at === 'number' ? at : PARENTS[at] }, {}),
    absent: [Errno.ENOENT, Errno.ENODEV],
    read(body) {
      const qdisc = decodeQdisc(body);
      return qdisc.handle ? qdisc : undefined;
    },
  };
}

/**
 * Limits the outgoing packets of a device. Replaces a token bucket with handle `1:` or the kernel's default.
 * Same as: `tc qdisc replace dev <link> root handle 1: tbf rate … burst … limit …`
 */
export function tbfRequest(index: number, tbf: Tbf): Request {
  const body = qdiscMessage.encode(
    { index, handle: tcHandle(1, 0), parent: TC_H_ROOT },
    { kind: 'tbf', options: tbfToOptions(tbf) },
  );
  const op = `put a token bucket on link with index ${index}`;
  return { op, type: RTM_NEWQDISC, flags: NLM_F_CREATE | NLM_F_REPLACE, body };
}

/**
 * Sorts the outgoing packets of a device into classes. Replaces the kernel's default.
 * Same as: `tc qdisc add dev <link> root handle 1: htb default <class>`
 */
export function htbRequest(index: number, defaultClass: number): Request {
  const body = qdiscMessage.encode(
    { index, handle: tcHandle(1, 0), parent: TC_H_ROOT },
    { kind: 'htb', options: htbToOptions(defaultClass) },
  );
  const op = `put a tree of classes on link with index ${index}`;
  return { op, type: RTM_NEWQDISC, flags: NLM_F_CREATE | NLM_F_EXCL, body };
}

/**
 * Limits how many bytes of a class may be queued.
 * Same as: `tc qdisc add dev <link> parent <class> handle <handle> bfifo limit <bytes>`
 */
export function bfifoRequest(
  index: number,
  { parent, handle, limitBytes }: { parent: number; handle: number; limitBytes: number },
): Request {
  const body = qdiscMessage.encode(
    { index, handle, parent },
    { kind: 'bfifo', options: bfifoToOptions(limitBytes) },
  );
  const op = `bound the queue of class ${renderTcHandle(parent)} on link with index ${index}`;
  return { op, type: RTM_NEWQDISC, flags: NLM_F_CREATE | NLM_F_EXCL, body };
}

/**
 * Adds the qdisc that filters on incoming packets need; EEXIST when one of kind `ingress` or `clsact` exists already.
 * Same as: `tc qdisc add dev <link> ingress`
 */
export function ingressRequest(index: number): Request {
  const body = qdiscMessage.encode(
    { index, handle: tcHandle(0xffff, 0), parent: TC_H_INGRESS },
    { kind: 'ingress', options: {} },
  );
  const op = `put an ingress qdisc on link with index ${index}`;
  return { op, type: RTM_NEWQDISC, flags: NLM_F_CREATE | NLM_F_EXCL, body };
}

/** Refusals meaning that the qdisc no longer exists: EINVAL is another handle, or none, at that position. */
export const QDISC_GONE: readonly number[] = [Errno.ENOENT, Errno.ENODEV, Errno.EINVAL];

/**
 * The request that removes a qdisc from its device, with its classes and filters; {@link QDISC_GONE} if there is none.
 * Same as: `tc qdisc del dev <link> root` / `… ingress`
 */
export function removeQdiscRequest({
  index,
  handle,
  parent,
}: Pick<Qdisc, 'index' | 'handle' | 'parent'>): Request {
  const body = qdiscMessage.encode({ index, handle, parent }, {});
  const op = `delete qdisc "${renderTcHandle(handle)}" from link with index ${index}`;
  return { op, type: RTM_DELQDISC, body };
}

function decodeQdisc(body: Uint8Array): Qdisc {
  const { header, attrs: own } = qdiscMessage.decode(body);
  const { index, handle, parent } = header;
  const { kind = '', options } = own;
  const place = { index, kind, handle, parent };
  if (options === undefined) return place;
  if (options instanceof Uint8Array) {
    return kind === 'bfifo' ? { ...place, limitBytes: bfifoFromOptions(options) } : place;
  }
  if (kind === 'tbf') return { ...place, tbf: tbfFromOptions(options as ValuesOf<typeof tbfOptions>) };
  if (kind === 'htb') {
    return { ...place, defaultClass: defaultClassIn(options as ValuesOf<typeof htbOptions>) };
  }
  return place;
}
