// Does a rule match a packet, and what does it do to it?

import { attempt } from '../../../cni/errors.ts';
import { ipFromBytes, renderIp } from '../../../net/ip.ts';
import type { RawElement } from '../../../netlink/nft/element.ts';
import { type Expression, META, type Verdict } from '../../../netlink/nft/expr.ts';
import type { Rule } from '../../../netlink/nft/table.ts';
import type { FilterTable } from '../../../netlink/tables.ts';
import {
  type Byte,
  CT,
  connectionBytes,
  eitherOf,
  markOf,
  metaBytes,
  type Packet,
  payloadBytes,
  routeBytes,
  unknown,
} from './packet.ts';

/** Whether a test holds; undefined if that cannot be judged. */
type Holds = boolean | undefined;

/** Judges a match by the structure that iptables and the kernel exchange. */
function iptablesMatch(name: string, info: Uint8Array, packet: Packet): Holds {
  const view = new DataView(info.buffer, info.byteOffset, info.byteLength);
  // An earlier revision has a shorter structure.
  return attempt(() => MATCHES[name]?.(view, packet));
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

function markBehind(name: string, info: Uint8Array, packet: Packet): readonly Byte[] {
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
function translationOf(
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

export type Action =
  | { readonly kind: 'verdict'; readonly verdict: Verdict }
  | { readonly kind: 'drop' }
  /** To this address and port; undefined if it cannot be told, or is that of the host. */
  | {
      readonly kind: 'translate';
      readonly to: string | undefined;
      readonly port?: number | undefined;
      /** Labels that the rule gave to the connection before. */
      readonly labels?: readonly Byte[] | undefined;
    }
  /** The source becomes this address; undefined if it is that of the device. */
  | { readonly kind: 'source'; readonly to: string | undefined }
  /** It cannot be judged. */
  | { readonly kind: 'unknown' };

interface Judged {
  readonly matches: Holds;
  /** Undefined if evaluation goes on with the next rule. */
  readonly action: Action | undefined;
}

interface State {
  packet: Packet;
  readonly contents: FilterTable['contents'];
  readonly registers: Registers;
  labels?: readonly Byte[];
}

/** linux/netfilter/nf_tables.h: NFT_REG_VERDICT, NFT_LOOKUP_F_INV, NFT_CMP_*, NFT_RANGE_NEQ, NFT_BITWISE_BOOL */
const VERDICT_REGISTER = 0;
/** linux/netfilter/nf_conntrack_common.h: NF_CT_LABELS_MAX_SIZE */
const LABEL_BYTES = 16;
const MARK_BYTES = 4;
const INVERTED = 1;
const COMPARISONS: readonly ((order: number) => boolean)[] = [
  order => order === 0,
  order => order !== 0,
  order => order < 0,
  order => order <= 0,
  order => order > 0,
  order => order >= 0,
];

/**
 * Evaluates the expressions until one does not match.
 * @returns the judgement, with the packet behind the rule: also one that does not match may have set its mark
 */
export function judgeRule(rule: Rule, packet: Packet, contents: FilterTable['contents']) {
  const state: State = { packet, contents, registers: new Registers() };
  let matches: Holds = true;
  let action: Action | undefined;
  for (const each of rule.expressions) {
    const before = state.packet;
    const step = judgeExpression(each as Expression, state);
    if (matches === undefined && state.packet !== before)
      state.packet = { ...before, mark: eitherOf(markOf(before), markOf(state.packet)) };
    if (step.matches === false) return { matches: false, action: undefined, behind: state.packet };
    if (step.matches === undefined) matches = undefined;
    action = step.action ?? action;
  }
  if (action?.kind === 'translate') action = { ...action, labels: state.labels };
  return { matches, action, behind: state.packet };
}

const GOES_ON: Judged = { matches: true, action: undefined };
const UNKNOWN: Judged = { matches: undefined, action: { kind: 'unknown' } };

function judgeExpression(one: Expression, state: State): Judged {
  // Kinds that the decoder does not know have only a name.
  if (one.data === undefined || one.data instanceof Uint8Array) return judgeByName(one.name, state);
  const judge = JUDGES[one.name] as ((data: typeof one.data, state: State) => Judged) | undefined;
  return judge?.(one.data, state) ?? GOES_ON;
}

function load(state: State, register: number | undefined, bytes: readonly Byte[]): Judged {
  state.registers.load(register ?? 1, bytes);
  return GOES_ON;
}

const test = (matches: Holds): Judged => ({ matches, action: undefined });
const act = (action: Action): Judged => ({ matches: true, action });

type DataOf<N extends Expression['name']> = NonNullable<Extract<Expression, { name: N }>['data']>;

/** By kind of expression; the others change nothing that counts here. */
const JUDGES: { readonly [N in Expression['name']]?: (data: DataOf<N>, state: State) => Judged } = {
  meta({ sreg, dreg, key = 0 }, state) {
    const { packet, registers } = state;
    if (sreg === undefined) return load(state, dreg, metaBytes(packet, key));
    if (key === META.mark) state.packet = { ...packet, mark: registers.read(sreg, MARK_BYTES) };
    return GOES_ON;
  },
  ct({ sreg, dreg, key = 0 }, state) {
    if (sreg !== undefined) {
      if (key === CT.labels) state.labels = state.registers.read(sreg, LABEL_BYTES);
      return GOES_ON;
    }
    // There is nothing to load, and the rule ends.
    if (state.packet.isTracked === false && key !== CT.state) return test(false);
    return load(state, dreg, connectionBytes(state.packet, key));
  },
  fib: ({ dreg, flags = 0, result = 0 }, state) => load(state, dreg, routeBytes(state.packet, flags, result)),
  // Without a register it writes to the packet.
  payload: ({ dreg, base = 0, offset = 0, length = 0 }, state) =>
    dreg === undefined ? GOES_ON : load(state, dreg, payloadBytes(state.packet, base, offset, length)),
  bitwise: (data, state) => load(state, data.dreg, masked(data, state.registers)),
  cmp({ sreg = 1, data, op = 0 }, { registers }) {
    const value = data?.value ?? new Uint8Array();
    const bytes = registers.read(sreg, value.length);
    if (op <= 1) return test(op === 0 ? equals(bytes, value) : not(equals(bytes, value)));
    const order = compare(bytes, value);
    return test(order === undefined ? undefined : COMPARISONS[op]?.(order));
  },
  range({ from, to, sreg = 1, op = 0 }, { registers }) {
    if (!from?.value || !to?.value) return test(undefined);
    const bytes = registers.read(sreg, from.value.length);
    const [low, high] = [compare(bytes, from.value), compare(bytes, to.value)];
    const inside = low === undefined || high === undefined ? undefined : low >= 0 && high <= 0;
    return test(op === 0 ? inside : not(inside));
  },
  lookup: judgeLookup,
  immediate({ dreg, data: { verdict, value = new Uint8Array() } = {} }, state) {
    if (verdict === undefined) return load(state, dreg, [...value]);
    return act({ kind: 'verdict', verdict: { ...verdict, code: verdict.code ?? 0 } });
  },
  nat({ type = 0, addressRegister, portRegister }, { packet, registers }) {
    const bytes =
      addressRegister === undefined ? [] : registers.read(addressRegister, packet.family === 4 ? 4 : 16);
    const to = addressOf(bytes);
    if (type === 0) return act({ kind: 'source', to });
    return act({ kind: 'translate', to, port: portIn(registers, portRegister) });
  },
  redir: ({ portRegister }, { registers }) =>
    act({ kind: 'translate', to: undefined, port: portIn(registers, portRegister) }),
  masq: () => act({ kind: 'source', to: undefined }),
  match: ({ name = '', info = new Uint8Array() }, { packet }) => test(iptablesMatch(name, info, packet)),
  target(data, state) {
    const { name = '', info = new Uint8Array() } = data;
    const { packet } = state;
    if (/MARK$/.test(name)) state.packet = { ...packet, mark: markBehind(name, info, packet) };
    return judgeTarget(data, packet);
  },
};

/** Expressions and targets that only take note, or change the packet. */
const HARMLESS: readonly string[] = [
  ...['counter', 'log', 'last', 'notrack', 'objref', 'dup', 'flow_offload', 'exthdr', 'synproxy'],
  ...['LOG', 'NFLOG', 'MARK', 'CONNMARK', 'TCPMSS', 'CHECKSUM', 'CLASSIFY', 'CT', 'NOTRACK'],
];

function judgeByName(name: string, { registers }: State): Judged {
  if (HARMLESS.includes(name)) return GOES_ON;
  if (name === 'reject') return act({ kind: 'drop' });
  registers.forget();
  // Those that take the packet away decide about it; the others are conditions, such as a rate.
  return ['queue', 'tproxy', 'fwd'].includes(name) ? UNKNOWN : test(undefined);
}

function judgeTarget(
  { name = '', revision = 0, info = new Uint8Array() }: DataOf<'target'>,
  packet: Packet,
): Judged {
  if (name === 'REJECT') return act({ kind: 'drop' });
  if (name === 'MASQUERADE') return act({ kind: 'source', to: undefined });
  if (name === 'REDIRECT') {
    // Of IPv6, too, it has revision 0, but with the later structure.
    const { port } = translationOf(info, packet.family === 4 ? 0 : 1, packet.family);
    return act({ kind: 'translate', to: undefined, port });
  }
  if (name !== 'DNAT' && name !== 'SNAT') return HARMLESS.includes(name) ? GOES_ON : UNKNOWN;
  const { address, port } = translationOf(info, revision, packet.family);
  const to = address && addressOf([...address]);
  return act(name === 'SNAT' ? { kind: 'source', to } : { kind: 'translate', to, port });
}

function judgeLookup(
  { set = '', sreg = 1, dreg, flags = 0 }: DataOf<'lookup'>,
  { contents, registers }: State,
): Judged {
  const { holds, element } = lookUp(contents(set), length => registers.read(sreg, length));
  if (dreg === undefined) return test(flags & INVERTED ? not(holds) : holds);
  if (dreg !== VERDICT_REGISTER) {
    registers.load(dreg, element?.value ? [...element.value] : unknown(16));
    return test(holds);
  }
  if (holds === undefined) return UNKNOWN;
  const { verdict } = element ?? {};
  return { matches: holds, action: verdict && { kind: 'verdict', verdict } };
}

/** dreg = (sreg & mask) ^ xor; a masked byte is known. */
function masked(
  { sreg = 1, length = 0, mask, xor, op = 0 }: DataOf<'bitwise'>,
  registers: Registers,
): Byte[] {
  const bytes = registers.read(sreg, length);
  if (op !== 0) return bytes.map(() => undefined);
  return bytes.map((byte, i) => {
    const [keep = 0, flip = 0] = [mask?.value?.[i], xor?.value?.[i]];
    if (keep === 0) return flip;
    return byte === undefined ? undefined : (byte & keep) ^ flip;
  });
}

function addressOf(bytes: readonly Byte[]): string | undefined {
  const known = bytes.filter(byte => byte !== undefined);
  return known.length > 0 && known.length === bytes.length
    ? renderIp(ipFromBytes(Uint8Array.from(known)))
    : undefined;
}

function portIn(registers: Registers, register: number | undefined): number | undefined {
  const [high, low] = register === undefined ? [] : registers.read(register, 2);
  return high === undefined || low === undefined ? undefined : high * 256 + low;
}

/** The outcome of a lookup; `element` is the one found if that is certain. */
interface Found {
  readonly holds: Holds;
  readonly element?: RawElement;
}

const UNSURE: Found = { holds: undefined };

/** What all lookups in one set share. Many rules ask the same set for the same key, and a set may have tens of thousands of elements. */
interface Index {
  readonly isComplex: boolean;
  readonly isOfIntervals: boolean;
  /** By key: of intervals, where they begin or end; of the others, by their text. */
  readonly sorted: readonly RawElement[];
  readonly byKey: ReadonlyMap<string, RawElement>;
  readonly answers: Map<string, Found>;
}

const indexes = new WeakMap<readonly RawElement[], Index>();

/** @param read the register, with the length of a key */
export function lookUp(
  elements: readonly RawElement[] | undefined,
  read: (length: number) => readonly Byte[],
): Found {
  if (elements === undefined) return UNSURE;
  const [first] = elements;
  if (first === undefined) return { holds: false };
  const { isComplex, isOfIntervals, sorted, byKey, answers } = indexOf(elements);
  if (isComplex) return UNSURE;
  const key = read(first.key.length);
  const text = key.join();
  const found =
    answers.get(text) ?? (isOfIntervals ? findInterval(sorted, key) : findEqual(elements, byKey, key));
  answers.set(text, found);
  return found;
}

function indexOf(elements: readonly RawElement[]): Index {
  let index = indexes.get(elements);
  if (index === undefined) {
    const isComplex = elements.some(one => one.isComplex);
    const isOfIntervals = elements.some(one => one.endsInterval);
    // Where one interval ends and the next begins at the same key, the later element counts, as in a stable order.
    const sorted = isOfIntervals ? elements.toSorted((a, b) => Buffer.compare(a.key, b.key)) : [];
    const byKey = new Map(isOfIntervals ? [] : elements.toReversed().map(one => [one.key.join(), one]));
    index = { isComplex, isOfIntervals, sorted, byKey, answers: new Map() };
    indexes.set(elements, index);
  }
  return index;
}

function findEqual(
  elements: readonly RawElement[],
  byKey: ReadonlyMap<string, RawElement>,
  key: readonly Byte[],
): Found {
  const element = byKey.get(key.join());
  if (element) return { holds: true, element };
  const isPossible = key.includes(undefined) && elements.some(one => equals(key, one.key) === undefined);
  return isPossible ? UNSURE : { holds: false };
}

/** Each interval begins with an element, and ends before one that is marked so. */
function findInterval(sorted: readonly RawElement[], key: readonly Byte[]): Found {
  if (key.includes(undefined)) return UNSURE;
  let [from, to] = [0, sorted.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if ((compare(key, sorted[middle]?.key ?? new Uint8Array()) ?? -1) < 0) to = middle;
    else from = middle + 1;
  }
  const last = sorted[from - 1];
  return last === undefined || last.endsInterval ? { holds: false } : { holds: true, element: last };
}

/** linux/netfilter/nf_tables.h: four registers of sixteen bytes, or the same in quarters from number 8 on. */
const [REGISTER_BYTES, QUARTER_BYTES, FIRST_QUARTER] = [16, 4, 8];
const TOTAL_BYTES = 64;

class Registers {
  #bytes: Byte[] = [];

  load(register: number, bytes: readonly Byte[]): void {
    const at = offsetOf(register);
    // The kernel fills whole quarters.
    const filled = Math.ceil(bytes.length / QUARTER_BYTES) * QUARTER_BYTES;
    for (let i = 0; i < filled; i++) this.#bytes[at + i] = i < bytes.length ? bytes[i] : 0;
  }

  read(register: number, length: number): Byte[] {
    const at = offsetOf(register);
    return Array.from({ length }, (_, i) => this.#bytes[at + i]);
  }

  /** After an expression that may have written anything. */
  forget(): void {
    this.#bytes = Array.from({ length: TOTAL_BYTES }, () => undefined);
  }
}

function offsetOf(register: number): number {
  if (register >= FIRST_QUARTER) return (register - FIRST_QUARTER) * QUARTER_BYTES;
  return (register - 1) * REGISTER_BYTES;
}

/** Whether the bytes are the value; one that differs is enough to tell that they are not. */
function equals(bytes: readonly Byte[], value: Uint8Array): Holds {
  const known = [...value].map((byte, i) => (bytes[i] === undefined ? undefined : bytes[i] === byte));
  if (known.includes(false)) return false;
  return known.includes(undefined) ? undefined : true;
}

/** Negative, zero or positive, as numbers in network byte order; undefined if that cannot be told. */
function compare(bytes: readonly Byte[], value: Uint8Array): number | undefined {
  for (const [i, byte] of value.entries()) {
    const own = bytes[i];
    if (own === undefined) return undefined;
    if (own !== byte) return own - byte;
  }
  return 0;
}

function not(holds: Holds): Holds {
  return holds === undefined ? undefined : !holds;
}
