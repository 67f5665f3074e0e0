// How are tables, chains, sets and rules of nf_tables created, listed and deleted?
//
// Their attributes are numbered in linux/netfilter/nf_tables.h, enum nft_<kind>_attributes.

import { parseMac, renderMac } from '../../net/interface.ts';
import { type Ip, ipFromBytes, ipToBytes, renderIp } from '../../net/ip.ts';
import {
  align4,
  attrs,
  bytes,
  type Field,
  listOf,
  NLM_F_APPEND,
  NLM_F_CREATE,
  type Request,
  s32be,
  str,
  u32be,
  u64be,
} from '../codec.ts';
import type { NetlinkSocket } from '../socket.ts';
import { type Expression, expression, NF_DROP } from './expr.ts';
import { nftMessages, renderTable, SET_ID, type Table } from './message.ts';

/** Maximum size of user data in the kernel (linux/netfilter/nf_tables.h, NFT_USERDATA_MAXLEN). */
const USERDATA_MAX_BYTES = 256;
/** nft accepts comments up to this length in characters; it could not load a longer one from its own listing. */
export const COMMENT_MAX_LENGTH = 127;

/** libnftnl/udata.h: the comment has type 0 in a table, chain, rule or element, and type 7 in a set. */
const COMMENT = 0;
/** libnftnl/udata.h, NFTNL_UDATA_SET_KEYBYTEORDER, NFTNL_UDATA_SET_DATABYTEORDER */
const SET_KEYBYTEORDER = 0;
const SET_DATABYTEORDER = 1;
/** nftables, enum byteorder */
const BYTEORDER = { mixed: 0, host: 1, big: 2 } as const;

/** User data that contains only a comment, as nft writes it. */
export const comment: Field<string> = {
  encode(writer, text) {
    const bytes = entryOf(COMMENT, new TextEncoder().encode(`${text}\0`));
    if (bytes.length > USERDATA_MAX_BYTES) {
      throw new Error(
        `Cannot encode comment "${text}": the kernel keeps ${USERDATA_MAX_BYTES - 3} bytes at most`,
      );
    }
    writer.bytes(bytes);
  },
  decode(bytes) {
    for (let at = 0; at + 2 <= bytes.length; ) {
      const end = at + 2 + (bytes[at + 1] ?? 0);
      if (bytes[at] === COMMENT) return str.decode(bytes.subarray(at + 2, end), {});
      at = end;
    }
    return '';
  },
};

/** One entry of user data: a byte for its type, a byte for its length, then the value. */
function entryOf(type: number, value: Uint8Array): Uint8Array {
  return new Uint8Array([type, value.length, ...value]);
}

/** Byte order in which nft should print the keys of a set, and the data of a map. */
type ByteOrder = keyof typeof BYTEORDER;

/** User data of a set: without the byte order, nft would print numbers and names of single-field keys reversed. */
export function setUserdata(key: ByteOrder, data?: ByteOrder): Uint8Array {
  const entry = (type: number, order: ByteOrder) =>
    entryOf(type, new Uint8Array(new Uint32Array([BYTEORDER[order]]).buffer));
  const [ofKey, ofData] = [entry(SET_KEYBYTEORDER, key), data && entry(SET_DATABYTEORDER, data)];
  return Uint8Array.of(...ofKey, ...(ofData ?? []));
}

/** A single value: an IP address, a number, or a text (a name, a hardware address), depending on its type. */
export type FieldValue = Ip | number | string;

interface DataType {
  /** nftables, enum datatypes: nft needs it to print the set. */
  readonly id: number;
  readonly bytes: number;
  readonly order: ByteOrder;
}

const TYPES = {
  nf_proto: { id: 2, bytes: 1, order: 'host' },
  ipv4_addr: { id: 7, bytes: 4, order: 'big' },
  ipv6_addr: { id: 8, bytes: 16, order: 'big' },
  ether_addr: { id: 9, bytes: 6, order: 'big' },
  inet_proto: { id: 12, bytes: 1, order: 'big' },
  inet_service: { id: 13, bytes: 2, order: 'big' },
  mark: { id: 19, bytes: 4, order: 'host' },
  ifname: { id: 41, bytes: 16, order: 'host' },
} as const satisfies Record<string, DataType>;

