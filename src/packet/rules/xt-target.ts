// What does an iptables target do, as iptables-nft writes them into nf_tables?
import { type Ip, ipFromBytes } from '../../net/ip.ts';
import { readU16be, readU32 } from '../../netlink/codec/reader.ts';
import type { Effect, Passage, Translation } from './passage.ts';
import { masqueradeAs, redirectTo } from './translations.ts';

/** Targets that let the packet go on unchanged, as far as its way is concerned. */
const HARMLESS = [
  'LOG',
  'NFLOG',
  'ULOG',
  'TCPMSS',
  'TTL',
  'HL',
  'DSCP',
  'TOS',
  'CHECKSUM',
  'TRACE',
  'CLASSIFY',
  'AUDIT',
];

/** What a target decides; undefined if the next rule is asked. */
export function applyTarget(
  name: string,
  revision: number,
  info: Uint8Array,
  passage: Passage,
): Effect | undefined {
  if (HARMLESS.includes(name)) return undefined;
  if (name === 'REJECT') return { kind: 'drop' };
  if (name === 'MARK' && revision === 2) {
    const { mark } = passage.packet;
    const next = mark === undefined ? undefined : ((mark & ~readU32(info, 4)) ^ readU32(info, 0)) >>> 0;
    passage.packet = { ...passage.packet, mark: next };
    return undefined;
  }
  const range = ['DNAT', 'SNAT', 'MASQUERADE', 'REDIRECT', 'NETMAP'].includes(name)
    ? rangeOf(revision, info, passage)
    : undefined;
  if (range === undefined) return { kind: 'unknown' };
  const to = translationOf(name, range, passage);
  return to ? { kind: 'translate', to } : { kind: 'unknown' };
}

/** linux/netfilter/nf_nat.h, NF_NAT_RANGE_* */
const MAP_IPS = 1;
const PROTO_SPECIFIED = 2;

interface Range {
  readonly ip?: Ip;
  readonly port?: number;
}

/** A range of one address and at most one port; undefined if it leaves a choice. */
function rangeOf(revision: number, info: Uint8Array, { packet }: Passage): Range | undefined {
  // struct nf_nat_ipv4_multi_range_compat { unsigned rangesize; unsigned flags; __be32 min_ip, max_ip; __be16 min, max; }
  const isOld = revision === 0 && info.length < 40 && packet.src.family === 4;
  const [flagsAt, width, addressAt] = isOld ? [4, 4, 8] : [0, 16, 4];
  const flags = readU32(info, flagsAt);
  const ports = addressAt + 2 * width;
  const used = packet.src.family === 4 ? 4 : 16;
  const [low, high] = [addressAt, addressAt + width].map(at => ipFromBytes(info.slice(at, at + used)));
  const [first, last] = [readU16be(info, ports), readU16be(info, ports + 2)];
  if (flags & MAP_IPS && low?.value !== high?.value) return undefined;
  if (flags & PROTO_SPECIFIED && first !== last) return undefined;
  return {
    ...(flags & MAP_IPS && low ? { ip: low } : {}),
    ...(flags & PROTO_SPECIFIED ? { port: first } : {}),
  };
}

function translationOf(name: string, range: Range, passage: Passage): Translation | undefined {
  if (name === 'DNAT') return { side: 'dst', ...range };
  if (name === 'SNAT') return { side: 'src', ...range };
  if (name === 'MASQUERADE') return masqueradeAs(passage, range.port);
  return name === 'REDIRECT' ? redirectTo(passage, range.port) : undefined;
}
