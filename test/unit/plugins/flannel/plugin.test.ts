import { describe, expect, test } from 'bun:test';
import { FlannelConf } from '../../../../plugins/flannel/config.ts';
import { planDelegate } from '../../../../plugins/flannel/plugin.ts';
import { parseSubnetEnv } from '../../../../plugins/flannel/subnet-env.ts';
import { decode } from '../../../../src/cni/json.ts';

const ENV = parseSubnetEnv(
  [
    'FLANNEL_NETWORK=10.244.0.0/16',
    'FLANNEL_SUBNET=10.244.3.1/24',
    'FLANNEL_IPV6_NETWORK=fd00:244::/48',
    'FLANNEL_IPV6_SUBNET=fd00:244:0:3::1/64',
    'FLANNEL_MTU=1450',
    'FLANNEL_IPMASQ=true',
  ].join('\n'),
  'subnet.env',
);

function plan(conf: object, env = ENV) {
  const all = { cniVersion: '1.0.0', name: 'cbr0', type: 'flannel', ...conf };
  return planDelegate(decode(FlannelConf, all, 'conf'), env);
}

describe('planDelegate()', () => {
  test('derives a bridge from the file alone', () => {
    expect(plan({})).toEqual({
      cniVersion: '1.0.0',
      name: 'cbr0',
      type: 'bridge',
      mtu: 1450,
      ipMasq: false,
      isGateway: true,
      ipam: {
        type: 'host-local',
        ranges: [[{ subnet: '10.244.3.0/24' }], [{ subnet: 'fd00:244:0:3::/64' }]],
        routes: [{ dst: '10.244.0.0/16' }, { dst: 'fd00:244::/48' }],
      },
    });
  });

  test('prefers the options of the delegate, and masquerades if flanneld does not', () => {
    const delegate = { mtu: 1400, isGateway: false, bridge: 'br9', hairpinMode: true };
    expect(plan({ delegate }, { ...ENV, ipMasq: false })).toMatchObject({ ...delegate, ipMasq: true });
    expect(plan({ delegate: { ipMasq: true } })).toMatchObject({ ipMasq: true });
  });

  test('only a bridge gets a gateway', () => {
    expect(plan({ delegate: { type: 'ipvlan', master: 'eth0' } })).not.toHaveProperty('isGateway');
  });

  test('adds to the IPAM configuration: subnets replace ranges, networks follow routes', () => {
    const ipam = {
      type: 'other',
      dataDir: '/d',
      ranges: [[{ subnet: '10.9.0.0/24' }]],
      routes: [{ dst: '0.0.0.0/0' }],
    };
    expect(plan({ ipam }).ipam).toEqual({
      type: 'other',
      dataDir: '/d',
      ranges: [[{ subnet: '10.244.3.0/24' }], [{ subnet: 'fd00:244:0:3::/64' }]],
      routes: [{ dst: '0.0.0.0/0' }, { dst: '10.244.0.0/16' }, { dst: 'fd00:244::/48' }],
    });
  });

  test('passes on runtimeConfig', () => {
    const runtimeConfig = { portMappings: [{ hostPort: 1 }] };
    expect(plan({ runtimeConfig, delegate: { runtimeConfig: {} } })).toMatchObject({ runtimeConfig });
  });
});
