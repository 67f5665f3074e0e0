// How are packets told apart when only some traffic is limited? Arithmetic only, no kernel.
import { renderCidr } from '../../src/net/cidr.ts';
import { type Filter, protocolOf, type SubnetFilter } from '../../src/netlink/rtnl/filter.ts';
import type { HtbClass } from '../../src/netlink/rtnl/tc/htb.ts';
import type { Tbf } from '../../src/netlink/rtnl/tc/tbf.ts';
import { renderTcHandle, tcHandle } from '../../src/netlink/rtnl/tc/tcmsg.ts';
import { matchSubnet, type SubnetEnd, sameSelector } from '../../src/netlink/rtnl/tc/u32.ts';
import type { Subnets } from './subnets.ts';

/** linux/if_ether.h ETH_HLEN, and a VLAN tag: what a frame has besides its payload. */
export const FRAME_HEADER_BYTES = 14 + 4;

/**
 * Minor numbers of the two classes, preferences of the filters and the rate of what is not limited: the reference's,
 * as it had them in 1.5, so that its CHECK takes our tree for its own.
 */
export const UNSHAPED_MINOR = 0x1;
export const SHAPED_MINOR = 0x30;
const PREFERENCE = { 4: 16, 6: 15 } as const;
export const UNLIMITED_BYTES = 100_000_000_000;

/** A bucket of seconds, so that the timer for refilling it never runs: an empty one stops the device with each packet. */
const UNLIMITED_TICKS = 0xffffffff;

/**
 * Bytes that a class may send before the other has its turn, as part of the rate: what the kernel would take. Beyond
 * these bounds it warns, and holds up the other class or goes from one to the other with every packet.
 */
const QUANTUM_PART = 10;
const QUANTUM_MAX_BYTES = 200_000;

/** The largest packet that a sender may hand over in one piece (linux/netdevice.h, GSO_LEGACY_MAX_SIZE), and its header. */
const OFFLOADED_BYTES = 65_536 + FRAME_HEADER_BYTES;

/** Two classes, one of them limited, and filters that pick the packets for the one that is not the default. */
export interface Tree {
  /** Minor number of the class for packets that no filter picks. */
  readonly defaultMinor: number;
  readonly shaped: HtbClass;
  readonly unshaped: HtbClass;
  /** Bytes of the limited class that may wait. */
  readonly limitBytes: number;
  readonly filters: readonly SubnetFilter[];
}

/** A tree as the kernel describes it. */
export interface FoundTree {
  readonly defaultMinor: number;
  readonly shaped: HtbClass | undefined;
  readonly unshaped: HtbClass | undefined;
  /** Undefined when nobody bounded the queue in bytes. */
  readonly limitBytes: number | undefined;
  readonly filters: readonly Filter[];
}

/**
 * The tree for one direction.
 * @param tbf what would limit everything
 * @param end where packets of this direction have the address of the other side
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
    // Unlike a token bucket filter, a class does not cut up what comes in one piece.
    limitBytes: Math.max(limitBytes, OFFLOADED_BYTES),
    filters: subnets.map(subnet => ({
      ...{ subnet, end, preference: PREFERENCE[subnet.ip.family] },
      classid: tcHandle(1, picked),
    })),
  };
}

/** What differs between plan and kernel, in words; nothing when all is as planned. */
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
 * Whether release 1.5 of the reference would have made the tree. It has one even for limits that hold for everything,
 * gives the limited class twice the rate as ceiling, which nothing lets it use, sets no bound for its queue, and looks
 * at destinations only.
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
