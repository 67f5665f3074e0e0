// How is iptables' table "filter" read and changed directly in nf_tables, without running a program?
//
// Only rules that our plugins write are supported: addresses, interfaces, connection state, a comment, a verdict or a chain.

import { type Family, findIp, IP_BITS, type Ip, ipFromBytes, ipToBytes, renderIp } from '../../net/ip.ts';
import { Errno } from '../../sys/errno.ts';
import { type Request, str } from '../codec.ts';
import {
  count,
  decide,
  type Expression,
  HEADER,
  HEADERS,
  isEqual,
  isNotEqual,
  jump,
  loadAddress,
  loadMeta,
  META,
  NF_DROP,
  NFT_CMP_EQ,
  NFT_CMP_NEQ,
  NFT_GOTO,
  REG,
  useMatch,
  type Verdict,
} from '../nft/expr.ts';
import { type Table, tryOut } from '../nft/message.ts';
import {
  addChain,
  addRule,
  addTable,
  type BaseChain,
  chainQuestion,
  deleteRule,
  hasChain,
  insertRule,
  listChains,
  listRules,
  type Rule,
} from '../nft/table.ts';
import { isNetlinkError, type NetlinkSocket } from '../socket.ts';
import { type Decoded, type Extension, targetOf, VERDICTS } from './nat.ts';
import type { SavedTable } from './program.ts';

/**
 * Bit of the connection label that marks the connections that portmap forwards. Packet marks have few bits, which kube-proxy, Calico
 * and others use; labels have 128 bits and hardly any users.
 */
export const FORWARDED_LABEL = 107;

/** linux/netfilter/xt_comment.h, XT_MAX_COMMENT_LEN */
const COMMENT_BYTES = 256;
/** linux/netfilter/xt_conntrack.h, struct xt_conntrack_mtinfo3, aligned to eight bytes, and the offsets of its state match. */
const CONNTRACK = { revision: 3, bytes: 168, flagsAt: 146, statesAt: 150 } as const;
/** XT_CONNTRACK_STATE */
const MATCH_STATE = 1;
/**
 * The matches of connections by their words: XT_CONNTRACK_STATE_BIT of IP_CT_ESTABLISHED and IP_CT_RELATED, XT_CONNTRACK_STATE_DNAT,
 * and linux/netfilter/xt_connlabel.h, struct xt_connlabel_mtinfo: u16 bit, u16 options, aligned.
 */
const CONNECTIONS: Readonly<Record<string, Extension>> = {
  '-m conntrack --ctstate RELATED,ESTABLISHED': stateMatch((1 << 1) | (1 << 2)),
  '-m conntrack --ctstate DNAT': stateMatch(1 << 7),
  [`-m connlabel --label "${FORWARDED_LABEL}"`]: {
    name: 'connlabel',
    revision: 0,
    info: Uint8Array.of(FORWARDED_LABEL, 0, 0, 0, 0, 0, 0, 0),
  },
};

/**
 * The expressions of a rule, given without its chain: `-s 10.9.0.2/32 -j ACCEPT`.
 * @throws Error naming unknown words
 */
export function encodeFilterRule(family: Family, rule: string): Expression[] {
  const words = rule.match(/"[^"]*"|\S+/g) ?? [];
  const expressions: Expression[] = [];
  let verdict: Verdict | undefined;
  for (let at = 0; at < words.length; ) {
    const not = words[at] === '!';
    const [option = '', value = ''] = words.slice(not ? at + 1 : at);
    const rest = words.slice(at).join(' ');
    const match = Object.entries(CONNECTIONS).find(([text]) => rest.startsWith(`${text} `));
    if (option === '-s' || option === '-d') {
      expressions.push(...matchHost(family, option === '-s' ? 'saddr' : 'daddr', value, not));
      at += not ? 3 : 2;
    } else if (option === '-i' || option === '-o') {
      const name = new TextEncoder().encode(`${value}\0`);
      const compare = not ? isNotEqual : isEqual;
      const key = option === '-i' ? 'iifname' : 'oifname';
      expressions.push(loadMeta(REG.first, key), compare(REG.first, name));
      at += not ? 3 : 2;
    } else if (match) {
      const [text, { name, revision, info }] = match;
      expressions.push(useMatch(name, revision, info));
      at += text.split(' ').length;
    } else if (option === '-m' && value === 'comment') {
      expressions.push(useMatch('comment', 0, commentInfo(words[at + 3] ?? '')));
      at += 4;
    } else if (option === '-j') {
      verdict = value in VERDICTS ? { code: VERDICTS[value as keyof typeof VERDICTS] } : jump(value);
      at += 2;
    } else throw new Error(`Cannot write rule "${rule}": "${option}" is not known`);
  }
  return [...expressions, count(), ...(verdict ? [decide(verdict)] : [])];
}

