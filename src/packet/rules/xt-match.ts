// Does an iptables match hold, as iptables-nft writes them into nf_tables?
import { readU16, readU32 } from '../../netlink/codec/reader.ts';
import { STATUS, stateOf } from './loads.ts';
import type { Passage } from './passage.ts';
import { not, type Truth } from './value.ts';

type Test = (info: Uint8Array, passage: Passage) => Truth;

/** Matches by name and revision; all others are unknown. */
const MATCHES: Readonly<Record<string, Test>> = {
  'comment 0': () => 'yes',
  'addrtype 1': addressType,
  'conntrack 3': conntrack,
  'multiport 1': multiport,
  'mark 1': (info, { packet }) => marked(info, packet.mark),
  'connmark 1': (info, { flow }) => marked(info, flow.mark),
  'tcp 0': (info, passage) => transport(info, passage, 11),
  'udp 0': (info, passage) => transport(info, passage, 8),
};

/** Whether a match holds. */
export function testMatch(name: string, revision: number, info: Uint8Array, passage: Passage): Truth {
  return MATCHES[`${name} ${revision}`]?.(info, passage) ?? 'maybe';
}

/** linux/netfilter/xt_addrtype.h: struct xt_addrtype_info_v1 { __u16 source, dest; __u32 flags; } */
function addressType(info: Uint8Array, { packet, addressType: typeOf }: Passage): Truth {
  const flags = readU32(info, 4);
  // Limited to the addresses of one interface.
  if (flags & 0b1100) return 'maybe';
  const side = (wanted: number, type: number | undefined, isInverted: boolean): Truth => {
    if (wanted === 0) return 'yes';
    if (type === undefined) return 'maybe';
    return ((wanted & (1 << type)) !== 0) !== isInverted ? 'yes' : 'no';
  };
  return all([
    side(readU16(info, 0), typeOf(packet.src), (flags & 1) !== 0),
    side(readU16(info, 2), typeOf(packet.dst), (flags & 2) !== 0),
  ]);
}

/** linux/netfilter/xt_conntrack.h: struct xt_conntrack_mtinfo3, from `match_flags`. */
const CONNTRACK = { flags: 146, inverted: 148, states: 150, statuses: 152 } as const;
const [BY_STATE, BY_STATUS, BY_ALIAS] = [0x1, 0x40, 0x2000];

function conntrack(info: Uint8Array, passage: Passage): Truth {
  const flags = readU16(info, CONNTRACK.flags);
  const inverted = readU16(info, CONNTRACK.inverted);
  const { flow, isTracked, packet } = passage;
  const tests: Truth[] = [];
  if (flags & BY_STATE) {
    // XT_CONNTRACK_STATE_*: the same bits as nft's, but for "untracked", and two for translations.
    const state = stateOf(passage);
    const translated = isTracked && !flow.untracked ? (flow.snat ? 1 << 6 : 0) | (flow.dnat ? 1 << 7 : 0) : 0;
    const bits = (state === 64 ? 1 << 8 : state) | translated;
    tests.push(
      ((readU16(info, CONNTRACK.states) & bits) !== 0) !== ((inverted & BY_STATE) !== 0) ? 'yes' : 'no',
    );
  }
  if (flags & BY_STATUS) {
    const wanted = readU16(info, CONNTRACK.statuses);
    const bits =
      (flow.snat ? STATUS.snat : 0) | (flow.dnat ? STATUS.dnat : 0) | (packet.isReply ? STATUS.seenReply : 0);
    const isKnown = (wanted & ~(STATUS.snat | STATUS.dnat | STATUS.seenReply)) === 0;
    const holds: Truth = wanted & bits ? 'yes' : isKnown ? 'no' : 'maybe';
    tests.push(inverted & BY_STATUS ? not(holds) : holds);
  }
  if (flags & ~(BY_STATE | BY_STATUS | BY_ALIAS)) tests.push('maybe');
  return all(tests);
}

/** linux/netfilter/xt_multiport.h: struct xt_multiport_v1 { __u8 flags, count; __u16 ports[15]; __u8 pflags[15], invert; } */
function multiport(info: Uint8Array, { packet }: Passage): Truth {
  const ranges: (readonly [number, number])[] = [];
  for (let i = 0; i < (info[1] ?? 0); i++) {
    const from = readU16(info, 2 + 2 * i);
    const isRange = info[32 + i] === 1;
    ranges.push([from, isRange ? readU16(info, 4 + 2 * i) : from]);
    if (isRange) i++;
  }
  const has = (port: number | undefined): Truth =>
    port === undefined ? 'maybe' : ranges.some(([from, to]) => port >= from && port <= to) ? 'yes' : 'no';
  const sides = [[packet.sport], [packet.dport], [packet.sport, packet.dport]][info[0] ?? 0] ?? [];
  const holds = sides.map(has);
  const any: Truth = holds.includes('yes') ? 'yes' : holds.includes('maybe') ? 'maybe' : 'no';
  return info[47] ? not(any) : any;
}

/** linux/netfilter/xt_mark.h: struct xt_mark_mtinfo1 { __u32 mark, mask; __u8 invert; } */
function marked(info: Uint8Array, mark: number | undefined): Truth {
  if (mark === undefined) return 'maybe';
  const holds = (mark & readU32(info, 4)) >>> 0 === readU32(info, 0);
  return holds !== (info[8] !== 0) ? 'yes' : 'no';
}

/** linux/netfilter/xt_tcpudp.h: __u16 spts[2], dpts[2]; for TCP also option, mask and value of flags; then inversions. */
function transport(info: Uint8Array, { packet }: Passage, inversionsAt: number): Truth {
  const inversions = info[inversionsAt] ?? 0;
  const within = (port: number | undefined, at: number, bit: number): Truth => {
    const [from, to] = [readU16(info, at), readU16(info, at + 2)];
    if (from === 0 && to === 0xffff) return inversions & bit ? 'no' : 'yes';
    if (port === undefined) return 'maybe';
    return (port >= from && port <= to) !== ((inversions & bit) !== 0) ? 'yes' : 'no';
  };
  const rest: Truth = inversionsAt === 11 && (info[8] || info[9]) ? 'maybe' : 'yes';
  return all([within(packet.sport, 0, 1), within(packet.dport, 4, 2), rest]);
}

function all(tests: readonly Truth[]): Truth {
  return tests.includes('no') ? 'no' : tests.includes('maybe') ? 'maybe' : 'yes';
}