type TypeName = keyof typeof TYPES;

/** One type, or several that form a concatenation (`inet_proto . inet_service`). */
export type TypeNames = readonly [TypeName, ...TypeName[]];

/** nftables, TYPE_BITS: a concatenation's number consists of those of its parts, six bits each. */
const TYPE_BITS = 6;

/** The number of a type or concatenation in `NFTA_SET_KEY_TYPE` and `NFTA_SET_DATA_TYPE`. */
export function typeId(names: TypeNames): number {
  return names.reduce((id, name) => (id << TYPE_BITS) | TYPES[name].id, 0);
}

/** The types that such a number represents; undefined when one of them is unknown. */
export function typeNamesOf(id: number): TypeNames | undefined {
  const names: TypeName[] = [];
  for (let rest = id; rest > 0; rest >>>= TYPE_BITS) {
    const name = TYPE_NAMES.find(one => TYPES[one].id === rest % (1 << TYPE_BITS));
    if (name === undefined) return undefined;
    names.unshift(name);
  }
  const [first, ...more] = names;
  return first && [first, ...more];
}

const TYPE_NAMES = Object.keys(TYPES) as TypeName[];

/** Size in bytes; each part of a concatenation is padded to whole registers. */
export function typeLength(names: TypeNames): number {
  if (names.length === 1) return TYPES[names[0]].bytes;
  return names.reduce((sum, name) => sum + align4(TYPES[name].bytes), 0);
}

/** Byte order that nft is told for the type; a concatenation has none of its own. */
export function typeOrder(names: TypeNames): ByteOrder {
  return names.length === 1 ? TYPES[names[0]].order : 'mixed';
}

/**
 * Encodes a key or value.
 * @throws Error when a value does not fit its type
 */
export function encodeFields(names: TypeNames, values: readonly FieldValue[]): Uint8Array {
  if (values.length !== names.length) {
    throw new Error(`Cannot encode ${names.join(' . ')}: found ${values.length} of ${names.length} values`);
  }
  const all = new Uint8Array(typeLength(names));
  let at = 0;
  for (const [i, name] of names.entries()) {
    all.set(encodeField(name, values[i] ?? 0), at);
    at += align4(TYPES[name].bytes);
  }
  return all;
}

export function decodeFields(names: TypeNames, bytes: Uint8Array): FieldValue[] {
  let at = 0;
  return names.map(name => {
    const own = bytes.subarray(at, at + TYPES[name].bytes);
    at += align4(TYPES[name].bytes);
    return decodeField(name, own);
  });
}

/** Renders `tcp . 8080` without nft's symbolic names: `6 . 8080`. */
export function renderFields(values: readonly FieldValue[]): string {
  return values.map(value => (typeof value === 'object' ? renderIp(value) : String(value))).join(' . ');
}

function encodeField(name: TypeName, value: FieldValue): Uint8Array {
  const { bytes, order } = TYPES[name];
  const encoded =
    typeof value === 'object'
      ? ipToBytes(value)
      : typeof value === 'number'
        ? numberToBytes(value, bytes, order)
        : name === 'ether_addr'
          ? parseMac(value)
          : new TextEncoder().encode(value);
  const fits = name === 'ifname' ? encoded.length < bytes : encoded.length === bytes;
  if (!fits) throw new Error(`Cannot encode ${renderFields([value])} as ${name}: it has the wrong length`);
  return encoded;
}

function decodeField(name: TypeName, bytes: Uint8Array): FieldValue {
  if (name === 'ipv4_addr' || name === 'ipv6_addr') return ipFromBytes(bytes);
  if (name === 'ether_addr') return renderMac(bytes);
  if (name === 'ifname') return str.decode(bytes, {});
  const ordered = TYPES[name].order === 'host' ? bytes.toReversed() : bytes;
  return ordered.reduce((sum, byte) => sum * 256 + byte, 0);
}

