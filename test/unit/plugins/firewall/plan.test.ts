// Which addresses and which interface does the firewall work with?
import { describe, expect, test } from 'bun:test';
import { planAccess } from '../../../../plugins/firewall/plan.ts';
import { renderIp } from '../../../../src/net/ip.ts';

const interfaces = [{ name: 'cni0' }, { name: 'veth1' }, { name: 'eth0', sandbox: '/run/netns/a' }];
const ips = [{ address: '10.9.0.2/24' }, { address: 'fd00::2/64' }, { address: '10.9.0.2/16' }];

describe('planAccess()', () => {
  test('uses every address once', () => {
    expect(planAccess({ ips }, 'open').pods.map(renderIp)).toEqual(['10.9.0.2', 'fd00::2']);
  });

  test('uses the first host interface for a policy, and none if the policy is open', () => {
    expect(planAccess({ ips, interfaces }, 'isolated').ingress).toEqual({
      bridge: 'cni0',
      home: 'cni0',
      policy: 'isolated',
    });
    expect(planAccess({ ips, interfaces }, 'open').ingress).toBeUndefined();
  });

  test('refuses a policy without an interface of the host', () => {
    expect(() => planAccess({ ips, interfaces: interfaces.slice(2) }, 'same-bridge')).toThrow(
      'no interface in "prevResult" is on the host',
    );
  });

  test('returns nothing for a result without addresses', () => {
    expect(planAccess({}, 'open')).toEqual({ pods: [] });
  });
});
