// How are queueing disciplines and their classes attached to devices, listed and removed?

import { readFileSync } from 'node:fs';
import { Errno } from '../../sys/errno.ts';
import {
  attrs,
  byKind,
  NLM_F_CREATE,
  NLM_F_ECHO,
  NLM_F_REPLACE,
  type Request,
  s16,
  s32,
  str,
  struct,
  u8,
  u16,
  u32,
  u64,
  Writer,
} from '../codec.ts';
import type { NetlinkSocket, Question } from '../socket.ts';
import { messages } from './message.ts';

/** linux/rtnetlink.h */
export const tcmsg = struct('tcmsg', {
  family: u8,
  _pad1: u8,
  _pad2: u16,
  index: s32,
  handle: u32,
  parent: u32,
  info: u32,
});

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

/** Ticks of 64 ns: the unit of every kernel since 2.6.31. */
const USUAL_TICKS_PER_US = 1000 / 64;

/** Ticks per microsecond on this kernel, read once. Same as: what `tc` computes from /proc/net/psched */
export function ticksPerUs(): number {
  known ??= readTicksPerUs();
  return known;
}

let known: number | undefined;

export function readTicksPerUs(path = '/proc/net/psched'): number {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    // Some sandboxes hide the file, but the unit is part of the kernel's interface.
    return USUAL_TICKS_PER_US;
  }
  return parsePsched(text);
}

/**
 * The four hexadecimal words of /proc/net/psched: nanoseconds per µs, nanoseconds per tick, clock ticks per second and
 * the timer's resolution.
 * @throws Error when the text is something else
 */
export function parsePsched(text: string): number {
  const [perUs = Number.NaN, perTick = Number.NaN, clock = Number.NaN] = text
    .trim()
    .split(/\s+/)
    .map(word => Number.parseInt(word, 16));
  // A clock in nanoseconds means that a tick and a µs are counted in the same unit (iproute2, tc_core_init).
  const tickUnit = clock === 1_000_000_000 ? perUs : perTick;
  const ticksPerUs = ((perUs / tickUnit) * clock) / 1_000_000;
  if (Number.isFinite(ticksPerUs) && ticksPerUs > 0) return ticksPerUs;
  throw new Error(`Cannot read the packet scheduler's clock: found ${JSON.stringify(text)}`);
}

/** linux/pkt_sched.h */
export const tcRatespec = struct('tc_ratespec', {
  cellLog: u8,
  linklayer: u8,
  overhead: u16,
  cellAlign: s16,
  mpu: u16,
  rate: u32, // bytes per second
});

const U32_MAX = 0xffffffff;

/** The value of the additional 64-bit attribute, for a rate that does not fit. */
function rate64Of(rateBytes: number): bigint | undefined {
  return rateBytes > U32_MAX ? BigInt(rateBytes) : undefined;
}

function rateOf({ rate }: ReturnType<typeof tcRatespec.decode>, rate64: bigint | undefined): number {
  return rate64 === undefined ? rate : Number(rate64);
}

/** linux/pkt_sched.h */
export const tcTbfQopt = struct('tc_tbf_qopt', {
  rate: tcRatespec,
  peakrate: tcRatespec,
  limit: u32, // bytes
  buffer: u32, // ticks
  mtu: u32, // ticks
});

/** `TCA_OPTIONS` of kind `tbf`; linux/pkt_sched.h, TCA_TBF_*. */
const tbfOptions = attrs('tbf', {
  parms: [1, tcTbfQopt],
  rate64: [4, u64],
  burst: [6, u32],
});

type TbfOptions = ReturnType<typeof tbfOptions.decode>;

/** A token bucket: passes `rateBytes` per second, after an initial burst of the bucket's size. */
export interface Tbf {
  /** Bytes per second. */
  readonly rateBytes: number;
  /** Size of the bucket as the time to fill it, in ticks of the packet scheduler; see {@link ticksPerUs}. */
  readonly bufferTicks: number;
  /** Bytes that may be queued, including those that the bucket covers; more are dropped. */
  readonly limitBytes: number;
}

export function tbfToOptions({ rateBytes, bufferTicks, limitBytes }: Tbf): TbfOptions {
  // The lower 32 bits, which is all that fits here.
  const rate = { ...tcRatespec.zero, rate: rateBytes % (U32_MAX + 1) };
  const parms = { ...tcTbfQopt.zero, rate, limit: limitBytes, buffer: bufferTicks };
  return { parms, rate64: rate64Of(rateBytes) };
}

export function tbfFromOptions({ parms, rate64 }: TbfOptions): Tbf {
  if (parms === undefined) throw new Error('Cannot decode tbf: it has no TCA_TBF_PARMS');
  return { rateBytes: rateOf(parms.rate, rate64), bufferTicks: parms.buffer, limitBytes: parms.limit };
}

/** linux/pkt_sched.h */
export const tcHtbOpt = struct('tc_htb_opt', {
  rate: tcRatespec,
  ceil: tcRatespec,
  buffer: u32, // ticks
  cbuffer: u32, // ticks
  quantum: u32, // bytes
  level: u32,
  prio: u32,
});

