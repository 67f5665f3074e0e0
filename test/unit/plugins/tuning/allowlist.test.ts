import { describe, expect, test } from 'bun:test';
import {
  parseAllowlist,
  parseRe2,
  planSysctls,
  readAllowlist,
  readSysctlKey,
  refuseUnlisted,
} from '../../../../plugins/tuning/allowlist.ts';

const sysctls = (...keys: string[]) => planSysctls([Object.fromEntries(keys.map(key => [key, '1']))], 'eth0');

describe('parseAllowlist()', () => {
  test('trims lines, skips empty ones and accepts flags at the start', () => {
    const rules = parseAllowlist('  ^net\\.core\\.  \n\n(?i)^NET\\.IPV4\n');
    expect(rules.map(rule => rule.text)).toEqual(['^net\\.core\\.', '(?i)^NET\\.IPV4']);
    expect(() => refuseUnlisted(sysctls('net.core.somaxconn', 'net.ipv4.ip_forward'), rules)).not.toThrow();
  });

  test('names the line that is not a regular expression', () => {
    expect(() => parseAllowlist('ok\n(\n', '/x')).toThrow(
      'Cannot use "/x": line 2 is not a valid regular expression: ( (',
    );
  });
});

test('readAllowlist() reports what it cannot read', () => {
  expect(() => readAllowlist('/')).toThrow('Cannot read the list of allowed sysctls: ');
  expect(() => readAllowlist('/')).toThrow('no sysctl is allowed until "/" is readable or removed');
});

describe('refuseUnlisted()', () => {
  test('allows everything without a list', () => {
    expect(() =>
      refuseUnlisted(sysctls('net.core.somaxconn'), readAllowlist('/nonexistent/list')),
    ).not.toThrow();
  });

  test('refuses everything when the list is empty', () => {
    expect(() => refuseUnlisted(sysctls('net.core.somaxconn'), [])).toThrow(
      '"net.core.somaxconn": it is not allowed, "/etc/cni/tuning/allowlist.conf" is empty',
    );
    expect(() => refuseUnlisted([], [])).not.toThrow();
  });

  test('accepts classes in RE2 syntax', () => {
    const rules = parseAllowlist('^net\\.ipv4\\.conf\\.[[:alnum:]]+\\.arp_filter$');
    expect(() => refuseUnlisted(sysctls('net.ipv4.conf.IFNAME.arp_filter'), rules)).not.toThrow();
  });

  test('matches every name as configured, anywhere in it', () => {
    const rules = parseAllowlist('ipv4.conf');
    expect(() => refuseUnlisted(sysctls('net.ipv4.conf.IFNAME.arp_filter'), rules)).not.toThrow();
    expect(() => refuseUnlisted(sysctls('net/ipv4/ip_forward'), rules)).toThrow('["ipv4.conf"]');
  });

  const detours: [key: string, rule: string, kept: string[]][] = [
    ['net.ipv4.conf/all/forwarding', '^net\\.ipv4\\.[^.]*$', ['net/ipv4/conf.all.forwarding']],
    ['net/ipv4/conf.all.forwarding', '^net/ipv4/[^/]*$', ['net/ipv4/conf.all.forwarding']],
    ['/net/ipv4/ip_forward', '^[^n]', []],
  ];
  for (const [key, rule, kept] of detours) {
    test(`judges where "${key}" leads, and not only how it is spelled`, () => {
      const judge = () => refuseUnlisted(sysctls(key), parseAllowlist(rule)).flatMap(({ paths }) => paths);
      if (kept.length === 0) expect(judge).toThrow(`"${key}", which is "net.ipv4.ip_forward"`);
      else expect(judge()).toEqual(kept);
    });
  }

  test('accepts names with slashes, and interfaces with dots, if a line is written that way', () => {
    const cases: [key: string, rule: string, paths: string[]][] = [
      ['net/core/somaxconn', '^net/core/', ['net/core/somaxconn']],
      [
        'net.ipv4.conf.eth0/100.arp_filter',
        '^net\\.ipv4\\.conf\\.eth0/100\\.arp_filter$',
        ['net/ipv4/conf/eth0.100/arp_filter'],
      ],
      [
        'net.ipv4.conf.IFNAME.arp_filter',
        '^net\\.ipv4\\.conf\\.IFNAME\\.arp_filter$',
        ['net/ipv4/conf/eth0/arp_filter'],
      ],
    ];
    for (const [key, rule, paths] of cases) {
      expect(refuseUnlisted(sysctls(key), parseAllowlist(rule)).flatMap(one => one.paths)).toEqual(paths);
    }
  });
});

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

