import { describe, expect, test } from 'bun:test';
import { isLoopback, planResult } from '../../../../plugins/loopback/plugin.ts';
import { parseCidr } from '../../../../src/net/ip.ts';

describe('planResult()', () => {
  test('reports the first loopback address of each family', () => {
    const addresses = ['127.0.0.1/8', '10.0.0.1/32', '127.0.0.2/8', '::1/128'].map(parseCidr);
    expect(planResult(addresses, '/run/netns/a')).toEqual({
      interfaces: [{ name: 'lo', mac: '00:00:00:00:00:00', sandbox: '/run/netns/a' }],
      ips: [
        { address: '127.0.0.1/8', interface: 0 },
        { address: '::1/128', interface: 0 },
      ],
    });
  });

  test('omits a family that the kernel lacks', () => {
    expect(planResult([parseCidr('127.0.0.1/8')], '/n').ips).toHaveLength(1);
  });
});

describe('isLoopback()', () => {
  test('knows both families', () => {
    const texts = ['127.0.0.1/8', '127.255.0.9/32', '128.0.0.1/8', '::1/128', '::2/128', '0.0.0.1/8'];
    expect(texts.map(text => isLoopback(parseCidr(text)))).toEqual([true, true, false, true, false, false]);
  });
});