function numberToBytes(value: number, bytes: number, order: ByteOrder): Uint8Array {
  const all = new Uint8Array(4);
  new DataView(all.buffer).setUint32(0, value, order === 'host');
  return order === 'host' ? all.subarray(0, bytes) : all.subarray(4 - bytes);
}

const tableAttrs = attrs('table', {
  name: [1, str],
  flags: [2, u32be],
  use: [3, u32be],
  handle: [4, u64be],
  comment: [6, comment], // NFTA_TABLE_USERDATA
});

export const tableMessage = nftMessages('TABLE', tableAttrs, 'name');

/** Creates a table unless it exists. Same as: `nft add table <family> <name> { comment "…"; }` */
export function addTable(table: Table, words?: string): Request {
  return tableMessage.add(`add table ${renderTable(table)}`, table, { flags: 0, comment: words });
}

/** Deletes a table and its contents; ENOENT for a missing one. Same as: `nft delete table <family> <name>` */
export function deleteTable(table: Table): Request {
  return tableMessage.remove(`delete table ${renderTable(table)}`, table, {});
}

/** True when the table exists. Same as: `nft list table <family> <name>` */
export function hasTable(socket: NetlinkSocket, table: Table): boolean {
  return socket.ask(tableQuestion(table)) !== undefined;
}

export function tableQuestion(table: Table) {
  return tableMessage.question(`find table ${renderTable(table)}`, table, {});
}

/** True when no packet passes its chains, as after: `nft add table <family> <name> { flags dormant; }` */
export function isDormant({ flags = 0 }: { readonly flags?: number | undefined }): boolean {
  return (flags & NFT_TABLE_F_DORMANT) !== 0;
}

/** linux/netfilter/nf_tables.h */
const NFT_TABLE_F_DORMANT = 1;

/** Tests which tables exist, with a single question for any number of tables. Same as: `nft list tables` */
export function listTables(socket: NetlinkSocket): { has(table: Table): boolean } {
  const names = new Set(listTableNames(socket).map(renderTable));
  return { has: table => names.has(renderTable(table)) };
}

export interface ListedTable extends Table {
  /** One that was made later has a higher one. */
  readonly handle: bigint;
  readonly isDormant?: true;
}

/** Every table of the known families. Same as: `nft -a list tables` */
export function listTableNames(socket: NetlinkSocket): ListedTable[] {
  return tableMessage.listAll(socket, 'list tables').map(({ table, attrs }) => {
    return { ...table, handle: attrs.handle ?? 0n, ...(isDormant(attrs) ? { isDormant: true } : {}) };
  });
}

interface ChainPlace {
  readonly table: Table;
  readonly chain: string;
}

/**
 * Chains of any table that drop packets which none of their rules accepted at a hook. A packet must pass every such chain: a
 * rule elsewhere that accepts it does not help. Inspects all chains.
 * Same as: `nft list chains`, filtered for `policy drop`
 */
export function listDroppingChains(socket: NetlinkSocket, hook: BaseChain['hook']): ChainPlace[] {
  return listChainsOf(socket, ({ base, drops }) => base?.hook === hook && drops === true);
}

/** Chains of any table of IP that translate addresses at a hook, at a priority. Same as: `nft list chains`, filtered */
export function listTranslatingChains(
  socket: NetlinkSocket,
  place: Pick<BaseChain, 'hook' | 'priority'>,
): ChainPlace[] {
  return listChainsOf(socket, ({ base }) => Bun.deepEquals(base, { type: 'nat', ...place }));
}

function listChainsOf(socket: NetlinkSocket, isWanted: (chain: Chain) => boolean): ChainPlace[] {
  const all = chainMessage.listAll(socket, 'list chains');
  return all.flatMap(({ table, attrs: own }) => {
    const isOfIp = ['inet', 'ip', 'ip6'].includes(table.family);
    return isOfIp && isWanted(toChain(own)) ? { table, chain: own.name ?? '' } : [];
  });
}