describe('readSysctlKey()', () => {
  const table: [key: string, ifname: string, paths: string[]][] = [
    ['net.core.somaxconn', 'eth0', ['net/core/somaxconn']],
    ['net/core/somaxconn', 'eth0', ['net/core/somaxconn']],
    ['/net/core/somaxconn', 'eth0', ['net/core/somaxconn']],
    ['net.ipv4.conf.IFNAME.arp_filter', 'eth0', ['net/ipv4/conf/eth0/arp_filter']],
    ['net/ipv4/conf/IFNAME/arp_filter', 'eth0.100', ['net/ipv4/conf/eth0.100/arp_filter']],
    ['net.ipv4.conf.IFNAME.IFNAME', '$&', ['net/ipv4/conf/$&/IFNAME']],
    ['net.ipv4.conf.eth0/100.arp', 'eth0', ['net/ipv4/conf/eth0/100/arp', 'net/ipv4/conf/eth0.100/arp']],
    ['net/ipv4/conf/eth0.100/arp', 'eth0', ['net/ipv4/conf/eth0/100/arp', 'net/ipv4/conf/eth0.100/arp']],
  ];
  for (const [key, ifname, paths] of table) {
    test(`${key} on ${ifname}`, () => expect<string[]>(readSysctlKey(key, ifname)).toEqual(paths));
  }

  for (const key of [
    'kernel.hostname',
    '',
    'net',
    'netx.core',
    'vm/swappiness',
    'kernel/net/x',
    'xnet.core.y',
  ]) {
    test(`refuses "${key}"`, () =>
      expect(() => readSysctlKey(key, 'eth0')).toThrow('invalid net sysctl key'));
  }

  for (const key of [
    'net.core.//.ipv4.ip_forward',
    'net/core/../ipv4/ip_forward',
    'net.core./../ipv4.ip_forward',
    'net.core...ipv4.ip_forward',
    'net/core/./somaxconn',
    'net.core..somaxconn',
    'net//core/somaxconn',
    '//net/core/somaxconn',
    'net.core.somaxconn.',
    '.net.core.somaxconn',
  ]) {
    test(`refuses "${key}", which leads elsewhere than it says`, () =>
      expect(() => readSysctlKey(key, 'eth0')).toThrow(
        `invalid net sysctl key: "${key}", it has an empty component`,
      ));
  }

  test('never leaves net, however it is read', () => {
    for (const key of ['net/../kernel/hostname', 'net/../../etc/passwd', 'net.ipv4/../x', '../net/x']) {
      expect(() => readSysctlKey(key, 'eth0')).toThrow('invalid net sysctl key');
    }
    for (const ifname of ['..', '.', '../../kernel', 'a/../b']) {
      expect(() => readSysctlKey('net.ipv4.conf.IFNAME.x', ifname)).toThrow('invalid net sysctl key');
    }
  });
});

describe('planSysctls()', () => {
  test('keeps the order and lets the later source win', () => {
    const planned = planSysctls(
      [
        { 'net.a': '1', 'net.b': '2' },
        { 'net/a': '3', 'net.c': '4' },
      ],
      'eth0',
    );
    expect(planned.map(({ key, value }) => [key, value])).toEqual([
      ['net/a', '3'],
      ['net.b', '2'],
      ['net.c', '4'],
    ]);
  });

  test('refuses two spellings of one parameter in one source', () => {
    expect(() => planSysctls([{ 'net.a': '1', 'net/a': '2' }], 'eth0')).toThrow(
      'duplicated sysctl keys are not allowed',
    );
    expect(() => planSysctls([{ 'net.x.IFNAME': '1', 'net.x.eth0': '2' }], 'eth0')).toThrow(
      'duplicated sysctl keys',
    );
  });

  test('accepts no sources', () => {
    expect(planSysctls([undefined, {}], 'eth0')).toEqual([]);
  });
});