/** The rule in `iptables-save` syntax, chain first; undefined for an unsupported rule. */
export function renderFilterRule(family: Family, { chain, expressions }: Rule): string | undefined {
  const words: Partial<Record<'s' | 'd' | 'i' | 'o' | 'state' | 'comment' | 'j', string>> = {};
  let loaded: 's' | 'd' | 'i' | 'o' | undefined;
  for (const { name, data } of expressions) {
    const own = (data ?? {}) as Decoded;
    if (name === 'payload' || name === 'meta') {
      loaded = name === 'payload' ? addressOption(family, own) : interfaceOption(own);
      if (loaded === undefined) return undefined;
    } else if (name === 'cmp' && loaded !== undefined) {
      const text = comparedText(family, loaded, own);
      if (text === undefined) return undefined;
      words[loaded] = text;
      loaded = undefined;
    } else if (name === 'match') {
      const found = matchWords(own);
      if (found === undefined) return undefined;
      Object.assign(words, found);
    } else if (name === 'immediate') words.j = targetWords(own);
    else if (name !== 'counter') return undefined;
  }
  const { s, d, i, o, state, comment, j } = words;
  return [chain, s, d, i, o, state, comment, j].filter(Boolean).join(' ');
}

function matchHost(family: Family, which: 'saddr' | 'daddr', value: string, not: boolean): Expression[] {
  const [text = '', prefix] = value.split('/');
  const ip = findIp(text);
  const bits = IP_BITS[family];
  if (ip?.family !== family || Number(prefix ?? bits) !== bits) {
    throw new Error(`Cannot write a rule about "${value}": it is not one address of IPv${family}`);
  }
  const compare = not ? isNotEqual : isEqual;
  return [loadAddress(family, which, REG.first), compare(REG.first, ipToBytes(ip))];
}

function stateMatch(states: number): Extension {
  const info = new Uint8Array(CONNTRACK.bytes);
  const view = new DataView(info.buffer);
  view.setUint16(CONNTRACK.flagsAt, MATCH_STATE, true);
  view.setUint16(CONNTRACK.statesAt, states, true);
  return { name: 'conntrack', revision: CONNTRACK.revision, info };
}

function commentInfo(quoted: string): Uint8Array {
  const info = new Uint8Array(COMMENT_BYTES);
  info.set(new TextEncoder().encode(quoted.replace(/^"|"$/g, '')).subarray(0, COMMENT_BYTES - 1));
  return info;
}

function addressOption(family: Family, { base, offset, length }: Decoded) {
  const header = HEADER[family];
  if (base !== HEADERS.nh || length !== header.length) return undefined;
  return offset === header.saddr ? 's' : offset === header.daddr ? 'd' : undefined;
}

function interfaceOption({ key }: Decoded) {
  return key === META.iifname ? 'i' : key === META.oifname ? 'o' : undefined;
}

function comparedText(
  family: Family,
  option: 's' | 'd' | 'i' | 'o',
  { op, data: { value } = {} }: Decoded,
): string | undefined {
  if (value === undefined || (op !== NFT_CMP_EQ && op !== NFT_CMP_NEQ)) return undefined;
  const not = op === NFT_CMP_NEQ ? '! ' : '';
  if (option === 's' || option === 'd') {
    if (value.length * 8 !== IP_BITS[family]) return undefined;
    return `${not}-${option} ${renderIp(ipFromBytes(value))}/${IP_BITS[family]}`;
  }
  // Without a terminating zero it is a name prefix.
  return value.includes(0) ? `${not}-${option} ${str.decode(value, {})}` : undefined;
}

function matchWords({ name, revision, info }: Decoded) {
  if (!(info instanceof Uint8Array)) return undefined;
  if (name === 'comment') {
    const text = str.decode(info, {});
    return { comment: `-m comment --comment ${/^[\w.:-]+$/.test(text) ? text : `"${text}"`}` };
  }
  const state = Object.entries(CONNECTIONS).find(
    ([, one]) => one.name === name && one.revision === revision && Buffer.from(info).equals(one.info),
  )?.[0];
  return state && { state };
}

function targetWords({ data: { verdict = {} } = {} }: Decoded): string {
  const target = targetOf(verdict);
  return target === undefined ? '' : `${verdict.code === NFT_GOTO ? '-g' : '-j'} ${target}`;
}

/** linux/netfilter_ipv4.h, NF_IP_PRI_FILTER: the hooks and priority of this table's chains in iptables. */
const BUILT_IN: Readonly<Record<string, BaseChain>> = {
  INPUT: { type: 'filter', hook: 'input', priority: 0 },
  FORWARD: { type: 'filter', hook: 'forward', priority: 0 },
  OUTPUT: { type: 'filter', hook: 'output', priority: 0 },
};

