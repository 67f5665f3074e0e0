// How is a match in nft syntax converted to expressions of a rule?

import { findCidr, findIp, IP_BITS, type Ip, ipToBytes, netmaskOf, networkOf } from '../../net/ip.ts';
import {
  ADDRESS_TYPES,
  type Expression,
  hostU32,
  isEqual,
  isNotEqual,
  isOrdered,
  isOutside,
  loadAddress,
  loadAddressType,
  loadCt,
  loadHeader,
  loadMeta,
  type META,
  maskRegister,
  REG,
} from './expr.ts';

/** A blank; what quotes keep together; a sign, which is a word of its own, a word, or a quote without an end. */
const WORD = /\s+|"([^"\p{Cc}]*)"|([!=<>]=|[<>{},&!=]|[^\s"{},&<>=!]+|")/gu;

/** A match that cannot be parsed; `problem` completes a sentence that names the match. */
export class MatchError extends Error {
  override readonly name = 'MatchError';
  readonly problem: string;

  constructor(text: string, problem: string) {
    super(`Cannot read match "${text}": ${problem}`);
    this.problem = problem;
  }
}

/**
 * Splits at blanks and at signs; quotes keep a name together and are dropped.
 * @throws MatchError for an unterminated quote
 */
function splitWords(text: string): string[] {
  return Array.from(text.matchAll(WORD)).flatMap(([, quoted, word]) => {
    if (word === '"') throw new MatchError(text, 'a quote has no end');
    return quoted ?? word ?? [];
  });
}

export interface Subject {
  /** Loads it into a register. */
  readonly load: (dreg: number) => readonly Expression[];
  /** Number of 32-bit registers that it occupies in a concatenation; one unless given. */
  readonly quarters?: number;
  readonly parse: (word: string) => Operand | undefined;
  /** Describes its values in messages: `an IPv4 address`. */
  readonly values: string;
  /** IP version that it applies to; absent for both. */
  readonly family?: 4 | 6;
  /** True if its values are ordered, in network byte order. */
  readonly ordered?: boolean;
  /** True if its bits may be masked before the comparison, as for marks. */
  readonly masked?: boolean;
  /** Bits by their names, any of which may be set. */
  readonly flags?: Readonly<Record<string, number>>;
}

/** netinet/in.h, IPPROTO_* */
const PROTOCOLS = {
  icmp: 1,
  tcp: 6,
  udp: 17,
  dccp: 33,
  'ipv6-icmp': 58,
  icmpv6: 58,
  sctp: 132,
  udplite: 136,
};
/** linux/netfilter/nf_conntrack_common.h, enum ip_conntrack_info as bits: NF_CT_STATE_BIT */
const STATES = { invalid: 1, established: 2, related: 4, new: 8, untracked: 64 };

const INTERFACE = { parse: findIfname, values: 'the name of an interface', quarters: 4 };
const NUMBER = { parse: findU32, values: 'a number' };
const PROTOCOL = { parse: findNamed(PROTOCOLS, 1), values: 'a protocol' };

function oneOf(names: Readonly<Record<string, number>>) {
  return { parse: findNamed(names, 4), values: `one of ${Object.keys(names).join(', ')}` };
}

const SUBJECTS: Readonly<Record<string, Subject>> = {
  ...addresses(4),
  ...addresses(6),
  ...Object.fromEntries(['th', 'tcp', 'udp', 'sctp'].flatMap(ports)),
  ...metas('iifname', INTERFACE),
  ...metas('oifname', INTERFACE),
  ...metas('mark', { ...NUMBER, masked: true }),
  ...metas('skuid', NUMBER),
  ...metas('skgid', NUMBER),
  ...metas('l4proto', PROTOCOL),
  'ip protocol': { ...PROTOCOL, load: dreg => [loadMeta(dreg, 'l4proto')], family: 4 },
  'ct mark': { ...NUMBER, load: dreg => [loadCt(dreg, 'mark')], masked: true },
  'ct state': { ...oneOf(STATES), load: dreg => [loadCt(dreg, 'state')], flags: STATES },
  'fib saddr type': { ...oneOf(ADDRESS_TYPES), load: dreg => [loadAddressType(dreg, 'saddr')] },
  'fib daddr type': { ...oneOf(ADDRESS_TYPES), load: dreg => [loadAddressType(dreg, 'daddr')] },
};

