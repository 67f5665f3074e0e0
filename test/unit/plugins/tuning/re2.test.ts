// Do expressions that both syntaxes know, but write differently, mean the same?
import { describe, expect, test } from 'bun:test';
import { parseRe2 } from '../../../../plugins/tuning/re2.ts';

describe('parseRe2()', () => {
  test.each([
    ['^net\\.core\\.', 'net.core.somaxconn', 'netXcore.somaxconn'],
    ['ipv4.conf', 'net/ipv4/conf/all', 'net.ipv6.conf'],
    ['^net\\.ipv4\\.conf\\.[[:alnum:]]+\\.arp$', 'net.ipv4.conf.eth0.arp', 'net.ipv4.conf.eth-0.arp'],
    ['^[^[:upper:][:digit:]]+$', 'net.core', 'net.Core1'],
    ['^[]a]$', ']', 'b'],
    ['^[^]a]$', 'b', ']'],
    ['^[a[]$', '[', ']'],
    ['^\\Qnet.(x)\\E\\.a$', 'net.(x).a', 'netX(x).a'],
    ['\\Anet\\z', 'net', 'net\n'],
    ['(?P<family>ipv4|ipv6)\\.conf', 'net.ipv6.conf', 'net.mpls.conf'],
    ['(?i)^NET', 'net.core', 'kernel.net'],
    ['^(?:a|b)\\x{2e}c$', 'a.c', 'axc'],
    ['^\\w+\\.\\d$', 'net.1', 'net.x'],
    ['[.[:space:]/]x', 'net/x', 'net-x'],
  ])('%s matches "%s" and not "%s"', (text, taken, refused) => {
    expect(parseRe2(text).test(taken)).toBe(true);
    expect(parseRe2(text).test(refused)).toBe(false);
  });

  test.each([
    '(',
    '[',
    'a{2,1}',
    '\\pL',
    '[\\pL]',
    '[[:nosuch:]]',
    '[[:^alpha:]]',
    '\\C',
    '\\x{10ffff}',
    '(?U)a+',
  ])('refuses %s', text => {
    expect(() => parseRe2(text)).toThrow();
  });
});
