// How is a whole rule in nft syntax converted to expressions?
import { findIp, ipToBytes } from '../../net/ip.ts';
import { goto, jump, NF_ACCEPT, NF_DROP, NFT_RETURN } from './data.ts';
import {
  decide,
  dnat,
  type Expression,
  followVerdict,
  isEqual,
  isInSet,
  isNotInSet,
  loadBytes,
  loadLinkHeader,
  loadMeta,
  lookUp,
  maskRegister,
  masquerade,
  snat,
} from './expr.ts';
import { MatchError, type Subject, takeComparison, takeSubject } from './match/parse.ts';
import type { NftFamily } from './message.ts';
import { loadAddress, matchFamily, matchLabel, REG, setLabel } from './statements.ts';

const VERDICTS: Readonly<Record<string, number>> = {
  accept: NF_ACCEPT,
  drop: NF_DROP,
  return: NFT_RETURN,
};

/** linux/if_ether.h, in network byte order */
const ETHERTYPE = { 4: Uint8Array.of(0x08, 0x00), 6: Uint8Array.of(0x86, 0xdd) } as const;

/** The source in linux/if_ether.h, struct ethhdr. It can only be part of a key, so no value is ever parsed. */
const ETHER_SOURCE: Subject = {
  load: dreg => [loadLinkHeader(dreg, 6, 6)],
  quarters: 2,
  parse: () => undefined,
  values: 'a key of a set',
};

/** Register of the label that a rule sets: keys and data of maps are in the quarters before it. */
const LABEL_QUARTER = 8;

/** A rule while it is parsed. */
interface Reading {
  readonly text: string;
  readonly family: NftFamily;
  /** What remains of the rule. */
  readonly words: string[];
  readonly matches: Expression[];
  readonly statements: Expression[];
  /** IP version that the packets are known to have. */
  version?: 4 | 6;
}

/** One part of a key: a property of the packet, perhaps masked. */
interface Part {
  readonly name: string;
  readonly subject: Subject;
  readonly mask?: Uint8Array | undefined;
}

/**
 * Parses a rule as `nft list` prints it: `ip daddr . iifname @home4 drop`. Supports comparisons as `parseMatch` does (without
 * alternatives), lookups in sets and maps, labels, verdicts, `masquerade`, `snat` to an address or to the packet's own source, and `dnat` by a map. As in nft, `ip` and `ip6` imply a
 * match of the IP version, once per rule. All matches and lookups are evaluated before the first statement. The text must not
 * contain names that others choose: names of interfaces may contain signs.
 * @throws MatchError saying what cannot be parsed
 */
export function parseRule(family: NftFamily, text: string): Expression[] {
  const rule: Reading = { text, family, words: text.split(' '), matches: [], statements: [] };
  while (rule.words.length) {
    if (!takeStatement(rule)) takeMatch(rule);
  }
  return [...rule.matches, ...rule.statements];
}

function takeStatement(rule: Reading): boolean {
  const { words, statements } = rule;
  const [word = '', second = '', third = '', fourth = ''] = words;
  if (Object.hasOwn(VERDICTS, word)) {
    words.shift();
    statements.push(decide({ code: VERDICTS[word] ?? NF_DROP }));
  } else if (word === 'jump' || word === 'goto') {
    words.splice(0, 2);
    statements.push(decide(word === 'jump' ? jump(second) : goto(second)));
  } else if (word === 'masquerade') {
    words.shift();
    statements.push(masquerade());
  } else if (word === 'snat' && (second === 'ip' || second === 'ip6') && third === 'to') {
    words.splice(0, 4);
    if (fourth === second && words[0] === 'saddr') {
      words.shift();
      statements.push(loadAddress(second === 'ip' ? 4 : 6, 'saddr', REG.first), snat(second, REG.first));
      return true;
    }
    const ip = findIp(fourth);
    if (ip === undefined) throw new MatchError(rule.text, `"${fourth}" is not an address`);
    statements.push(loadBytes(REG.first, ipToBytes(ip)), snat(second, REG.first));
  } else if (word === 'ct' && second === 'label' && third === 'set') {
    words.splice(0, 4);
    statements.push(...setLabel(Number(fourth), REG.quarter(LABEL_QUARTER)));
  } else if (word === 'dnat' && third === 'to') {
    words.splice(0, 3);
    const key = takeKey(rule);
    const name = takeSetName(rule, 'map');
    rule.matches.push(...loadKey(key), lookUp({ name }, REG.first, REG.first));
    statements.push(
      second === 'ip' ? dnat('ip', REG.first, REG.quarter(1)) : dnat('ip6', REG.first, REG.quarter(4)),
    );
  } else return false;
  return true;
}

