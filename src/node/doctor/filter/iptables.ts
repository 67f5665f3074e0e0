// Does a match of iptables match, and what does a target do?
import { type Byte, markOf, type Packet } from './packet.ts';

/** Whether a test holds; undefined if that cannot be judged. */
export type Holds = boolean | undefined;

/** Judges a match by the structure that iptables and the kernel exchange. */
export function iptablesMatch(name: string, info: Uint8Array, packet: Packet): Holds {
  const view = new DataView(info.buffer, info.byteOffset, info.byteLength);
  try {
    return MATCHES[name]?.(view, packet);
  } catch {
    // An earlier revision with a shorter structure.
    return undefined;
  }
}

const LITTLE = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

/** linux/netfilter/xt_conntrack.h: struct xt_conntrack_mtinfo3 */
const CONNTRACK = { matchFlags: 146, invertFlags: 148, stateMask: 150 } as const;
const XT_CONNTRACK_STATE = 1;
/** The same file: XT_CONNTRACK_STATE_BIT(), XT_CONNTRACK_STATE_SNAT and XT_CONNTRACK_STATE_DNAT */
const [STATE_INVALID, STATE_ESTABLISHED, STATE_NEW, STATE_SNAT, STATE_DNAT] = [1, 2, 8, 64, 128];

/** linux/rtnetlink.h, as bits: RTN_UNICAST, RTN_LOCAL */
const [UNICAST, LOCAL] = [2, 4];
/** linux/netfilter/xt_connlabel.h: XT_CONNLABEL_OP_INVERT; the other option, to set the label, may fail. */
const CONNLABEL_INVERT = 1;
/** linux/netfilter/xt_addrtype.h */
const [INVERT_SOURCE, INVERT_DESTINATION] = [1, 2];

const MATCHES: Readonly<Record<string, (info: DataView, packet: Packet) => Holds>> = {
  comment: () => true,
  conntrack(info, packet) {
    if (info.getUint16(CONNTRACK.matchFlags, LITTLE) !== XT_CONNTRACK_STATE) return undefined;
    const states = info.getUint16(CONNTRACK.stateMask, LITTLE);
    const isInverted = (info.getUint16(CONNTRACK.invertFlags, LITTLE) & XT_CONNTRACK_STATE) !== 0;
    const isKnown = packet.isReply || packet.isEstablished;
    const known = (isKnown ? STATE_ESTABLISHED : STATE_NEW) | (packet.isTranslated ? STATE_DNAT : 0);
    const own = packet.isTracked === false ? STATE_INVALID : known;
    // Whether the source is translated is decided after the first packet was forwarded.
    if (isKnown && (states & own) === 0 && (states & STATE_SNAT) !== 0) return undefined;
    return ((states & own) !== 0) !== isInverted;
  },
  /** struct xt_addrtype_info_v1 */
  addrtype(info, { isLocal, isFromLocal = false }) {
    const [source, destination] = [info.getUint16(0, LITTLE), info.getUint16(2, LITTLE)];
    const flags = info.getUint32(4, LITTLE);
    if (flags & ~(INVERT_SOURCE | INVERT_DESTINATION)) return undefined;
    const fits = (mask: number, type: number, inverted: number) =>
      mask === 0 || ((mask & type) !== 0) !== ((flags & inverted) !== 0);
    return (
      fits(source, isFromLocal ? LOCAL : UNICAST, INVERT_SOURCE) &&
      fits(destination, isLocal ? LOCAL : UNICAST, INVERT_DESTINATION)
    );
  },
  /** linux/netfilter/xt_connlabel.h, struct xt_connlabel_mtinfo: u16 bit, u16 options */
  connlabel(info, { labels }) {
    const [bit, options] = [info.getUint16(0, LITTLE), info.getUint16(2, LITTLE)];
    const byte = labels?.[bit >> 3];
    if (byte === undefined || options & ~CONNLABEL_INVERT) return undefined;
    return ((byte & (1 << (bit & 7))) !== 0) !== (options === CONNLABEL_INVERT);
  },
  /** linux/netfilter/xt_mark.h, struct xt_mark_mtinfo1: the mark, its mask, whether that is inverted. */
  mark(info, packet) {
    const bytes = markOf(packet).map((own, i) => {
      const [wanted, mask] = [info.getUint8(i), info.getUint8(4 + i)];
      if (mask === 0) return wanted === 0;
      return own === undefined ? undefined : (own & mask) === wanted;
    });
    const isInverted = info.getUint8(8) === 1;
    if (bytes.includes(false)) return isInverted;
    return bytes.includes(undefined) ? undefined : !isInverted;
  },
  /** linux/netfilter/xt_multiport.h, struct xt_multiport_v1: up to fifteen ports, of which a range takes two. */
  multiport(info, { sourcePort, port }) {
    const [which, count] = [info.getUint8(0), info.getUint8(1)];
    const values = Array.from({ length: count }, (_, i) => info.getUint16(2 + 2 * i, LITTLE));
    const beginsRange = (i: number) => info.getUint8(32 + i) === 1;
    const isIn = (one: number) =>
      values.some((from, i) => {
        if (i > 0 && beginsRange(i - 1)) return false;
        return one >= from && one <= (beginsRange(i) ? (values[i + 1] ?? from) : from);
      });
    // XT_MULTIPORT_SOURCE, XT_MULTIPORT_DESTINATION and XT_MULTIPORT_EITHER
    const holds = (which !== 1 && isIn(sourcePort)) || (which !== 0 && isIn(port));
    return holds !== (info.getUint8(47) === 1);
  },
  tcp: ports,
  udp: ports,
};

