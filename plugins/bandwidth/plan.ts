// Which token buckets implement the configured limits? Arithmetic only, no kernel.

import type { SubnetEnd } from '../../src/netlink/rtnl/filter.ts';
import type { Tbf } from '../../src/netlink/rtnl/qdisc.ts';
import type { Limit, Limits } from './config.ts';
import { FRAME_HEADER_BYTES, planTree, type Tree } from './tree.ts';

/** How long a packet may wait before the queue counts as full. */
const LATENCY_US = 25_000;
const US_PER_S = 1_000_000;
const NS_PER_S = 1_000_000_000;

const U32_MAX = 0xffffffff;

/** Duration of a default burst at the rate; never less than a few frames. */
const DEFAULT_BURST_US = 25_000;
const DEFAULT_BURST_FRAMES = 2;

/** The speed that a veth reports (`ethtool`), and how long a burst may last at that speed without a warning. */
const LINE_RATE_BITS = 10_000_000_000;
const LINE_RATE_MS_MAX = 100;

/** What the limits depend on besides their own numbers. */
export interface Surroundings {
  /** MTU of the host end, in bytes. */
  readonly mtu: number;
  /** Ticks of the packet scheduler per microsecond. */
  readonly ticksPerUs: number;
}

/** A limit for all packets, and the values that CHECK accepts. */
export interface Bucket {
  readonly tbf: Tbf;
  /** `tbf`, and what the reference plugin would have set: plugins may be swapped while containers are running. */
  readonly accepted: readonly Tbf[];
  /** The configured bits, if a whole frame needs more; a bucket smaller than a frame would drop it. */
  readonly raisedFromBits: number | undefined;
  /** How long a full bucket lets everything pass, in milliseconds, if that deserves a warning. */
  readonly unlimitedMs: number | undefined;
}

/** One direction. */
export interface Shaper {
  readonly bucket: Bucket;
  /** The bucket as one class of two. */
  readonly tree: Tree;
  /** Which of them to set: the tree if not all packets are limited. */
  readonly form: 'bucket' | 'tree';
}

/** Towards the container, or from it. */
export type Direction = 'ingress' | 'egress';

/** The desired state; absent means unlimited. */
export type Shaping = { readonly [D in Direction]?: Shaper };

/** The desired state of both directions. */
export function planShaping({ ingress, egress, subnets }: Limits, surroundings: Surroundings): Shaping {
  const plan = (limit: Limit, end: SubnetEnd): Shaper => {
    const bucket = planBucket(limit, surroundings);
    const tree = planTree(bucket.tbf, subnets ?? { are: 'unshaped', subnets: [] }, end, surroundings.mtu);
    return { bucket, tree, form: subnets ? 'tree' : 'bucket' };
  };
  return {
    // The other end of a connection is the source of packets to the container, and the destination of packets from it.
    ...(ingress ? { ingress: plan(ingress, 'source') } : {}),
    ...(egress ? { egress: plan(egress, 'destination') } : {}),
  };
}

/**
 * The bucket for one limit, with the reference's numbers unless those would not work. Values that do not fit into 32 bits become
 * the largest number that does, and a bucket too small for a full frame is enlarged to hold one.
 */
export function planBucket({ rateBits, burstBits }: Limit, { mtu, ticksPerUs }: Surroundings): Bucket {
  const rateBytes = Math.floor(rateBits / 8);
  const frameBytes = mtu + FRAME_HEADER_BYTES;
  const burstBytes =
    burstBits === undefined ? defaultBurst(rateBytes, frameBytes) : Math.floor(burstBits / 8);
  const asConfigured = tbfOf(rateBytes, burstBytes, ticksPerUs, clampU32);
  const fits = bucketBytes(asConfigured, ticksPerUs) >= frameBytes;
  const tbf = fits
    ? asConfigured
    : tbfOf(rateBytes, smallestBurst(rateBytes, frameBytes, ticksPerUs), ticksPerUs, clampU32);
  return {
    tbf,
    accepted: [tbf, tbfOf(rateBytes, burstBytes, ticksPerUs, wrapU32)],
    raisedFromBits: fits ? undefined : burstBits,
    unlimitedMs: unlimitedMs(rateBits, burstBits),
  };
}

/** Bytes that may pass at once if no burst was configured. */
function defaultBurst(rateBytes: number, frameBytes: number): number {
  const worth = Math.floor((rateBytes * DEFAULT_BURST_US) / US_PER_S);
  return Math.min(Math.max(worth, DEFAULT_BURST_FRAMES * frameBytes), U32_MAX - 1);
}

/** A bucket fills while it is drained, so a rate near the line rate makes it last longer. */
function unlimitedMs(rateBits: number, burstBits: number | undefined): number | undefined {
  if (burstBits === undefined || rateBits >= LINE_RATE_BITS) return undefined;
  const ms = (burstBits * 1_000) / (LINE_RATE_BITS - rateBits);
  return ms > LINE_RATE_MS_MAX ? Math.round(ms) : undefined;
}

/**
 * The parameters of a token bucket filter for a rate and a burst, each step truncated as in the reference. Doubles hold every
 * number here exactly: factors are below 2^32 and 10^6 wherever the result is not cut to 32 bits.
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

/** Smallest burst whose bucket still holds the frame after times have been cut to whole microseconds and ticks. */
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
