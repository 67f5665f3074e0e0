import { describe, expect, test } from 'bun:test';
import { derivedMac } from '../../../src/attach/mac.ts';
import { isUnicastMac, parseMac } from '../../../src/net/mac.ts';

const SEGMENT = '52:54:00:12:34:56';

describe('derivedMac()', () => {
  const owner = { network: 'podnet', containerId: 'web-1', ifname: 'eth0' };

  test('is the same for an attachment, and another for any part of it and on another segment', () => {
    const mac = derivedMac(owner, SEGMENT);
    expect(derivedMac({ ...owner }, SEGMENT)).toBe(mac);
    const others = [
      derivedMac({ ...owner, network: 'podnet2' }, SEGMENT),
      derivedMac({ ...owner, containerId: 'web-2' }, SEGMENT),
      derivedMac({ ...owner, ifname: 'eth1' }, SEGMENT),
      derivedMac(owner, '52:54:00:12:34:57'),
    ];
    expect(new Set([mac, ...others]).size).toBe(5);
  });

  test('is a unicast address, locally administered', () => {
    for (let i = 0; i < 200; i++) {
      const bytes = parseMac(derivedMac({ ...owner, containerId: `c${i}` }, SEGMENT));
      expect(isUnicastMac(bytes)).toBe(true);
      expect((bytes[0] ?? 0) & 2).toBe(2);
    }
  });

  test('does not repeat among 5,000 containers with consecutive ids', () => {
    const seen = new Set<string>();
    for (let i = 0; i < 5_000; i++) seen.add(derivedMac({ ...owner, containerId: `web-${i}` }, SEGMENT));
    expect(seen.size).toBe(5_000);
  });
});
