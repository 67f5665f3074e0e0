import { describe, expect, test } from 'bun:test';
import { parseAllowlist, readAllowlist, refuseUnlisted } from '../../../../plugins/tuning/allowlist.ts';
import { planSysctls } from '../../../../plugins/tuning/sysctl-key.ts';

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
