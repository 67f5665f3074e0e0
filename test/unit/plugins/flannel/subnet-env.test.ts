import { describe, expect, test } from 'bun:test';
import { parseSubnetEnv, readSubnetEnv } from '../../../../plugins/flannel/subnet-env.ts';
import { renderCidr } from '../../../../src/net/cidr.ts';

function parse(...lines: string[]) {
  const { networks, subnets, ...rest } = parseSubnetEnv(lines.join('\n'), 'subnet.env');
  return { networks: networks.map(renderCidr), subnets: subnets.map(renderCidr), ...rest };
}

const V4 = ['FLANNEL_NETWORK=10.244.0.0/16', 'FLANNEL_SUBNET=10.244.3.1/24'];
const V6 = ['FLANNEL_IPV6_NETWORK=fd00:244::/48', 'FLANNEL_IPV6_SUBNET=fd00:244:0:3::1/64'];
const REST = ['FLANNEL_MTU=1450', 'FLANNEL_IPMASQ=true'];

describe('parseSubnetEnv()', () => {
  test('reads one family or both, subnets without their host bits', () => {
    const rest = { mtu: 1450, ipMasq: true };
    const [v4, v6] = ['10.244.0.0/16', 'fd00:244::/48'];
    expect(parse(...V4, ...REST)).toEqual({ networks: [v4], subnets: ['10.244.3.0/24'], ...rest });
    expect(parse(...V6, ...REST)).toEqual({ networks: [v6], subnets: ['fd00:244:0:3::/64'], ...rest });
    expect(parse(...REST, ...V6, '# by flanneld', '', ...V4)).toEqual({
      networks: [v4, v6],
      subnets: ['10.244.3.0/24', 'fd00:244:0:3::/64'],
      ...rest,
    });
  });

  test('several networks are separated by commas', () => {
    const { networks } = parse(
      'FLANNEL_NETWORK=10.1.0.0/16,10.2.0.0/16',
      'FLANNEL_SUBNET=10.1.1.1/24',
      ...REST,
    );
    expect(networks).toEqual(['10.1.0.0/16', '10.2.0.0/16']);
  });

  test('only "true" means that flanneld masquerades', () => {
    expect(parse(...V4, 'FLANNEL_MTU=1450', 'FLANNEL_IPMASQ=1').ipMasq).toBe(false);
  });

  test.each([
    [
      [],
      'it lacks FLANNEL_NETWORK or FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET or FLANNEL_IPV6_SUBNET, FLANNEL_MTU',
    ],
    [[...V4, 'FLANNEL_MTU=1450'], 'it lacks FLANNEL_IPMASQ'],
    [[...V4, 'FLANNEL_MTU=big', 'FLANNEL_IPMASQ=true'], 'FLANNEL_MTU is "big"'],
    [['FLANNEL_NETWORK=10.244.0.0', ...REST], 'FLANNEL_NETWORK is "10.244.0.0", expected IPv4 subnets'],
    [['FLANNEL_NETWORK=fd00::/48', ...REST], 'FLANNEL_NETWORK is "fd00::/48", expected IPv4 subnets'],
  ])('refuses %j', (lines, gist) => {
    expect(() => parse(...lines)).toThrow(
      expect.objectContaining({ code: 7, message: expect.stringContaining(gist) }),
    );
  });
});

describe('readSubnetEnv()', () => {
  test('fails with code 11 while flanneld has not written the file', () => {
    expect(() => readSubnetEnv('/nonexistent/subnet.env')).toThrow(
      expect.objectContaining({ code: 11, message: expect.stringContaining('it does not exist') }),
    );
  });
});