/** linux/pkt_sched.h */
export const tcHtbGlob = struct('tc_htb_glob', {
  version: u32,
  rate2quantum: u32,
  defcls: u32,
  debug: u32,
  directPkts: u32,
});

/** `TCA_OPTIONS` of kind `htb`, of the qdisc and of its classes; linux/pkt_sched.h, TCA_HTB_*. */
const htbOptions = attrs('htb', {
  parms: [1, tcHtbOpt],
  init: [2, tcHtbGlob],
  directQlen: [5, u32],
  rate64: [6, u64],
  ceil64: [7, u64],
});

type HtbOptions = ReturnType<typeof htbOptions.decode>;

/** net/sched/sch_htb.c, HTB_VER */
const HTB_VERSION = 3;

/**
 * The kernel would derive a class's quantum by dividing its rate by this, and warn that the result is too small or too
 * large; our classes set their quantum.
 */
const RATE_TO_QUANTUM = 10;

export interface HtbClass {
  /** Guaranteed rate of the class in bytes per second. */
  readonly rateBytes: number;
  /** Rate in bytes per second when other classes leave room. */
  readonly ceilBytes: number;
  /** Size of both buckets as the time to fill them, in ticks of the packet scheduler. */
  readonly bufferTicks: number;
  /** Bytes that it may send before the next class's turn. */
  readonly quantumBytes: number;
}

/** linux/pkt_sched.h, enum tc_link_layer */
const TC_LINKLAYER_ETHERNET = 1;

function htbClassToOptions({ rateBytes, ceilBytes, bufferTicks, quantumBytes }: HtbClass): HtbOptions {
  const parms = {
    ...tcHtbOpt.zero,
    rate: htbRateSpec(rateBytes),
    ceil: htbRateSpec(ceilBytes),
    buffer: bufferTicks,
    cbuffer: bufferTicks,
    quantum: quantumBytes,
  };
  return { parms, rate64: rate64Of(rateBytes), ceil64: rate64Of(ceilBytes) };
}

function htbClassFromOptions({ parms, rate64, ceil64 }: HtbOptions): HtbClass {
  if (parms === undefined) throw new Error('Cannot decode htb class: it has no TCA_HTB_PARMS');
  return {
    rateBytes: rateOf(parms.rate, rate64),
    ceilBytes: rateOf(parms.ceil, ceil64),
    bufferTicks: parms.buffer,
    quantumBytes: parms.quantum,
  };
}

/** For larger rates, a lower half of zero would be refused as a missing rate. */
function htbRateSpec(rateBytes: number) {
  return { ...tcRatespec.zero, linklayer: TC_LINKLAYER_ETHERNET, rate: Math.min(rateBytes, U32_MAX) };
}

/** Neither has options: they shape nothing, filters are attached to them. */
const ingressOptions = attrs('ingress', {});

/** linux/pkt_sched.h; `TCA_OPTIONS` of kind `bfifo` without attributes around it. */
export const tcFifoQopt = struct('tc_fifo_qopt', { limit: u32 });

/** linux/rtnetlink.h, TCA_* */
const qdiscAttrs = attrs('qdisc', {
  kind: [1, str],
  options: [
    2,
    byKind('kind', { tbf: tbfOptions, htb: htbOptions, ingress: ingressOptions, clsact: ingressOptions }),
  ],
});

export const qdiscMessage = messages('QDISC', tcmsg, qdiscAttrs);

/** Where a qdisc is attached to a device: outgoing packets pass `root`, incoming ones `ingress`. */
type Hook = 'root' | 'ingress';

/** The qdisc `1:`, through which all outgoing packets pass. */
const AT_ROOT = { handle: tcHandle(1, 0), parent: TC_H_ROOT };
const PARENTS: Readonly<Record<Hook, number>> = { root: TC_H_ROOT, ingress: TC_H_INGRESS };

export interface Qdisc {
  readonly index: number;
  readonly kind: string;
  /** 0 for the kernel's default qdisc. */
  readonly handle: number;
  readonly parent: number;
  readonly tbf?: Tbf | undefined;
  /** For kind `htb`: minor number of the class for packets that match no filter. */
  readonly defaultClass?: number | undefined;
  /** For kind `bfifo`: maximum length of the queue in bytes. */
  readonly limitBytes?: number | undefined;
}

/** Qdiscs of the namespace. Same as: `tc qdisc show` */
export function listQdiscs(socket: NetlinkSocket): Qdisc[] {
  return qdiscMessage.list(socket, 'list qdiscs').map(toQdisc);
}

/**
 * The qdisc attached to a device, or undefined when there is only the kernel's default or the device does not exist. Asks for
 * that one qdisc: the kernel lists qdiscs only for all devices at once, and a node has hundreds.
 * @param index of the device
 * @param at a hook, or the handle of a class
 * Same as: `tc qdisc show dev <link> root` / `… ingress`
 */
export function findQdisc(socket: NetlinkSocket, index: number, at: Hook | number): Qdisc | undefined {
  return socket.ask(qdiscQuestion(index, at));
}