/** linux/netfilter/xt_connmark.h: XT_CONNMARK_RESTORE */
const RESTORE = 2;

/** The mark behind a target. */
export function markBehind(name: string, info: Uint8Array, packet: Packet): readonly Byte[] {
  const mark = markOf(packet);
  // The same file, struct xt_connmark_tginfo1: a mark and two masks, then the mode. What others saved is not known.
  if (name === 'CONNMARK') return info[12] === RESTORE ? mark.map(() => undefined) : mark;
  if (name !== 'MARK') return mark;
  // linux/netfilter/xt_mark.h, struct xt_mark_tginfo2: a mark and a mask.
  return mark.map((byte, i) => {
    const [value = 0, mask = 0] = [info[i], info[4 + i]];
    if (mask === 0xff) return value;
    return byte === undefined ? undefined : (byte & ~mask) ^ value;
  });
}

/** Begin of struct xt_tcp and struct xt_udp: source ports, destination ports. The protocol is matched separately. */
function ports(info: DataView, { sourcePort, port }: Packet): Holds {
  // What follows are flags of TCP and signs of inversion, at different places.
  const isPlain = Array.from({ length: info.byteLength - 8 }, (_, i) => info.getUint8(8 + i)).every(
    b => b === 0,
  );
  if (!isPlain) return undefined;
  return [sourcePort, port].every((one, i) => {
    const [from, to] = [info.getUint16(4 * i, LITTLE), info.getUint16(4 * i + 2, LITTLE)];
    return one >= from && one <= to;
  });
}

/** linux/netfilter/nf_nat.h: struct nf_nat_range2 begins with flags, the lowest and the highest address, the lowest port */
const RANGE = { flags: 0, lowest: 4, port: 36 } as const;
/** The same file: struct nf_nat_ipv4_multi_range_compat, a count, then the same with addresses of four bytes. */
const OLD_RANGE = { flags: 4, lowest: 8, port: 16 } as const;
const [NF_NAT_RANGE_MAP_IPS, NF_NAT_RANGE_PROTO_SPECIFIED] = [1, 2];

/** The address and the port to which a DNAT or SNAT target leads; undefined for what stays, or cannot be told. */
export function translationOf(
  info: Uint8Array,
  revision: number,
  family: 4 | 6,
): { readonly address: Uint8Array | undefined; readonly port: number | undefined } {
  const at = revision === 0 ? OLD_RANGE : RANGE;
  const view = new DataView(info.buffer, info.byteOffset, info.byteLength);
  if (info.byteLength < at.port + 2) return { address: undefined, port: undefined };
  const flags = view.getUint32(at.flags, LITTLE);
  const hasAddress = (flags & NF_NAT_RANGE_MAP_IPS) !== 0;
  return {
    address: hasAddress ? info.slice(at.lowest, at.lowest + (family === 4 ? 4 : 16)) : undefined,
    port: (flags & NF_NAT_RANGE_PROTO_SPECIFIED) !== 0 ? view.getUint16(at.port) : undefined,
  };
}
