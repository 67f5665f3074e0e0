// What does a rule read about the packet and its connection?
import { ipToBytes } from '../../net/ip.ts';
import { etherType, type Flow, type Tuple } from '../packet.ts';
import type { Device, Passage } from './passage.ts';
import { certain, hostNumber, netNumber, uncertain, type Value } from './value.ts';

/** linux/netfilter/nf_tables.h, enum nft_meta_keys; a key that is not here is unknown. */
const META: Readonly<Record<number, (passage: Passage) => Value>> = {
  1: ({ packet }) => etherType(packet),
  3: ({ packet }) => hostNumber(packet.mark, 4),
  4: ({ iif }) => hostNumber(iif?.index ?? 0, 4),
  5: ({ oif }) => hostNumber(oif?.index ?? 0, 4),
  6: ({ iif }) => nameOf(iif),
  7: ({ oif }) => nameOf(oif),
  15: ({ packet, isBridged }) => hostNumber(isBridged ? 7 : packet.src.family === 4 ? 2 : 10, 1),
  16: ({ packet }) => hostNumber(packet.protocol, 1),
};

/** IFNAMSIZ */
const NAME_BYTES = 16;

function nameOf(device: Device | undefined): Value {
  const bytes = new Uint8Array(NAME_BYTES);
  new TextEncoder().encodeInto(device?.name ?? '', bytes);
  return certain(bytes);
}

/** Metadata of the packet. */
export function readMeta(key: number | undefined, passage: Passage): Value {
  return META[key ?? -1]?.(passage) ?? uncertain(NAME_BYTES);
}

/** Bits of the connection's state: linux/netfilter/nf_conntrack_common.h, NF_CT_STATE_BIT. */
export const STATE = { invalid: 1, established: 2, related: 4, new: 8, untracked: 64 } as const;

/** State of the packet's connection, as STATE. */
export function stateOf({ packet, flow, isTracked }: Passage): number {
  if (!isTracked) return STATE.invalid;
  if (flow.untracked) return STATE.untracked;
  return packet.isReply ? STATE.established : STATE.new;
}

/** linux/netfilter/nf_conntrack_common.h, IPS_*: has seen a reply; source and destination translated. */
export const STATUS = { seenReply: 2, snat: 16, dnat: 32 } as const;

/** linux/netfilter/nf_tables.h, enum nft_ct_keys. Undefined where the rule ends, since the packet has no connection. */
export function readCt(
  key: number | undefined,
  direction: number | undefined,
  passage: Passage,
): Value | undefined {
  const { flow, packet } = passage;
  if (key === 0) return hostNumber(stateOf(passage), 4);
  if (!passage.isTracked || flow.untracked) return undefined;
  const tuple = direction === 1 ? flow.reply : flow.original;
  const values: Readonly<Record<number, () => Value>> = {
    1: () => hostNumber(packet.isReply ? 1 : 0, 1),
    2: () => statusOf(passage),
    3: () => hostNumber(flow.mark, 4),
    7: () => hostNumber(packet.src.family === 4 ? 2 : 10, 1),
    10: () => hostNumber(packet.protocol, 1),
    13: () => hostNumber(flow.labels, 16),
    ...ends(tuple),
  };
  return values[key ?? -1]?.() ?? uncertain(NAME_BYTES);
}

function statusOf({ flow, packet }: Passage): Value {
  const bits =
    (flow.snat ? STATUS.snat : 0) | (flow.dnat ? STATUS.dnat : 0) | (packet.isReply ? STATUS.seenReply : 0);
  const known = STATUS.snat | STATUS.dnat | STATUS.seenReply;
  return { bytes: hostNumber(bits, 4).bytes, known: hostNumber(known, 4).bytes };
}

function ends({ src, dst, sport, dport }: Tuple): Readonly<Record<number, () => Value>> {
  const [from, to] = [() => certain(ipToBytes(src)), () => certain(ipToBytes(dst))];
  const ports = { 11: () => netNumber(sport, 2), 12: () => netNumber(dport, 2) };
  return { 8: from, 9: to, 19: from, 20: to, 21: from, 22: to, ...ports };
}

/** Adds labels to the flow. */
export function addLabels(flow: Flow, bytes: Uint8Array): void {
  flow.labels |= bytes.reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
}
