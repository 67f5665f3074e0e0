// Which options do a hierarchical token bucket and its classes have, and how does the kernel report them?
import { attrs, u32, u64 } from '../../codec/attrs.ts';
import { struct } from '../../codec/message.ts';
import { rate64Of, rateOf, tcRatespec } from './psched.ts';

/**
 * linux/pkt_sched.h: struct tc_htb_opt { struct tc_ratespec rate; struct tc_ratespec ceil; __u32 buffer;
 * __u32 cbuffer; __u32 quantum; __u32 level; __u32 prio; }
 */
export const tcHtbOpt = struct('tc_htb_opt', [
  ['rate', tcRatespec],
  ['ceil', tcRatespec],
  ['buffer', u32], // ticks
  ['cbuffer', u32], // ticks
  ['quantum', u32], // bytes
  ['level', u32],
  ['prio', u32],
]);

/**
 * linux/pkt_sched.h: struct tc_htb_glob { __u32 version; __u32 rate2quantum; __u32 defcls; __u32 debug;
 * __u32 direct_pkts; }
 */
export const tcHtbGlob = struct('tc_htb_glob', [
  ['version', u32],
  ['rate2quantum', u32],
  ['defcls', u32],
  ['debug', u32],
  ['directPkts', u32],
]);

/** `TCA_OPTIONS` of kind `htb`, of the qdisc and of its classes; linux/pkt_sched.h, TCA_HTB_*. */
export const htbOptions = attrs('htb', {
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

/** A class of packets with a rate of its own. */
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
const U32_MAX = 0xffffffff;

/** Options of the qdisc. @param defaultClass minor number of the class for packets that match no filter */
export function htbToOptions(defaultClass: number): HtbOptions {
  return {
    init: {
      ...tcHtbGlob.zero,
      version: HTB_VERSION,
      rate2quantum: RATE_TO_QUANTUM,
      defcls: defaultClass,
    },
  };
}

/** Minor number of the default class in the options of a qdisc. */
export function defaultClassIn({ init }: HtbOptions): number {
  if (init === undefined) throw new Error('Cannot decode htb: it has no TCA_HTB_INIT');
  return init.defcls;
}

/** Options of a class. */
export function htbClassToOptions(own: HtbClass): HtbOptions {
  const { rateBytes, ceilBytes, bufferTicks, quantumBytes } = own;
  const [rate64, ceil64] = [rate64Of(rateBytes), rate64Of(ceilBytes)];
  return {
    parms: {
      rate: rateSpec(rateBytes),
      ceil: rateSpec(ceilBytes),
      buffer: bufferTicks,
      cbuffer: bufferTicks,
      quantum: quantumBytes,
      level: 0,
      prio: 0,
    },
    ...(rate64 === undefined ? {} : { rate64 }),
    ...(ceil64 === undefined ? {} : { ceil64 }),
  };
}

/** Decodes the options of a class. */
export function htbClassFromOptions({ parms, rate64, ceil64 }: HtbOptions): HtbClass {
  if (parms === undefined) throw new Error('Cannot decode htb class: it has no TCA_HTB_PARMS');
  return {
    rateBytes: rateOf(parms.rate, rate64),
    ceilBytes: rateOf(parms.ceil, ceil64),
    bufferTicks: parms.buffer,
    quantumBytes: parms.quantum,
  };
}

/** For larger rates, a lower half of zero would be refused as a missing rate. */
function rateSpec(rateBytes: number) {
  return {
    ...tcRatespec.zero,
    linklayer: TC_LINKLAYER_ETHERNET,
    rate: Math.min(rateBytes, U32_MAX),
  };
}
