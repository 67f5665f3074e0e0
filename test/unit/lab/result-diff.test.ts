import { describe, expect, test } from 'bun:test';
import type { Result } from '../../../src/cni/result.ts';
import { diffResults } from '../../../src/lab/result-diff.ts';

const first: Result = {
  interfaces: [{ name: 'cni0' }, { name: 'eth0', sandbox: '/run/netns/a', mtu: 1400 }],
  ips: [{ address: '10.1.0.2/24', gateway: '10.1.0.1', interface: 1 }],
  routes: [{ dst: '0.0.0.0/0', gw: '10.1.0.1' }, { dst: '10.9.0.0/16' }],
  dns: { nameservers: ['10.1.0.1'], search: [], domain: 'example.org' },
};

describe('diffResults()', () => {
  test('lists everything in a first result', () => {
    expect(diffResults(undefined, first)).toEqual([
      '+ cni0',
      '+ eth0 (container), mtu 1400',
      '+ 10.1.0.2/24 gateway 10.1.0.1',
      '+ route 0.0.0.0/0 via 10.1.0.1',
      '+ route 10.9.0.0/16',
      '+ dns nameservers 10.1.0.1',
      '+ dns domain example.org',
    ]);
  });

  test('lists what a plugin added and removed', () => {
    const second: Result = {
      ...first,
      interfaces: [...(first.interfaces ?? []), { name: 'ifb9' }],
      routes: [],
    };
    expect(diffResults(first, second)).toEqual([
      '+ ifb9',
      '- route 0.0.0.0/0 via 10.1.0.1',
      '- route 10.9.0.0/16',
    ]);
  });

  test('is empty for a result that was passed on', () => {
    expect(diffResults(first, structuredClone(first))).toEqual([]);
  });
});