/** linux/netfilter.h, enum nf_inet_hooks */
export const HOOK = { prerouting: 0, input: 1, forward: 2, output: 3, postrouting: 4 } as const;

/** linux/netfilter_arp.h: the hooks of ARP count otherwise. */
const ARP_HOOK: Readonly<Record<string, number>> = { input: 0, output: 1, forward: 2 };

/** linux/netfilter_ipv4.h: the hook priorities of address translation, and of the raw stage before it. */
export const NF_IP_PRI_RAW = -300;
export const NF_IP_PRI_NAT_DST = -100;
export const NF_IP_PRI_NAT_SRC = 100;
/** The same: filters of forwarded packets. */
export const NF_IP_PRI_FILTER = 0;

/**
 * The priorities of our own translation. Among chains of address translation at one hook, whichever translates a connection first
 * decides, and of equal priorities the chain that was made last runs first. Whatever iptables, kube-proxy and Docker (at the numbers
 * above) and firewalld (10 later) translate is therefore theirs.
 */
export const OWN_NAT = { dst: NF_IP_PRI_NAT_DST + 20, src: NF_IP_PRI_NAT_SRC + 20 } as const;

const hookAttrs = attrs('hook', {
  number: [1, u32be],
  priority: [2, s32be],
  device: [3, str],
  devices: [4, listOf(str, 1)],
});

const chainAttrs = attrs('chain', {
  table: [1, str],
  handle: [2, u64be],
  name: [3, str],
  hook: [4, hookAttrs],
  policy: [5, u32be],
  use: [6, u32be],
  type: [7, str],
  flags: [10, u32be],
});

export const chainMessage = nftMessages('CHAIN', chainAttrs, 'table');

/** The hook at which packets enter a base chain. */
export interface BaseChain {
  readonly type: 'nat' | 'filter';
  readonly hook: keyof typeof HOOK;
  readonly priority: number;
}

/** A chain as the kernel reports it; `base` is absent for chains that are only jumped to. */
export interface Chain {
  readonly name: string;
  readonly base?: BaseChain;
  /** A base chain that drops packets which none of its rules accepted. */
  readonly drops?: true;
  /** It sees all packets of these devices, before or after every other hook. */
  readonly devices?: readonly string[];
}

/**
 * Creates a chain unless it exists. Base chains accept packets that no rule decides about.
 * Same as: `nft add chain <family> <table> <name> [{ type nat hook <hook> priority <priority>; }]`
 */
export function addChain(table: Table, name: string, base?: BaseChain): Request {
  const op = `add chain "${name}" to table ${renderTable(table)}`;
  const hooked = base && {
    type: base.type,
    hook: {
      number: (table.family === 'arp' ? ARP_HOOK[base.hook] : undefined) ?? HOOK[base.hook],
      priority: base.priority,
    },
  };
  return chainMessage.add(op, table, { name, ...hooked });
}

/** Deletes a chain; EBUSY if it has rules or is jumped to. Same as: `nft delete chain <family> <table> <name>` */
export function deleteChain(table: Table, name: string): Request {
  return chainMessage.remove(`delete chain "${name}" of table ${renderTable(table)}`, table, { name });
}

/** True when the table has the chain. Constant cost. Same as: `nft list chain <family> <table> <name>` */
export function hasChain(socket: NetlinkSocket, table: Table, name: string): boolean {
  return socket.ask(chainQuestion(table, name)) !== undefined;
}

/** Chains of the table; none when the table does not exist. Same as: `nft list chains <family>` */
export function listChains(socket: NetlinkSocket, table: Table): Chain[] {
  return chainMessage.list(socket, `list chains of table ${renderTable(table)}`, table).map(toChain);
}

/** Asks for one chain, at a cost that does not depend on the others. */
export function chainQuestion(table: Table, name: string) {
  return chainMessage.question(`find chain "${name}" of table ${renderTable(table)}`, table, { name });
}

type ChainAttrs = ReturnType<typeof chainAttrs.decode>;