function takeMatch(rule: Reading): void {
  const { text, words, matches } = rule;
  const [first, second, third = ''] = words;
  if (first === 'meta' && second === 'nfproto') {
    words.splice(0, 3);
    requireVersion(rule, third === 'ipv4' ? 4 : 6);
    return;
  }
  if (first === 'ct' && second === 'label') {
    words.splice(0, 3);
    matches.push(...matchLabel(Number(third)));
    return;
  }
  const key = takeKey(rule);
  if (words[0]?.startsWith('@')) {
    matches.push(...loadKey(key), isInSet({ name: takeSetName(rule) }, REG.first));
  } else if (words[0] === '!=' && words[1]?.startsWith('@')) {
    matches.push(...loadKey(key), isNotInSet({ name: takeSetName(rule, '!=') }, REG.first));
  } else if (words[0] === 'vmap') {
    matches.push(...loadKey(key), followVerdict({ name: takeSetName(rule, 'vmap') }, REG.first));
  } else {
    const [only, more] = key;
    if (only === undefined || more || only.mask) throw new MatchError(text, 'a key lacks its set');
    const [tests = [], alternative] = takeComparison(text, words, only.name, only.subject);
    if (alternative) throw new MatchError(text, `"${only.name}" has several values`);
    matches.push(...tests);
  }
}

/** Takes `ip saddr . ip daddr & 255.255.255.0`; also matches the IP version that it implies. */
function takeKey(rule: Reading): Part[] {
  const { text, words } = rule;
  const parts: Part[] = [];
  do {
    if (parts.length) words.shift();
    if (words[0] === 'ip' || words[0] === 'ip6') requireVersion(rule, words[0] === 'ip' ? 4 : 6);
    const isEther = words[0] === 'ether' && words[1] === 'saddr';
    const [name, subject] = isEther ? ['ether saddr', ETHER_SOURCE] : takeSubject(text, words);
    if (isEther) words.splice(0, 2);
    // What takeComparison() takes itself is left to it.
    const isMasked = words[0] === '&' && !subject.masked;
    const mask = isMasked ? subject.parse(words[1] ?? '')?.value : undefined;
    if (isMasked) words.splice(0, 2);
    parts.push({ name, subject, mask });
  } while (words[0] === '.');
  return parts;
}

/** Takes `@<set>`, preceded by the sign. */
function takeSetName({ text, words }: Reading, sign?: string): string {
  if (sign !== undefined && words.shift() !== sign) throw new MatchError(text, `"${sign}" is missing`);
  const word = words.shift() ?? '';
  if (!/^@./.test(word)) throw new MatchError(text, `a set is missing before "${word}"`);
  return word.slice(1);
}

function loadKey(parts: readonly Part[]): Expression[] {
  let quarter = 0;
  return parts.flatMap(({ subject, mask }) => {
    const register = REG.quarter(quarter);
    quarter += subject.quarters;
    return [...subject.load(register), ...(mask ? [maskRegister(register, mask)] : [])];
  });
}

/** Packets of both IP versions reach tables of these families; in a bridge, the ethertype gives the version. */
function requireVersion(rule: Reading, version: 4 | 6): void {
  if (rule.version === version) return;
  rule.version = version;
  if (rule.family === 'inet') rule.matches.push(...matchFamily(version));
  if (rule.family === 'bridge') {
    rule.matches.push(loadMeta(REG.first, 'protocol'), isEqual(REG.first, ETHERTYPE[version]));
  }
}
