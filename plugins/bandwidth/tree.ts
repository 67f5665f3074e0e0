// How are packets classified when only some traffic is limited? Arithmetic only, no kernel.
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
import type { Subnets } from './subnets.ts';

/** linux/if_ether.h ETH_HLEN, and a VLAN tag: the size of a frame without its payload. */
export const FRAME_HEADER_BYTES = 14 + 4;

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

/** A tree as the kernel describes it. */
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