function addresses(family: 4 | 6): Record<string, Subject> {
  const keyword = family === 4 ? 'ip' : 'ip6';
  return Object.fromEntries(
    (['saddr', 'daddr'] as const).map(which => [
      `${keyword} ${which}`,
      {
        load: (dreg: number) => [loadAddress(family, which, dreg)],
        quarters: family === 4 ? 1 : 4,
        parse: (word: string) => findAddress(family, word),
        values: `an IPv${family} address`,
        family,
        ordered: true,
      },
    ]),
  );
}

function ports(keyword: string): [string, Subject][] {
  const protocol = PROTOCOLS[keyword as keyof typeof PROTOCOLS];
  const own = (dreg: number) =>
    protocol ? [loadMeta(dreg, 'l4proto'), isEqual(dreg, Uint8Array.of(protocol))] : [];
  return (['sport', 'dport'] as const).map((which, i) => [
    `${keyword} ${which}`,
    {
      load: dreg => [...own(dreg), loadHeader('th', dreg, i * 2, 2)],
      parse: findPort,
      values: 'a port as a number',
      ordered: true,
    },
  ]);
}

/** nft accepts these with and without the prefix `meta`. */
function metas(key: keyof typeof META, own: Omit<Subject, 'load'>): Record<string, Subject> {
  const subject: Subject = { ...own, load: dreg => [loadMeta(dreg, key)] };
  return { [key]: subject, [`meta ${key}`]: subject };
}

/** A set of values is expanded to one rule per combination. */
const MOST_ALTERNATIVES = 64;
/** Maximum number of words in a subject. */
const MOST_WORDS = 3;
const OPERATORS = ['==', '!=', '<', '<=', '>', '>='] as const;
const ALIASES = { '=': '==', eq: '==', ne: '!=', lt: '<', le: '<=', gt: '>', ge: '>=' } as const;

/**
 * Parses a sequence of matches, all of which must hold: `ip saddr 10.0.0.0/8 iifname != { "eth0", "eth1" }`. Supports only a
 * part of nft's language: the subjects of {@link SUBJECTS}, compared with values, ranges and sets of them.
 * @param family IP version of the packets that reach the rule
 * @returns the expressions of one rule, or of several rules any of which may match
 * @throws MatchError saying what cannot be parsed
 */
export function parseMatch(family: 4 | 6, text: string): Expression[][] {
  const words = splitWords(text);
  if (words.length === 0) throw new MatchError(text, 'it is empty');
  let alternatives: Expression[][] = [[]];
  while (words.length) {
    const more = takeMatch(family, text, words);
    alternatives = alternatives.flatMap(before => more.map(after => [...before, ...after]));
    if (alternatives.length > MOST_ALTERNATIVES) {
      throw new MatchError(text, `its sets have more than ${MOST_ALTERNATIVES} combinations`);
    }
  }
  return alternatives;
}

/** The words of a match, separated by single blanks: equal matches get equal texts. */
export function canonicalMatch(text: string): string {
  return splitWords(text).join(' ');
}

function takeMatch(family: 4 | 6, text: string, words: string[]): Expression[][] {
  const [name, subject] = takeSubject(text, words);
  if (subject.family !== undefined && subject.family !== family) {
    throw new MatchError(text, `"${name}" is not of IPv${family}`);
  }
  return takeComparison(text, words, name, subject);
}

