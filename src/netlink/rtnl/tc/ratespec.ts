// How are rates encoded, including those that do not fit 32 bits?
import { s16, u8, u16, u32 } from '../../codec/attrs.ts';
import { struct } from '../../codec/message.ts';

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

type Ratespec = ReturnType<typeof tcRatespec.decode>;

const U32_MAX = 0xffffffff;

/** The rate's lower 32 bits, which is all that fits here. */
export function rateSpec(rateBytes: number): Ratespec {
  return { ...tcRatespec.zero, rate: rateBytes % (U32_MAX + 1) };
}

/** The value of the additional 64-bit attribute, for a rate that does not fit. */
export function rate64Of(rateBytes: number): bigint | undefined {
  return rateBytes > U32_MAX ? BigInt(rateBytes) : undefined;
}

/** Decodes both into bytes per second. */
export function rateOf({ rate }: Ratespec, rate64: bigint | undefined): number {
  return rate64 === undefined ? rate : Number(rate64);
}
