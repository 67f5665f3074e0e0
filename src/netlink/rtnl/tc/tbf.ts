// Which options does a token bucket filter have, and how does the kernel report them?
import { attrs, u32, u64 } from '../../codec/attrs.ts';
import { struct } from '../../codec/message.ts';
import { rate64Of, rateOf, rateSpec, tcRatespec } from './psched.ts';

/**
 * linux/pkt_sched.h: struct tc_tbf_qopt { struct tc_ratespec rate; struct tc_ratespec peakrate; __u32 limit;
 * __u32 buffer; __u32 mtu; }
 */
export const tcTbfQopt = struct('tc_tbf_qopt', [
  ['rate', tcRatespec],
  ['peakrate', tcRatespec],
  ['limit', u32], // bytes
  ['buffer', u32], // ticks
  ['mtu', u32], // ticks
]);

/** `TCA_OPTIONS` of kind `tbf`; linux/pkt_sched.h, TCA_TBF_*. */
export const tbfOptions = attrs('tbf', {
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

/** Encodes the options of such a qdisc. */
export function tbfToOptions({ rateBytes, bufferTicks, limitBytes }: Tbf): TbfOptions {
  const rate64 = rate64Of(rateBytes);
  return {
    parms: {
      rate: rateSpec(rateBytes),
      peakrate: tcRatespec.zero,
      limit: limitBytes,
      buffer: bufferTicks,
      mtu: 0,
    },
    ...(rate64 === undefined ? {} : { rate64 }),
  };
}

/** Decodes the options of a qdisc. */
export function tbfFromOptions({ parms, rate64 }: TbfOptions): Tbf {
  if (parms === undefined) throw new Error('Cannot decode tbf: it has no TCA_TBF_PARMS');
  return {
    rateBytes: rateOf(parms.rate, rate64),
    bufferTicks: parms.buffer,
    limitBytes: parms.limit,
  };
}