/** Takes the name of a subject from the beginning of the words. */
export function takeSubject(text: string, words: string[]): [string, Subject] {
  for (let count = MOST_WORDS; count > 0; count--) {
    const name = words.slice(0, count).join(' ');
    const subject = Object.hasOwn(SUBJECTS, name) ? SUBJECTS[name] : undefined;
    if (subject === undefined) continue;
    words.splice(0, count);
    return [name, subject];
  }
  const known = Object.keys(SUBJECTS).filter(name => !name.startsWith('meta ') || name === 'meta l4proto');
  throw new MatchError(
    text,
    `"${words.slice(0, 2).join(' ')}" is not a supported match: ${known.join(', ')}`,
  );
}

/** Takes operator and values of the subject, which was taken before: the tests of one rule, or of several any of which may match. */
export function takeComparison(
  text: string,
  words: string[],
  name: string,
  subject: Subject,
): Expression[][] {
  const mask = takeMask(text, name, subject, words);
  const [sign = ''] = words;
  const operator = OPERATORS.find(one => one === sign || one === ALIASES[sign as keyof typeof ALIASES]);
  if (operator) words.shift();
  const values = takeValues(text, name, words);
  if (subject.flags) {
    if (mask || (operator && !['==', '!='].includes(operator))) {
      throw new MatchError(text, `"${name}" cannot be compared with "${sign}"`);
    }
    return [flagTest(text, name, subject, operator === '!=', values)];
  }
  const operands = values.map(value => {
    const operand = subject.parse(value);
    if (operand) return operand;
    throw new MatchError(text, `"${name}" takes ${subject.values}, found "${value}"`);
  });
  if (operator === '<' || operator === '<=' || operator === '>' || operator === '>=') {
    const [only] = operands;
    if (!subject.ordered || operands.length !== 1 || only === undefined || only.mask || only.to) {
      throw new MatchError(text, `"${name}" cannot be compared with "${sign} ${values.join(', ')}"`);
    }
    return [[...subject.load(REG.first), isOrdered(REG.first, operator, only.value)]];
  }
  const tests = operands.map(operand => test(subject, mask, operator === '!=', operand));
  // With !=, none of the values may match, so all tests go into one rule.
  return operator === '!=' ? [tests.flat()] : tests;
}

function takeMask(text: string, name: string, subject: Subject, words: string[]): Uint8Array | undefined {
  if (words[0] !== '&' && words[0] !== 'and') return undefined;
  const word = words[1] ?? '';
  const mask = subject.masked ? subject.parse(word)?.value : undefined;
  if (mask === undefined) throw new MatchError(text, `"${name}" cannot be masked with "${word}"`);
  words.splice(0, 2);
  return mask;
}

/** One value, several separated by commas, or a set in braces. */
function takeValues(text: string, name: string, words: string[]): string[] {
  const braced = words[0] === '{';
  if (braced) words.shift();
  const values: string[] = [];
  for (;;) {
    const value = words.shift();
    if (value === undefined || /^[{},&<>=!]/.test(value)) {
      throw new MatchError(text, `"${name}" lacks a value before "${value ?? 'the end'}"`);
    }
    values.push(value);
    if (words[0] === ',') words.shift();
    else break;
  }
  if (braced && words.shift() !== '}') throw new MatchError(text, `the set of "${name}" has no end`);
  return values;
}

function test(subject: Subject, mask: Uint8Array | undefined, not: boolean, operand: Operand): Expression[] {
  const { value, to } = operand;
  const own = mask ?? operand.mask;
  const loaded = [...subject.load(REG.first), ...(own ? [maskRegister(REG.first, own)] : [])];
  if (to === undefined) return [...loaded, not ? isNotEqual(REG.first, value) : isEqual(REG.first, value)];
  if (not) return [...loaded, isOutside(REG.first, value, to)];
  return [...loaded, isOrdered(REG.first, '>=', value), isOrdered(REG.first, '<=', to)];
}

