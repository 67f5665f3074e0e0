import { describe, expect, test } from 'bun:test';
import { planSysctls, readSysctlKey } from '../../../../plugins/tuning/sysctl-key.ts';

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
