// Which token buckets make up the configured limits? Arithmetic only, no kernel.
import type { Tbf } from '../../src/netlink/rtnl/tc/tbf.ts';
import type { Limit, Limits } from './config.ts';

/** How long a packet may wait for its turn before the queue counts as full. */
const LATENCY_US = 25_000;
const US_PER_S = 1_000_000;
const NS_PER_S = 1_000_000_000;

/** linux/if_ether.h ETH_HLEN, and a VLAN tag: what a frame has besides its payload. */
const FRAME_HEADER_BYTES = 14 + 4;

const U32_MAX = 0xffffffff;

/** What the limits depend on besides their own numbers. */
export interface Surroundings {
  /** MTU of the host's end, in bytes. */
  readonly mtu: number;
  /** Ticks of the packet scheduler per microsecond. */
  readonly ticksPerUs: number;
}

/** One direction: what to set, and what CHECK takes as right. */
export interface Bucket {
  readonly tbf: Tbf;
  /** `tbf`, and what the reference plugin would have set: a chain may be swapped while containers live. */
  readonly accepted: readonly Tbf[];
  /** Bits that were configured, if a whole frame needs more; a bucket smaller than a frame would drop it. */
  readonly raisedFromBits: number | undefined;
}

/** The desired state; absent is unlimited. */
export interface Shaping {
  readonly ingress?: Bucket;
  readonly egress?: Bucket;
}

/** The buckets for both directions. */
export function planShaping({ ingress, egress }: Limits, surroundings: Surroundings): Shaping {
  return {
    ...(ingress ? { ingress: planBucket(ingress, surroundings) } : {}),
    ...(egress ? { egress: planBucket(egress, surroundings) } : {}),
  };
}

/**
 * The bucket for one limit: the reference's numbers, except where those would not work. What does not fit 32 bits
 * becomes the largest number that does, and a bucket that no full frame fits into is made large enough for one.
 */
export function planBucket({ rateBits, burstBits }: Limit, { mtu, ticksPerUs }: Surroundings): Bucket {
  const rateBytes = Math.floor(rateBits / 8);
  const burstBytes = Math.floor(burstBits / 8);
  const asConfigured = tbfOf(rateBytes, burstBytes, ticksPerUs, clampU32);
  const frameBytes = mtu + FRAME_HEADER_BYTES;
  const fits = bucketBytes(asConfigured, ticksPerUs) >= frameBytes;
  const tbf = fits
    ? asConfigured
    : tbfOf(rateBytes, smallestBurst(rateBytes, frameBytes, ticksPerUs), ticksPerUs, clampU32);
  return {
    tbf,
    accepted: [tbf, tbfOf(rateBytes, burstBytes, ticksPerUs, wrapU32)],
    raisedFromBits: fits ? undefined : burstBits,
  };
}

/**
 * What a token bucket filter takes for a rate and a burst, each step truncated as the reference does it.
 * Doubles hold every number here exactly: factors are below 2^32 and 10^6 wherever the result is not cut to 32 bits.
 */
function tbfOf(rateBytes: number, burstBytes: number, ticksPerUs: number, cut: (n: number) => number): Tbf {
  const fillUs = cut((burstBytes * US_PER_S) / rateBytes);
  const waitingBytes = cut((rateBytes * LATENCY_US) / US_PER_S);
  return { rateBytes, bufferTicks: cut(fillUs * ticksPerUs), limitBytes: cut(waitingBytes + burstBytes) };
}

/** Largest frame that passes a bucket, as the kernel computes it from the time the bucket takes to fill. */
function bucketBytes({ rateBytes, bufferTicks }: Tbf, ticksPerUs: number): number {
  const fillNs = bufferTicks * (1_000 / ticksPerUs);
  return Math.floor((fillNs * rateBytes) / NS_PER_S);
}

/** Smallest burst whose bucket still holds the frame after times were cut to whole microseconds and ticks. */
function smallestBurst(rateBytes: number, frameBytes: number, ticksPerUs: number): number {
  const ticks = Math.ceil((frameBytes * US_PER_S * ticksPerUs) / rateBytes);
  const fillUs = Math.ceil(ticks / ticksPerUs);
  return Math.max(frameBytes, Math.ceil((fillUs * rateBytes) / US_PER_S));
}

function clampU32(value: number): number {
  return Math.min(Math.trunc(value), U32_MAX);
}

/** What Go's conversion to uint32 does on amd64: the reference's numbers for limits that do not fit. */
function wrapU32(value: number): number {
  return Number(BigInt.asUintN(32, BigInt(Math.trunc(value))));
}
