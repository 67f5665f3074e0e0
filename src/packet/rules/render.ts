// How is a rule shown on one line?
import { ipFromBytes, renderIp } from '../../net/ip.ts';
import type { Rule } from '../../netlink/nft/rule.ts';

/** linux/netfilter/nf_tables.h, enum nft_meta_keys and nft_ct_keys */
const META: Readonly<Record<number, string>> = {
  1: 'protocol',
  3: 'mark',
  4: 'iif',
  5: 'oif',
  6: 'iifname',
  7: 'oifname',
  15: 'nfproto',
  16: 'l4proto',
};
const CT: Readonly<Record<number, string>> = { 0: 'ct state', 2: 'ct status', 3: 'ct mark', 13: 'ct label' };
const VERDICTS: Readonly<Record<number, string>> = {
  0: 'drop',
  1: 'accept',
  [-5]: 'return',
  [-3]: 'jump',
  [-4]: 'goto',
};
/** Base, offset and length of fields of the headers. */
const FIELDS: Readonly<Record<string, string>> = {
  '1 9 1': 'ip protocol',
  '1 12 4': 'ip saddr',
  '1 16 4': 'ip daddr',
  '1 8 16': 'ip6 saddr',
  '1 24 16': 'ip6 daddr',
  '2 0 2': 'sport',
  '2 2 2': 'dport',
};
const PROTOCOLS: Readonly<Record<number, string>> = { 1: 'icmp', 6: 'tcp', 17: 'udp' };

interface AnyData {
  readonly [key: string]: unknown;
  readonly data?: { readonly value?: Uint8Array; readonly verdict?: { code?: number; chain?: string } };
}

/** The rule in words close to nft's. What has no short form is left out; exact text: `nft -a list chain`. */
export function renderRule(rule: Rule, family: 4 | 6): string {
  let subject = '';
  const words = rule.expressions.flatMap(({ name = '', data = {} }) => {
    const own = data as AnyData;
    if (name === 'meta' && own.sreg === undefined) subject = META[Number(own.key)] ?? 'meta';
    else if (name === 'ct') subject = CT[Number(own.key)] ?? 'ct';
    else if (name === 'fib') subject = `fib ${own.flags === 1 ? 'saddr' : 'daddr'} type`;
    else if (name === 'payload') subject = fieldOf(own, family);
    else if (name === 'cmp')
      return [`${subject}${own.op === 1 ? ' !=' : ''} ${valueOf(subject, own.data?.value)}`];
    else if (name === 'lookup') return [`${subject}${Number(own.flags ?? 0) & 1 ? ' !=' : ''} @${own.set}`];
    else if (name === 'range') return [`${subject} in a range`];
    else if (name === 'match' && own.name !== 'comment') return [`-m ${own.name}`];
    else if (name === 'target') return [`-j ${own.name}`];
    else if (name === 'immediate' && own.data?.verdict) {
      const { code = 1, chain } = own.data.verdict;
      return [[VERDICTS[code] ?? 'verdict', chain].filter(Boolean).join(' ')];
    } else if (name === 'nat') return [own.type === 0 ? 'snat' : 'dnat'];
    else if (name === 'masq') return ['masquerade'];
    else if (['redir', 'reject', 'notrack', 'limit', 'queue'].includes(name))
      return [name === 'redir' ? 'redirect' : name];
    return [];
  });
  return words.join(' ');
}

function fieldOf({ base, offset, length }: AnyData, family: 4 | 6): string {
  const name = FIELDS[`${base} ${offset} ${length}`];
  if (name === undefined && base === 1 && family === 4 && (offset === 12 || offset === 16))
    return offset === 12 ? 'ip saddr' : 'ip daddr';
  return name ?? `@${['ll', 'nh', 'th'][Number(base)] ?? '?'},${offset},${length}`;
}

function valueOf(subject: string, value: Uint8Array = new Uint8Array()): string {
  if (/name$/.test(subject)) {
    const end = value.indexOf(0);
    const name = new TextDecoder().decode(end < 0 ? value : value.subarray(0, end));
    return `"${name}${end < 0 && value.length < 16 ? '*' : ''}"`;
  }
  if (/addr$/.test(subject)) {
    if (value.length === 4 || value.length === 16) return renderIp(ipFromBytes(value));
    const padded = new Uint8Array(4);
    padded.set(value.subarray(0, 4));
    return `${renderIp(ipFromBytes(padded))}/${value.length * 8}`;
  }
  if (subject === 'l4proto' || subject === 'ip protocol') return PROTOCOLS[value[0] ?? 0] ?? String(value[0]);
  if (/port$/.test(subject) || subject === 'protocol')
    return String(value.reduce((sum, byte) => sum * 256 + byte, 0));
  return value.length <= 4 ? String(value.reduceRight((sum, byte) => sum * 256 + byte, 0)) : 'a value';
}