export function qdiscQuestion(index: number, at: Hook | number): Question<Qdisc> {
  const [name, parent] = typeof at === 'number' ? [renderTcHandle(at), at] : [at, PARENTS[at]];
  const op = `find ${name} qdisc of link with index ${index}`;
  const absent = [Errno.ENOENT, Errno.ENODEV];
  const asked = qdiscMessage.question(op, { index, parent }, {}, absent, found => {
    return found.header.handle ? toQdisc(found) : undefined;
  });
  // The answer is a notification, which the requester only gets as an echo; some qdiscs have none.
  return { ...asked, flags: NLM_F_ECHO, isQuestion: false };
}

/**
 * Limits the outgoing packets of a device. Replaces a token bucket with handle `1:` or the kernel's default.
 * Same as: `tc qdisc replace dev <link> root handle 1: tbf rate … burst … limit …`
 */
export function tbfRequest(index: number, tbf: Tbf): Request {
  const op = `put a token bucket on link with index ${index}`;
  const own = { kind: 'tbf', options: tbfToOptions(tbf) };
  return qdiscMessage.add(op, { index, ...AT_ROOT }, own, NLM_F_CREATE | NLM_F_REPLACE);
}

/**
 * Sorts the outgoing packets of a device into classes. Replaces the kernel's default.
 * Same as: `tc qdisc add dev <link> root handle 1: htb default <class>`
 */
export function htbRequest(index: number, defaultClass: number): Request {
  const op = `put a tree of classes on link with index ${index}`;
  const init = {
    ...tcHtbGlob.zero,
    version: HTB_VERSION,
    rate2quantum: RATE_TO_QUANTUM,
    defcls: defaultClass,
  };
  return qdiscMessage.add(op, { index, ...AT_ROOT }, { kind: 'htb', options: { init } });
}

/**
 * Limits how many bytes of a class may be queued.
 * Same as: `tc qdisc add dev <link> parent <class> handle <handle> bfifo limit <bytes>`
 */
export function bfifoRequest(
  index: number,
  { parent, handle, limitBytes }: { parent: number; handle: number; limitBytes: number },
): Request {
  const op = `bound the queue of class ${renderTcHandle(parent)} on link with index ${index}`;
  const options = new Writer();
  tcFifoQopt.encode(options, { limit: limitBytes });
  return qdiscMessage.add(op, { index, handle, parent }, { kind: 'bfifo', options: options.finish() });
}

/**
 * Adds the qdisc that filters on incoming packets need; EEXIST when one of kind `ingress` or `clsact` exists already.
 * Same as: `tc qdisc add dev <link> ingress`
 */
export function ingressRequest(index: number): Request {
  const op = `put an ingress qdisc on link with index ${index}`;
  const place = { index, handle: tcHandle(0xffff, 0), parent: TC_H_INGRESS };
  return qdiscMessage.add(op, place, { kind: 'ingress', options: {} });
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
  const op = `delete qdisc "${renderTcHandle(handle)}" from link with index ${index}`;
  return qdiscMessage.remove(op, { index, handle, parent });
}

function toQdisc({ header, attrs: own }: ReturnType<typeof qdiscMessage.decode>): Qdisc {
  const { index, handle, parent } = header;
  const { kind = '', options } = own;
  const place = { index, kind, handle, parent };
  if (options === undefined) return place;
  if (options instanceof Uint8Array) {
    return kind === 'bfifo' ? { ...place, limitBytes: tcFifoQopt.decode(options).limit } : place;
  }
  if (kind === 'tbf') return { ...place, tbf: tbfFromOptions(options as TbfOptions) };
  if (kind === 'htb') {
    const { init } = options as HtbOptions;
    if (init === undefined) throw new Error('Cannot decode htb: it has no TCA_HTB_INIT');
    return { ...place, defaultClass: init.defcls };
  }
  return place;
}

/** linux/rtnetlink.h, TCA_* */
const classAttrs = attrs('class', {
  kind: [1, str],
  options: [2, byKind('kind', { htb: htbOptions })],
});

export const classMessage = messages('TCLASS', tcmsg, classAttrs);

/** Classes of all qdiscs of a device. Same as: `tc class show dev <link>` */
export function listClasses(socket: NetlinkSocket, index: number) {
  const all = classMessage.list(socket, `list classes of link with index ${index}`, { index });
  return all.map(({ header, attrs: { kind = '', options } }) => ({
    kind,
    handle: header.handle,
    parent: header.parent,
    htb: options === undefined || options instanceof Uint8Array ? undefined : htbClassFromOptions(options),
  }));
}

/**
 * Adds a class to the qdisc `1:`.
 * Same as: `tc class add dev <link> parent 1: classid 1:<minor> htb rate … ceil … burst … cburst … quantum …`
 */
export function htbClassRequest(index: number, minor: number, htb: HtbClass): Request {
  const [handle, parent] = [tcHandle(1, minor), tcHandle(1, 0)];
  const op = `add class ${renderTcHandle(handle)} to link with index ${index}`;
  return classMessage.add(op, { index, handle, parent }, { kind: 'htb', options: htbClassToOptions(htb) });
}
