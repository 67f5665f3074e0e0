// Are matches in the words of nft understood as nft does, and is all else refused with the reason?
import { describe, expect, test } from 'bun:test';
import type { Expression } from '../../../../src/netlink/nft/expr.ts';
import { canonicalMatch, MatchError, parseMatch } from '../../../../src/netlink/nft/match.ts';

describe('parseMatch()', () => {
  test.each<[string, string[]]>([
    ['ip saddr 10.0.0.1', ['payload 12+4, cmp eq 0a000001']],
    ['ip daddr == 10.1.2.3/8', ['payload 16+4, bitwise ff000000, cmp eq 0a000000']],
    ['ip saddr != 10.0.0.0/8', ['payload 12+4, bitwise ff000000, cmp ne 0a000000']],
    ['ip saddr 10.0.0.1-10.0.0.9', ['payload 12+4, cmp ge 0a000001, cmp le 0a000009']],
    ['ip saddr != 10.0.0.1-10.0.0.9', ['payload 12+4, range ne 0a000001-0a000009']],
    ['ip saddr { 10.0.0.1, 10.0.0.2 }', ['payload 12+4, cmp eq 0a000001', 'payload 12+4, cmp eq 0a000002']],
    ['ip saddr != {10.0.0.1,10.0.0.2}', ['payload 12+4, cmp ne 0a000001, payload 12+4, cmp ne 0a000002']],
    ['iifname "eth0"', [`meta 6, cmp eq ${name('eth0')}`]],
    ['meta oifname != eth*', ['meta 7, cmp ne 657468']],
    ['tcp dport 80-90', ['meta 16, cmp eq 06, payload 2+2, cmp ge 0050, cmp le 005a']],
    ['udp sport < 1024', ['meta 16, cmp eq 11, payload 0+2, cmp lt 0400']],
    ['th dport ge 1024', ['payload 2+2, cmp ge 0400']],
    ['meta mark 0x10', ['meta 3, cmp eq 10000000']],
    ['mark & 0xff != 16', ['meta 3, bitwise ff000000, cmp ne 10000000']],
    ['ct mark and 1 == 1', ['ct 3, bitwise 01000000, cmp eq 01000000']],
    ['ct state new,established', ['ct 0, bitwise 0a000000, cmp ne 00000000']],
    ['ct state != { invalid }', ['ct 0, bitwise 01000000, cmp eq 00000000']],
    ['meta l4proto { tcp, 17 }', ['meta 16, cmp eq 06', 'meta 16, cmp eq 11']],
    ['ip protocol sctp', ['meta 16, cmp eq 84']],
    ['fib saddr type != local', ['fib 1, cmp ne 02000000']],
    ['meta skuid 1000', ['meta 10, cmp eq e8030000']],
    [
      'iifname eth0 ip saddr { 10.0.0.1, 10.0.0.2 }',
      [
        `meta 6, cmp eq ${name('eth0')}, payload 12+4, cmp eq 0a000001`,
        `meta 6, cmp eq ${name('eth0')}, payload 12+4, cmp eq 0a000002`,
      ],
    ],
  ])('reads %j', (text, wanted) => {
    expect(parseMatch(4, text).map(render)).toEqual(wanted);
  });

  test('reads addresses of IPv6', () => {
    expect(parseMatch(6, 'ip6 daddr fd00::1').map(render)).toEqual([
      'payload 24+16, cmp eq fd000000000000000000000000000001',
    ]);
  });

  test.each([
    ['', 'it is empty'],
    ['ip6 saddr fd00::1', '"ip6 saddr" is not of IPv4'],
    ['ip saddr fd00::1', '"ip saddr" takes an IPv4 address, found "fd00::1"'],
    ['ip saddr 10.0.0.9-10.0.0.1', 'takes an IPv4 address'],
    ['ip saddr', '"ip saddr" lacks a value before "the end"'],
    ['ip saddr { 10.0.0.1', 'the set of "ip saddr" has no end'],
    ['ip saddr != != 10.0.0.1', 'lacks a value before "!="'],
    ['ip saddr @friends', 'takes an IPv4 address, found "@friends"'],
    ['iifname "eth0', 'a quote has no end'],
    ['iifname a-name-that-is-too-long', 'takes the name of an interface'],
    ['iifname < eth0', 'cannot be compared with "< eth0"'],
    ['tcp dport http', 'takes a port as a number, found "http"'],
    ['tcp dport 65536', 'takes a port as a number'],
    ['tcp dport < { 1, 2 }', 'cannot be compared with "< 1, 2"'],
    ['ip saddr & 255.0.0.0 == 10.0.0.0', 'cannot be masked'],
    ['ct state fresh', 'takes one of invalid, established, related, new, untracked, found "fresh"'],
    ['ct state < new', 'cannot be compared with "<"'],
    ['limit rate 1/second', '"limit rate" is not a supported match: ip saddr'],
    ['ip saddr 10.0.0.1 accept', '"accept" is not a supported match'],
    ['drop', '"drop" is not a supported match'],
    [`tcp dport { ${'1,'.repeat(64)} 2 }`, 'more than 64 combinations'],
  ])('refuses %j', (text, problem) => {
    expect(() => parseMatch(4, text)).toThrow(MatchError);
    expect(() => parseMatch(4, text)).toThrow(problem);
  });
});

test('canonicalMatch() is the same for the same match', () => {
  expect(canonicalMatch('ip  saddr!={10.0.0.1,10.0.0.2}')).toBe('ip saddr != { 10.0.0.1 , 10.0.0.2 }');
  expect(canonicalMatch('iifname "eth0"')).toBe('iifname eth0');
});

const CMP = ['eq', 'ne', 'lt', 'le', 'gt', 'ge'];

function render(rule: readonly Expression[]): string {
  return rule.map(renderOne).join(', ');
}

function renderOne({ name: kind, data }: Expression): string {
  // biome-ignore lint/suspicious/noExplicitAny: whatever the kind has
  const own = data as any;
  const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');
  if (kind === 'payload') return `payload ${own.offset}+${own.length}`;
  if (kind === 'cmp') return `cmp ${CMP[own.op]} ${hex(own.data.value)}`;
  if (kind === 'bitwise') return `bitwise ${hex(own.mask.value)}`;
  if (kind === 'range') return `range ne ${hex(own.from.value)}-${hex(own.to.value)}`;
  if (kind === 'fib') return `fib ${own.flags}`;
  return `${kind} ${own.key}`;
}

function name(text: string): string {
  return Buffer.from(text.padEnd(16, '\0')).toString('hex');
}
