// How is a rule of iptables' table "filter" converted to nf_tables expressions, as iptables itself writes it, and back to text?
//
// Only rules that our plugins write are supported: addresses, interfaces, connection state, a comment, a verdict or a chain.
import { type Family, findIp, ipFromBytes, ipToBytes, renderIp } from '../../net/ip.ts';
import { jump, NF_ACCEPT, NF_DROP, NFT_GOTO, NFT_JUMP, NFT_RETURN, type Verdict } from '../nft/data.ts';
import {
  count,
  decide,
  type Expression,
  isEqual,
  isNotEqual,
  loadAddress,
  loadMeta,
  META,
  REG,
  useMatch,
} from '../nft/expr.ts';
import type { Rule } from '../nft/rule.ts';
import type { Extension } from './extension.ts';

/**
 * Bit of the connection label that marks the connections that portmap forwards. Packet marks have few bits, which kube-proxy, Calico
 * and others use; labels have 128 bits and hardly any users.
 */
export const FORWARDED_LABEL = 107;

const VERDICTS = { ACCEPT: NF_ACCEPT, DROP: NF_DROP, RETURN: NFT_RETURN } as const;
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
const BITS = { 4: 32, 6: 128 } as const;

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
      expressions.push(
        loadMeta(REG.first, option === '-i' ? 'iifname' : 'oifname'),
        compare(REG.first, name),
      );
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
    const own = (data ?? {}) as Readonly<Record<string, unknown>>;
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
    } else if (name === 'immediate') words.j = targetOf(own) ?? '';
    else if (name !== 'counter') return undefined;
  }
  const { s, d, i, o, state, comment, j } = words;
  return [chain, s, d, i, o, state, comment, j].filter(Boolean).join(' ');
}

function matchHost(family: Family, which: 'saddr' | 'daddr', value: string, not: boolean): Expression[] {
  const [text = '', prefix] = value.split('/');
  const ip = findIp(text);
  if (ip?.family !== family || Number(prefix ?? BITS[family]) !== BITS[family]) {
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

function addressOption(family: Family, { base, offset, length }: Readonly<Record<string, unknown>>) {
  const same = (which: 'saddr' | 'daddr') => {
    const { data } = loadAddress(family, which, REG.first) as { data: Record<string, unknown> };
    return data.base === base && data.offset === offset && data.length === length;
  };
  return same('saddr') ? 's' : same('daddr') ? 'd' : undefined;
}

function interfaceOption({ key }: Readonly<Record<string, unknown>>) {
  return key === META.iifname ? 'i' : key === META.oifname ? 'o' : undefined;
}

function comparedText(
  family: Family,
  option: 's' | 'd' | 'i' | 'o',
  own: Readonly<Record<string, unknown>>,
): string | undefined {
  const value = (own.data as { value?: Uint8Array } | undefined)?.value;
  // linux/netfilter/nf_tables.h, NFT_CMP_EQ and NFT_CMP_NEQ
  if (value === undefined || (own.op !== 0 && own.op !== 1)) return undefined;
  const not = own.op === 1 ? '! ' : '';
  if (option === 's' || option === 'd') {
    if (value.length * 8 !== BITS[family]) return undefined;
    return `${not}-${option} ${renderIp(ipFromBytes(value))}/${BITS[family]}`;
  }
  // Without a terminating zero it is a name prefix.
  const end = value.indexOf(0);
  return end < 0 ? undefined : `${not}-${option} ${new TextDecoder().decode(value.subarray(0, end))}`;
}

function matchWords({ name, revision, info }: Readonly<Record<string, unknown>>) {
  if (!(info instanceof Uint8Array)) return undefined;
  if (name === 'comment') {
    const end = info.indexOf(0);
    const text = new TextDecoder().decode(end < 0 ? info : info.subarray(0, end));
    return { comment: `-m comment --comment ${/^[\w.:-]+$/.test(text) ? text : `"${text}"`}` };
  }
  const state = Object.entries(CONNECTIONS).find(
    ([, one]) => one.name === name && one.revision === revision && Buffer.from(info).equals(one.info),
  )?.[0];
  return state && { state };
}

function targetOf(own: Readonly<Record<string, unknown>>): string | undefined {
  const { verdict } = (own.data ?? {}) as { verdict?: { code?: number; chain?: string } };
  if (verdict?.code === NFT_JUMP) return `-j ${verdict.chain}`;
  if (verdict?.code === NFT_GOTO) return `-g ${verdict.chain}`;
  const name = Object.entries(VERDICTS).find(([, code]) => code === verdict?.code)?.[0];
  return name && `-j ${name}`;
}
