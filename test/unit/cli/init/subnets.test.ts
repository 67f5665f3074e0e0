// Which subnets are suggested, accepted and refused for a new network?
import { describe, expect, test } from 'bun:test';
import { UsageError } from '../../../../src/cli/command.ts';
import { readAddressing, suggestSubnet, type Taken } from '../../../../src/cli/init/subnets.ts';
import { parseCidr, renderCidr } from '../../../../src/net/ip.ts';

const takenBy = (...texts: string[]): Taken[] =>
  texts.map(text => ({ cidr: parseCidr(text), by: `the route to ${text} on "eth0"` }));

describe('suggestSubnet()', () => {
  test('is the first candidate that overlaps with nothing', () => {
    expect(renderCidr(suggestSubnet(4, []))).toBe('10.200.0.0/24');
    expect(renderCidr(suggestSubnet(4, takenBy('10.200.0.0/16', '10.201.0.7/32')))).toBe('10.201.1.0/24');
  });

  test('leaves 10.0.0.0/8 if all of it is routed', () => {
    expect(renderCidr(suggestSubnet(4, takenBy('10.0.0.0/8')))).toBe('192.168.255.0/24');
  });

  test('fails if all candidates are taken', () => {
    expect(() => suggestSubnet(4, takenBy('10.0.0.0/8', '192.168.0.0/16'))).toThrow('--subnet');
  });

  test('is a local /64 of a random site in IPv6', () => {
    const sites = ['fd00:1:2::/64', 'fd00:1:3::/64'];
    const next = (): string => sites.shift() ?? '';
    expect(renderCidr(suggestSubnet(6, takenBy('fd00:1:2::/48'), next))).toBe('fd00:1:3::/64');
    expect(renderCidr(suggestSubnet(6, []))).toMatch(/^fd[0-9a-f]{2}:.*::\/64$/);
  });
});

describe('readAddressing()', () => {
  const read = (...words: string[]) => {
    const found = readAddressing(words, takenBy('10.7.0.0/16'), false, [4, 6]);
    return typeof found === 'string' ? found : found.map(renderCidr);
  };

  test('takes subnets, and words that stand for free ones', () => {
    expect(read('10.1.0.0/30', 'fd00:9::/64')).toEqual(['10.1.0.0/30', 'fd00:9::/64']);
    expect(read('auto4')).toEqual(['10.200.0.0/24']);
    expect(read('auto')).toHaveLength(2);
    expect(read('none')).toBe('none');
    expect(readAddressing(['dhcp'], [], true, [4])).toBe('server');
  });

  test('"auto" is of the families that the kernel has, "auto6" is what was asked for', () => {
    const count = (word: string) => readAddressing([word], [], false, [4]).length;
    expect([count('auto'), count('auto4'), count('auto6')]).toEqual([1, 1, 1]);
    expect(readAddressing(['auto'], [], false, [4])).toMatchObject([{ ip: { family: 4 } }]);
  });

  test.each([
    [['10.7.1.0/24'], 'it overlaps with the route to 10.7.0.0/16 on "eth0"; 10.200.0.0/24 is free'],
    [['10.1.0.1/24'], 'it is an address in 10.1.0.0/24'],
    [['10.1.0.0/31'], 'it has no address for a container'],
    [['10.1.0.0/24', '10.1.0.0/25'], 'it overlaps with 10.1.0.0/24, which is also given'],
    [['ten'], 'expected one like 10.1.0.0/24'],
    [['dhcp'], 'no DHCP server of a LAN can tell'],
    [['none', '10.1.0.0/24'], 'Cannot use "none" as a subnet'],
  ])('refuses %p', (words, reason) => {
    expect(() => read(...words)).toThrow(UsageError);
    expect(() => read(...words)).toThrow(reason);
  });
});