/** The part of the table to read: it may be large, and chains of other software do not matter. */
interface Extract {
  /** Read these chains and FORWARD; undefined for all. */
  readonly chains?: readonly string[];
  /** In this chain, read only rules that contain one of the addresses or start with the text; undefined for all. */
  readonly only?: { readonly chain: string; readonly ips: readonly Ip[]; readonly text: string };
}

/** The table that iptables uses for an IP version. */
export function filterTable(family: Family): Table {
  return { family: family === 4 ? 'ip' : 'ip6', name: 'filter' };
}

/**
 * Reads the table, decides about lines, and returns the changes that apply them; call it within `commitAfterReading`. The
 * table and its chain FORWARD are created if missing, in the layout that iptables recognises as its own.
 * @param decide returns lines in iptables-restore syntax: `-N`, `-A`, `-I <chain> 1`, `-D`; none for no change
 * Same as: `iptables-nft-save -t filter`, then `iptables-nft-restore --noflush`
 */
export function filterChanges(
  socket: NetlinkSocket,
  family: Family,
  extract: Extract,
  decide: (saved: SavedTable) => readonly string[],
): Request[] {
  const read = readRules(socket, family, extract);
  const lines = decide(read.saved);
  return lines.length ? changesFor(family, lines, read.rules) : [];
}

/** The table as {@link filterChanges} reads it; rules that our plugins do not write have no text. */
export function readFilter(socket: NetlinkSocket, family: Family, extract: Extract): SavedTable {
  return readRules(socket, family, extract).saved;
}

/** True when packets that no rule of the chain FORWARD decides about are dropped. Constant cost. */
export function isFilterDropping(socket: NetlinkSocket, family: Family): boolean {
  return socket.ask(chainQuestion(filterTable(family), 'FORWARD'))?.policy === NF_DROP;
}

/**
 * True when the table does not exist, or when iptables recognises it as its own. A table of the same name made by other
 * software is usable neither for iptables nor for us.
 */
export function isFilterOfIptables(socket: NetlinkSocket, family: Family): boolean {
  const bases = listChains(socket, filterTable(family)).filter(({ base }) => base !== undefined);
  return bases.every(({ name, base }) => Bun.deepEquals(base, BUILT_IN[name], true));
}

/** Asks the kernel whether it would accept the lines for a table without the rules that they delete; changes nothing. */
export function tryFilter(socket: NetlinkSocket, family: Family, lines: readonly string[]): void {
  tryOut(socket, changesFor(family, lines, []));
}

/** True when it would; false when the kernel lacks what iptables needs in nf_tables. */
export function canUseFilter(socket: NetlinkSocket, family: Family, lines: readonly string[]): boolean {
  try {
    tryFilter(socket, family, lines);
    return true;
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.ENOENT) || isNetlinkError(thrown, Errno.EOPNOTSUPP)) return false;
    throw thrown;
  }
}

interface ReadRule {
  readonly words: string;
  readonly rule: Rule;
}

function readRules(
  socket: NetlinkSocket,
  family: Family,
  { chains, only }: Extract,
): { saved: SavedTable; rules: ReadRule[] } {
  const table = filterTable(family);
  const names = chains
    ? [...new Set(['FORWARD', ...chains])].filter(name => hasChain(socket, table, name))
    : listChains(socket, table).map(({ name }) => name);
  const needles = only && [...only.ips.map(ipToBytes), new TextEncoder().encode(only.text)];
  const rules = names.flatMap(chain =>
    listRules(socket, table, chain, chain === only?.chain ? needles : undefined).map(rule => ({
      rule,
      words: renderFilterRule(family, rule) ?? `${chain} (rule ${rule.handle})`,
    })),
  );
  return { saved: { chains: names, rules: rules.map(({ words }) => words) }, rules };
}

function changesFor(family: Family, lines: readonly string[], present: readonly ReadRule[]): Request[] {
  const table = filterTable(family);
  const left = [...present];
  return [
    addTable(table),
    addChain(table, 'FORWARD', BUILT_IN.FORWARD),
    ...lines.map(line => {
      const [, command, words = ''] = /^(-\S+) (.*)$/.exec(line) ?? [];
      const [chain = ''] = words.split(' ', 1);
      const rest = words.slice(chain.length + 1);
      if (command === '-N') return addChain(table, words);
      if (command === '-A') return addRule(table, chain, encodeFilterRule(family, rest));
      if (command === '-I' && rest.startsWith('1 '))
        return insertRule(table, chain, encodeFilterRule(family, rest.slice(2)));
      const at = command === '-D' ? left.findIndex(one => one.words === words) : -1;
      const [found] = at < 0 ? [] : left.splice(at, 1);
      if (found) return deleteRule(table, chain, found.rule.handle);
      throw new Error(`Cannot apply "${line}" to table "filter": it is not known, or there is no such rule`);
    }),
  ];
}