/** Same as: `<subject> & (<flag> | …) != 0`, or `== 0` with `not` */
function flagTest(
  text: string,
  name: string,
  { load, flags = {}, values: known }: Subject,
  not: boolean,
  values: readonly string[],
): Expression[] {
  let bits = 0;
  for (const value of values) {
    const bit = Object.hasOwn(flags, value) ? flags[value] : undefined;
    if (bit === undefined) throw new MatchError(text, `"${name}" takes ${known}, found "${value}"`);
    bits |= bit;
  }
  const none = hostU32(0);
  return [
    ...load(REG.first),
    maskRegister(REG.first, hostU32(bits)),
    not ? isEqual(REG.first, none) : isNotEqual(REG.first, none),
  ];
}

/** One value: bytes, compared through `mask` if present; with `to`, the start of a range. */
interface Operand {
  readonly value: Uint8Array;
  readonly mask?: Uint8Array;
  readonly to?: Uint8Array;
}

/** Maximum length of an interface name in bytes, including the terminating zero (linux/if.h, IFNAMSIZ). */
const IFNAMSIZ = 16;

/** `10.0.0.0/8`, `10.0.0.1`, `10.0.0.1-10.0.0.9`; undefined for anything else and for the other family. */
function findAddress(family: 4 | 6, word: string): Operand | undefined {
  const range = findRange(word, text => addressBytes(family, findIp(text)));
  if (range) return range;
  const cidr = word.includes('/') ? findCidr(word) : undefined;
  if (cidr === undefined) {
    const value = addressBytes(family, findIp(word));
    return value && { value };
  }
  if (cidr.ip.family !== family) return undefined;
  const value = ipToBytes(networkOf(cidr));
  return cidr.prefix === IP_BITS[family] ? { value } : { value, mask: ipToBytes(netmaskOf(cidr)) };
}

/** `8080`, `8000-8999`. */
function findPort(word: string): Operand | undefined {
  const bytes = (text: string) => {
    const port = findNumber(text, 0xffff);
    return port === undefined ? undefined : Uint8Array.of(port >> 8, port & 0xff);
  };
  const value = bytes(word);
  return value ? { value } : findRange(word, bytes);
}

/** `eth0`, `eth*`. */
function findIfname(word: string): Operand | undefined {
  const bytes = new TextEncoder().encode(word);
  if (bytes.length === 0 || bytes.length >= IFNAMSIZ || /[/\s]/.test(word)) return undefined;
  if (word.endsWith('*')) return bytes.length > 1 ? { value: bytes.subarray(0, -1) } : undefined;
  const value = new Uint8Array(IFNAMSIZ);
  value.set(bytes);
  return { value };
}

/** `42`, `0x2a`: 32 bits in host byte order. */
function findU32(word: string): Operand | undefined {
  const number = findNumber(word, 0xffff_ffff);
  return number === undefined ? undefined : { value: hostU32(number) };
}

/** Parses a name that stands for a number of this size in bytes, or the number itself. */
function findNamed(
  names: Readonly<Record<string, number>>,
  size: 1 | 4,
): (word: string) => Operand | undefined {
  return word => {
    const number = Object.hasOwn(names, word) ? names[word] : findNumber(word, size === 1 ? 0xff : 0xffff);
    if (number === undefined) return undefined;
    return { value: size === 1 ? Uint8Array.of(number) : hostU32(number) };
  };
}

function findNumber(text: string, most: number): number | undefined {
  if (!/^(\d{1,10}|0x[0-9a-f]{1,8})$/i.test(text)) return undefined;
  const number = Number(text);
  return number <= most ? number : undefined;
}

function findRange(word: string, parse: (text: string) => Uint8Array | undefined): Operand | undefined {
  const dash = word.indexOf('-');
  if (dash < 0) return undefined;
  const [from, to] = [parse(word.slice(0, dash)), parse(word.slice(dash + 1))];
  return from && to && Buffer.compare(from, to) <= 0 ? { value: from, to } : undefined;
}

function addressBytes(family: 4 | 6, ip: Ip | undefined): Uint8Array | undefined {
  return ip?.family === family ? ipToBytes(ip) : undefined;
}