export function toChain({ name = '', type, hook, policy }: ChainAttrs): Chain {
  const drops = policy === NF_DROP ? ({ drops: true } as const) : {};
  const { device = [], devices = [device].flat() } = hook ?? {};
  if (devices.length) return { name, devices, ...drops };
  const at = hookName(hook?.number);
  if (at === undefined) return { name };
  const base = { type: type === 'nat' ? 'nat' : 'filter', hook: at, priority: hook?.priority ?? 0 } as const;
  return { name, base, ...drops };
}

function hookName(number: number | undefined): keyof typeof HOOK | undefined {
  const hooks = Object.keys(HOOK) as (keyof typeof HOOK)[];
  return number === undefined ? undefined : hooks.find(name => HOOK[name] === number);
}

/** linux/netfilter/nf_tables.h, enum nft_set_flags */
const NFT_SET_MAP = 0x8;
/** linux/netfilter/nf_tables.h: the data type of verdicts. */
const NFT_DATA_VERDICT = 0xffffff00;

const descAttrs = attrs('set description', { size: [1, u32be] });

const setAttrs = attrs('set', {
  table: [1, str],
  name: [2, str],
  flags: [3, u32be],
  keyType: [4, u32be],
  keyLength: [5, u32be],
  dataType: [6, u32be],
  dataLength: [7, u32be],
  policy: [8, u32be],
  desc: [9, descAttrs],
  id: [10, u32be],
  userdata: [13, bytes],
  handle: [16, u64be],
});

export const setMessage = nftMessages('SET', setAttrs, 'table');

/** A set, or with `data` a map. The cost of a lookup does not depend on the number of elements. */
export interface NftSet {
  readonly table: Table;
  readonly name: string;
  readonly key: TypeNames;
  /** The data of the elements: values of these types, or a verdict. */
  readonly data?: TypeNames | 'verdict';
}

/**
 * Creates a set or map unless it exists; EEXIST if a different one has the name.
 * Same as: `nft add set|map <family> <table> <name> { type <key> [: <data>]; }`
 */
export function addSet(set: NftSet): Request {
  const { table, name, key, data } = set;
  return setMessage.add(`add ${kindOf(set)} "${name}" to table ${renderTable(table)}`, table, {
    name,
    flags: data === undefined ? 0 : NFT_SET_MAP,
    keyType: typeId(key),
    keyLength: typeLength(key),
    ...(data === undefined ? {} : dataAttrs(data)),
    id: SET_ID,
    userdata: setUserdata(
      typeOrder(key),
      data === undefined || data === 'verdict' ? undefined : typeOrder(data),
    ),
  });
}

/** Deletes a set; EBUSY if a rule refers to it. Same as: `nft delete set <family> <table> <name>` */
export function deleteSet(set: NftSet): Request {
  return setMessage.remove(`delete ${renderSet(set)}`, set.table, { name: set.name });
}

/** Names of the sets and maps of the table. Same as: `nft list sets <family>` and `nft list maps <family>` */
export function listSets(socket: NetlinkSocket, table: Table): string[] {
  const all = setMessage.list(socket, `list sets of table ${renderTable(table)}`, table);
  return all.map(({ name }) => name ?? '');
}

/** Asks for one set or map, at a cost that does not depend on the others: any answer means that it exists. */
export function setQuestion(set: NftSet) {
  return setMessage.question(`find ${renderSet(set)}`, set.table, { name: set.name });
}

/** `map "claims4" of table "inet catena_portmap"`, for messages. */
export function renderSet(set: NftSet): string {
  return `${kindOf(set)} "${set.name}" of table ${renderTable(set.table)}`;
}

function kindOf(set: NftSet): 'set' | 'map' {
  return set.data === undefined ? 'set' : 'map';
}

function dataAttrs(data: TypeNames | 'verdict'): { dataType: number; dataLength: number } {
  if (data === 'verdict') return { dataType: NFT_DATA_VERDICT, dataLength: 0 };
  return { dataType: typeId(data), dataLength: typeLength(data) };
}

