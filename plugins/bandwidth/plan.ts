// Which token buckets implement the configured limits? Arithmetic only, no kernel.

import { renderCidr } from '../../src/net/ip.ts';
import {
  type Filter,
  matchSubnet,
  protocolOf,
  type SubnetEnd,
  type SubnetFilter,
  sameSelector,
} from '../../src/netlink/rtnl/filter.ts';
import { type HtbClass, renderTcHandle, type Tbf, tcHandle } from '../../src/netlink/rtnl/qdisc.ts';
import type { Limit, Limits, Subnets } from './config.ts';

/** linux/if_ether.h ETH_HLEN, and a VLAN tag: the size of a frame without its payload. */
const FRAME_HEADER_BYTES = 14 + 4;

/**
 * Minor numbers of the two classes, preferences of the filters and the rate of unlimited traffic: those of the reference in 1.5,
 * so that its CHECK accepts our tree.
 */
export const UNSHAPED_MINOR = 0x1;
export const SHAPED_MINOR = 0x30;
const PREFERENCE = { 4: 16, 6: 15 } as const;
export const UNLIMITED_BYTES = 100_000_000_000;

/** A bucket of several seconds, so that its refill timer never runs: an empty one stops the device with each packet. */
const UNLIMITED_TICKS = 0xffffffff;

/**
 * Bytes that a class may send before it is the other's turn, as a fraction of the rate: the kernel's default. Outside these
 * bounds the kernel warns, and either holds up the other class or alternates with every packet.
 */
const QUANTUM_PART = 10;
const QUANTUM_MAX_BYTES = 200_000;

/** The largest packet that a sender may pass in one piece (linux/netdevice.h, GSO_LEGACY_MAX_SIZE), and its header. */
const OFFLOADED_BYTES = 65_536 + FRAME_HEADER_BYTES;

/** Two classes, one of them limited, and filters that select the packets for the class that is not the default. */
export interface Tree {
  /** Minor number of the class for packets that no filter selects. */
  readonly defaultMinor: number;
  readonly shaped: HtbClass;
  readonly unshaped: HtbClass;
  /** Bytes that may queue in the limited class. */
  readonly limitBytes: number;
  readonly filters: readonly SubnetFilter[];
}

export interface FoundTree {
  readonly defaultMinor: number;
  readonly shaped: HtbClass | undefined;
  readonly unshaped: HtbClass | undefined;
  /** Undefined if the queue is not limited in bytes. */
  readonly limitBytes: number | undefined;
  readonly filters: readonly Filter[];
}

/**
 * The tree for one direction.
 * @param tbf the bucket that would limit all traffic
 * @param end which address of this direction's packets is the remote one
 */
export function planTree(tbf: Tbf, { are, subnets }: Subnets, end: SubnetEnd, mtu: number): Tree {
  const [picked, defaultMinor] =
    are === 'shaped' ? [SHAPED_MINOR, UNSHAPED_MINOR] : [UNSHAPED_MINOR, SHAPED_MINOR];
  const frameBytes = mtu + FRAME_HEADER_BYTES;
  const { rateBytes, bufferTicks, limitBytes } = tbf;
  return {
    defaultMinor,
    shaped: {
      rateBytes,
      ceilBytes: rateBytes,
      bufferTicks,
      quantumBytes: quantumOf(rateBytes, frameBytes),
    },
    unshaped: {
      rateBytes: UNLIMITED_BYTES,
      ceilBytes: UNLIMITED_BYTES,
      bufferTicks: UNLIMITED_TICKS,
      quantumBytes: quantumOf(UNLIMITED_BYTES, frameBytes),
    },
    // Unlike a token bucket filter, a class does not split large packets.
    limitBytes: Math.max(limitBytes, OFFLOADED_BYTES),
    filters: subnets.map(subnet => ({
      subnet,
      end,
      preference: PREFERENCE[subnet.ip.family],
      classid: tcHandle(1, picked),
    })),
  };
}

/** The differences between plan and kernel, human-readable; empty if there are none. */
export function findTreeDifferences(tree: Tree, found: FoundTree): string[] {
  return [
    ...differ('default class', renderMinor(tree.defaultMinor), renderMinor(found.defaultMinor)),
    ...differ('limited class', renderClass(tree.shaped), renderClass(found.shaped)),
    ...differ('queue', renderBytes(tree.limitBytes), renderBytes(found.limitBytes)),
    ...differ('unlimited class', renderClass(tree.unshaped), renderClass(found.unshaped)),
    ...findFilterDifferences(tree.filters, found.filters),
  ];
}

/**
 * Whether release 1.5 of the reference would have made the tree. That release makes one even for limits that apply to all
 * traffic, gives the limited class twice the rate as ceiling (which it cannot use), does not limit its queue, and only matches
 * destinations.
 */
export function isReferenceTree(tree: Tree, found: FoundTree): boolean {
  const { rateBytes } = tree.shaped;
  const filters = tree.filters.map(filter => ({ ...filter, end: 'destination' as const }));
  return (
    found.defaultMinor === tree.defaultMinor &&
    found.limitBytes === undefined &&
    found.shaped?.rateBytes === rateBytes &&
    found.shaped.ceilBytes === 2 * rateBytes &&
    found.unshaped?.rateBytes === UNLIMITED_BYTES &&
    findFilterDifferences(filters, found.filters).length === 0
  );
}

function quantumOf(rateBytes: number, frameBytes: number): number {
  return Math.min(Math.max(Math.floor(rateBytes / QUANTUM_PART), frameBytes), QUANTUM_MAX_BYTES);
}

function findFilterDifferences(expected: readonly SubnetFilter[], found: readonly Filter[]): string[] {
  const isFor = (wanted: SubnetFilter, filter: Filter): boolean =>
    filter.kind === 'u32' &&
    filter.preference === wanted.preference &&
    filter.protocol === protocolOf(wanted.subnet) &&
    filter.classid === wanted.classid &&
    filter.selector !== undefined &&
    sameSelector(filter.selector, matchSubnet(wanted.subnet, wanted.end));
  const missing = expected.filter(wanted => !found.some(filter => isFor(wanted, filter)));
  const foreign = found.filter(filter => !expected.some(wanted => isFor(wanted, filter)));
  return [
    ...missing.map(({ subnet, end }) => `filter for ${end} ${renderCidr(subnet)}: expected one, found none`),
    ...foreign.map(
      ({ kind, preference }) => `filter of kind "${kind}" and preference ${preference}: expected none`,
    ),
  ];
}

function differ(what: string, expected: string, found: string): string[] {
  return expected === found ? [] : [`${what}: expected ${expected}, found ${found}`];
}

function renderClass(own: HtbClass | undefined): string {
  if (own === undefined) return 'none';
  const { rateBytes, ceilBytes, bufferTicks, quantumBytes } = own;
  const ceiling = ceilBytes === rateBytes ? '' : `, ceiling ${ceilBytes * 8} bit/s`;
  return `rate ${rateBytes * 8} bit/s${ceiling}, buffer ${bufferTicks} ticks, quantum ${quantumBytes} bytes`;
}

function renderMinor(minor: number): string {
  return renderTcHandle(tcHandle(1, minor));
}

function renderBytes(limit: number | undefined): string {
  return limit === undefined ? 'no bound' : `${limit} bytes`;
}

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
interface Surroundings {
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
