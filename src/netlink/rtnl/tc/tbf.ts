// What does a token bucket filter take, and what does the kernel say about one?
import { attrs } from '../../codec/attrs.ts';
import { s16, u8, u16, u32, u64 } from '../../codec/fields.ts';
import { struct } from '../../codec/struct.ts';

/**
 * linux/pkt_sched.h: struct tc_ratespec { unsigned char cell_log; __u8 linklayer; unsigned short overhead;
 * short cell_align; unsigned short mpu; __u32 rate; }
 */
export const tcRatespec = struct('tc_ratespec', [
  ['cellLog', u8],
  ['linklayer', u8],
  ['overhead', u16],
  ['cellAlign', s16],
  ['mpu', u16],
  ['rate', u32], // bytes per second
]);

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

/** A token bucket: what passes at `rateBytes` per second, after a burst that fills the bucket. */
export interface Tbf {
  /** Bytes per second. */
  readonly rateBytes: number;
  /** Size of the bucket as the time it takes to fill it, in ticks of the packet scheduler; see {@link readTicksPerUs}. */
  readonly bufferTicks: number;
  /** Bytes that may wait, those that the bucket covers included; more are dropped. */
  readonly limitBytes: number;
}

const U32_MAX = 0xffffffff;

/** The options that make a qdisc such a bucket. */
export function tbfToOptions({ rateBytes, bufferTicks, limitBytes }: Tbf): TbfOptions {
  return {
    parms: {
      rate: { ...tcRatespec.zero, rate: rateBytes % (U32_MAX + 1) },
      peakrate: tcRatespec.zero,
      limit: limitBytes,
      buffer: bufferTicks,
      mtu: 0,
    },
    ...(rateBytes > U32_MAX ? { rate64: BigInt(rateBytes) } : {}),
  };
}

/** The bucket that a qdisc's options describe. */
export function tbfFromOptions({ parms, rate64 }: TbfOptions): Tbf {
  if (parms === undefined) throw new Error('Cannot decode tbf: it has no TCA_TBF_PARMS');
  return {
    rateBytes: rate64 === undefined ? parms.rate.rate : Number(rate64),
    bufferTicks: parms.buffer,
    limitBytes: parms.limit,
  };
}