const ruleAttrs = attrs('rule', {
  table: [1, str],
  chain: [2, str],
  handle: [3, u64be],
  expressions: [4, listOf(expression)],
  position: [6, u64be],
  comment: [7, comment], // NFTA_RULE_USERDATA
});

export const ruleMessage = nftMessages('RULE', ruleAttrs, 'table');

/** The location of a rule and its comment; the expressions are not decoded. */
const placeAttrs = attrs('rule place', { table: [1, str], chain: [2, str], comment: [7, comment] });
const placeMessage = nftMessages('RULE', placeAttrs, 'table', false);

export interface Rule {
  readonly chain: string;
  readonly handle: bigint;
  readonly expressions: readonly { readonly name?: string | undefined; readonly data?: unknown }[];
  readonly comment?: string;
}

/**
 * Appends a rule to a chain, even if the same rule already exists there.
 * Same as: `nft add rule <family> <table> <chain> … [comment "…"]`
 */
export function addRule(
  table: Table,
  chain: string,
  expressions: readonly Expression[],
  words?: string,
): Request {
  const op = `add rule to chain "${chain}" of table ${renderTable(table)}`;
  const own = { chain, expressions, comment: words };
  return ruleMessage.add(op, table, own, NLM_F_CREATE | NLM_F_APPEND);
}

/**
 * Like {@link addRule}, but inserts the rule before all others of the chain.
 * Same as: `nft insert rule <family> <table> <chain> …`
 */
export function insertRule(table: Table, chain: string, expressions: readonly Expression[]): Request {
  const op = `insert rule into chain "${chain}" of table ${renderTable(table)}`;
  return ruleMessage.add(op, table, { chain, expressions });
}

/** Deletes all rules of a chain. Costs a grace period (about 10 ms). Same as: `nft flush chain <family> <table> <chain>` */
export function flushChain(table: Table, chain: string): Request {
  return ruleMessage.remove(`flush chain "${chain}" of table ${renderTable(table)}`, table, { chain });
}

/** Deletes one rule. Costs a grace period. Same as: `nft delete rule <family> <table> <chain> handle <handle>` */
export function deleteRule(table: Table, chain: string, handle: bigint): Request {
  const op = `delete rule ${handle} of chain "${chain}" of table ${renderTable(table)}`;
  return ruleMessage.remove(op, table, { chain, handle });
}

/**
 * Rules of the table in order; none when the table does not exist.
 * @param chain list only this chain
 * @param only skip rules that contain none of these byte strings
 * Same as: `nft -a list table <family> <name>`, `nft -a list chain <family> <table> <name>`
 */
export function listRules(
  socket: NetlinkSocket,
  table: Table,
  chain?: string,
  only?: readonly Uint8Array[],
): Rule[] {
  const op = `list rules of table ${renderTable(table)}`;
  // Kernels before 4.16 list the rules of every table, whatever was requested.
  const all = ruleMessage.list(socket, op, table, { table: table.name, chain }, only);
  return all.filter(own => chain === undefined || own.chain === chain).map(toRule);
}

export function toRule({
  chain = '',
  handle = 0n,
  expressions = [],
  comment,
}: ReturnType<typeof ruleAttrs.decode>): Rule {
  return { chain, handle, expressions, ...(comment === undefined ? {} : { comment }) };
}

/** What is known about a chain without decoding its rules. */
export interface ChainSummary {
  readonly count: number;
  /** Comment of the first rule. */
  readonly comment?: string | undefined;
}

/** Rules per chain of the table: cheaper than {@link listRules}, and enough to detect a flush. */
export function summarizeChains(socket: NetlinkSocket, table: Table): Map<string, ChainSummary> {
  const op = `count rules of table ${renderTable(table)}`;
  const chains = new Map<string, ChainSummary>();
  for (const { chain = '', comment } of placeMessage.list(socket, op, table, { table: table.name })) {
    const known = chains.get(chain) ?? { count: 0, comment };
    chains.set(chain, { ...known, count: known.count + 1 });
  }
  return chains;
}
