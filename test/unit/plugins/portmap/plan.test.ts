// Which mappings apply to which address of the pod?
import { describe, expect, test } from 'bun:test';
import {
  type FamilyPlan,
  MOST_MAPPINGS,
  planForwards,
  renderHostPort,
} from '../../../../plugins/portmap/plan.ts';
import type { ResultIp } from '../../../../src/cni/result.ts';
import type { PortMapping } from '../../../../src/cni/schemas.ts';
import { parseCidr, parseIp } from '../../../../src/net/ip.ts';

const WEB: PortMapping = { hostPort: 8080, containerPort: 80, protocol: 'tcp' };
const interfaces = [
  { name: 'veth1' },
  { name: 'eth0', sandbox: '/run/netns/a' },
  { name: 'eth1', sandbox: '/x' },
];
const v4: ResultIp = { address: '10.9.0.2/24', interface: 1 };
const v6: ResultIp = { address: 'fd00::2/64', interface: 1 };

function plan(mappings: PortMapping[], ips: ResultIp[] = [v4, v6]): FamilyPlan[] {
  return planForwards(mappings, { interfaces, ips }, 'eth0');
}

function families(mapping: PortMapping, ips?: ResultIp[]): number[] {
  return plan([mapping], ips).map(({ family }) => family);
}

describe('planForwards()', () => {
  test('maps a port for each family of the pod', () => {
    const forward = { protocol: 'tcp', port: 8080, containerPort: 80 } as const;
    expect(plan([WEB])).toEqual([
      { family: 4, pod: parseCidr('10.9.0.2/24'), forwards: [forward] },
      { family: 6, pod: parseCidr('fd00::2/64'), forwards: [forward] },
    ]);
  });

  test('leaves out families without an address, and is empty without any', () => {
    expect(families(WEB, [v6])).toEqual([6]);
    expect(plan([WEB], [])).toEqual([]);
    expect(planForwards([WEB], {}, 'eth0')).toEqual([]);
    expect(plan([])).toEqual([]);
  });

  test('takes no address of a device of the host, whatever its name is', () => {
    const found = planForwards(
      [WEB],
      { interfaces: [{ name: 'eth0' }], ips: [{ ...v4, interface: 0 }] },
      'eth0',
    );
    expect(found).toEqual([]);
  });

  test('takes as many mappings as the limit says, and no more', () => {
    const many = Array.from({ length: MOST_MAPPINGS + 1 }, (_, i) => ({ ...WEB, hostPort: i + 1 }));
    expect(plan(many.slice(1), [v4])[0]?.forwards).toHaveLength(MOST_MAPPINGS);
    expect(() => plan(many, [v4])).toThrow('at most 8192 mappings');
  });

  test.each([
    ['', [4, 6], undefined],
    ['0.0.0.0', [4], undefined],
    ['::', [6], undefined],
    ['192.0.2.1', [4], '192.0.2.1'],
    ['::ffff:192.0.2.1', [4], '192.0.2.1'],
    ['2001:db8::1', [6], '2001:db8::1'],
  ])('uses hostIP "%s" for families %j', (hostIP, expected, ip) => {
    expect(families({ ...WEB, hostIP })).toEqual(expected);
    expect(plan([{ ...WEB, hostIP }])[0]?.forwards[0]?.ip).toEqual(
      ip === undefined ? undefined : parseIp(ip),
    );
  });

  test('uses the first address that may belong to the interface', () => {
    const pods = (...ips: ResultIp[]) => plan([WEB], ips).map(({ pod }) => pod);
    const host = { address: '10.9.0.1/24', interface: 0 };
    const other = { address: '10.9.0.3/24', interface: 2 };
    expect(pods(host, other, v4)).toEqual([parseCidr('10.9.0.2/24')]);
    for (const index of [-1, 9, undefined]) {
      const loose = { address: '10.9.0.7/24', ...(index === undefined ? {} : { interface: index }) };
      expect(pods(host, loose, v4)).toEqual([parseCidr('10.9.0.7/24')]);
    }
  });

  test('accepts protocols in any letter case, and defaults to TCP', () => {
    const protocols = ['TCP', 'Udp', 'sctp', ''].map(
      protocol => plan([{ ...WEB, protocol }])[0]?.forwards[0]?.protocol,
    );
    expect(protocols).toEqual(['tcp', 'udp', 'sctp', 'tcp']);
    expect(plan([{ hostPort: 1, containerPort: 2 }])[0]?.forwards[0]?.protocol).toBe('tcp');
  });

  test('treats a duplicate mapping as one', () => {
    expect(plan([WEB, { ...WEB, hostIP: '' }, { ...WEB, protocol: 'udp' }])[0]?.forwards).toHaveLength(2);
  });

  test.each([
    [
      [{ ...WEB, protocol: 'icmp' }],
      'Cannot map host port 8080: "protocol" must be one of tcp, udp, sctp, found "icmp"',
    ],
    [[{ ...WEB, hostIP: 'here' }], 'Cannot map host port 8080: "hostIP" must be an IP address, found "here"'],
    [[WEB, { ...WEB, containerPort: 81 }], 'Cannot map host port 8080/tcp to container ports 80 and 81'],
  ])('refuses %j', (mappings, words) => {
    expect(() => plan(mappings)).toThrow(words);
  });
});

test('renderHostPort() names address, port and protocol', () => {
  const port = { protocol: 'udp', port: 53 } as const;
  expect(renderHostPort(port)).toBe('53/udp');
  expect(renderHostPort({ ...port, ip: parseIp('192.0.2.1') })).toBe('192.0.2.1:53/udp');
  expect(renderHostPort({ ...port, ip: parseIp('fd00::1') })).toBe('[fd00::1]:53/udp');
});
