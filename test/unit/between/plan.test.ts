// Does a node plan a way to every block of the others: direct where it can, through a tunnel where it must?
import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import type { ClusterNode } from '../../../src/between/claims.ts';
import { type HostLink, type PlanChoices, planWays, type WaysPlan } from '../../../src/between/plan.ts';
import { cidrContains, parseCidr, parseIp, renderCidr, renderIp } from '../../../src/net/ip.ts';

const CHOICES: PlanChoices = { own: 'a', ways: 'auto', vni: 6700, port: 4789 };

function node(name: string, addresses: string[], blocks: string[]): ClusterNode {
  return { name, addresses: addresses.map(parseIp), blocks: blocks.map(parseCidr) };
}

function link(index: number, name: string, addresses: string[], mtu = 1500, isUp = true): HostLink {
  return { index, name, mtu, isUp, addresses: addresses.map(parseCidr) };
}

const ETH0 = link(2, 'eth0', ['192.0.2.1/24', '2001:db8::1/64']);
const A = node('a', ['192.0.2.1', '2001:db8::1'], ['10.244.1.0/24', 'fd00:244:1::/64']);
const B = node('b', ['192.0.2.2', '2001:db8::2'], ['10.244.2.0/24', 'fd00:244:2::/64']);
const C = node('c', ['198.51.100.3', '2001:db8:1::3'], ['10.244.3.0/24', 'fd00:244:3::/64']);

function plan(nodes: ClusterNode[], links = [ETH0], choices: Partial<PlanChoices> = {}): WaysPlan {
  const planned = planWays(nodes, links, { ...CHOICES, ...choices });
  if (planned === undefined) throw new Error('no plan');
  return planned;
}

/** `10.244.2.0/24 via 192.0.2.2 dev 2` */
function waysOf({ ways }: WaysPlan): string[] {
  return ways.map(({ dst, gateway, through }) => {
    const device = 'tunnel' in through ? through.tunnel : through.index;
    return `${renderCidr(dst)} via ${renderIp(gateway)} dev ${device}`;
  });
}

describe('planWays()', () => {
  test('bounds what one node may cost the others, by a number of blocks, and tells that once', () => {
    const blocks = Array.from({ length: 3_000 }, (_, i) => `10.${i >> 8}.${i & 255}.0/26`);
    const hostile = node('hostile', ['192.0.2.66'], blocks);
    const { ways, problems } = plan([A, B, hostile]);
    const routesOf = (name: string) => ways.filter(one => one.node === name);
    expect(routesOf('hostile')).toHaveLength(1_024);
    expect(routesOf('b')).toHaveLength(2);
    expect(problems).toEqual(['node "hostile" has 3000 blocks: those after the first 1024 get no route']);
    // This node's own are all its pods have.
    expect(plan([node('a', ['192.0.2.1'], blocks), B]).own).toHaveLength(3_000);
  });

  test('leads directly to a node of the same subnet, through a tunnel to one beyond a router', () => {
    const planned = plan([C, A, B]);
    expect(waysOf(planned)).toEqual([
      '10.244.2.0/24 via 192.0.2.2 dev 2',
      'fd00:244:2::/64 via 2001:db8::2 dev 2',
      '10.244.3.0/24 via 10.244.3.0 dev catena-vxlan',
      'fd00:244:3::/64 via fe80::8c7:c6ff:fe33:6403 dev catena-vxlan',
    ]);
    const [tunnel, more] = planned.tunnels;
    expect(more).toBeUndefined();
    expect({
      ...tunnel,
      local: renderIp(tunnel?.local ?? parseIp('::')),
      addresses: tunnel?.addresses.map(renderCidr),
      forwarding: tunnel?.forwarding.map(({ mac, to }) => `${mac} ${renderIp(to)}`),
      neighbours: tunnel?.neighbours.map(({ mac, ip }) => `${renderIp(ip)} ${mac}`),
    }).toEqual({
      name: 'catena-vxlan',
      vni: 6700,
      port: 4789,
      local: '192.0.2.1',
      mac: '0a:c7:c0:00:02:01',
      mtu: 1450,
      addresses: ['10.244.1.0/32', 'fd00:244:1::/128'],
      forwarding: ['0a:c7:c6:33:64:03 198.51.100.3'],
      neighbours: ['10.244.3.0 0a:c7:c6:33:64:03', 'fe80::8c7:c6ff:fe33:6403 0a:c7:c6:33:64:03'],
    });
    expect(planned.problems).toEqual([]);
  });

  test('needs no tunnel where all nodes share a subnet', () => {
    expect(plan([A, B]).tunnels).toEqual([]);
  });

  test('leads to every node through a tunnel, or to none, if the operator says so', () => {
    expect(waysOf(plan([A, B], [ETH0], { ways: 'vxlan' }))[0]).toBe(
      '10.244.2.0/24 via 10.244.2.0 dev catena-vxlan',
    );
    const direct = plan([A, B, C], [ETH0], { ways: 'direct' });
    expect(waysOf(direct)).toHaveLength(2);
    expect(direct.problems[0]).toBe(
      'no way to 10.244.3.0/24 of node "c": 198.51.100.3 and 2001:db8:1::3 is on no subnet of this node, and tunnels are not allowed',
    );
  });

  test('uses the smallest subnet, and no device that is down', () => {
    const wide = link(3, 'wide', ['192.0.0.1/16']);
    expect(waysOf(plan([A, B], [wide, ETH0]))[0]).toBe('10.244.2.0/24 via 192.0.2.2 dev 2');
    const down = link(2, 'eth0', ['192.0.2.1/24'], 1500, false);
    expect(waysOf(plan([A, B], [wide, down]))[0]).toContain('catena-vxlan');
  });

  test('treats an address without a subnet, as clouds give them, as beyond a router', () => {
    const cloud = link(2, 'eth0', ['192.0.2.1/32']);
    expect(waysOf(plan([A, B], [cloud]))).toEqual([
      '10.244.2.0/24 via 10.244.2.0 dev catena-vxlan',
      'fd00:244:2::/64 via fe80::8c7:c0ff:fe00:202 dev catena-vxlan',
    ]);
  });

  test('makes a tunnel over IPv6 for nodes that have nothing else, with its own overhead', () => {
    const six = [
      node('a', ['2001:db8::1'], ['10.244.1.0/24']),
      node('d', ['2001:db8:9::4'], ['10.244.4.0/24']),
    ];
    const planned = plan(six);
    expect(waysOf(planned)).toEqual(['10.244.4.0/24 via 10.244.4.0 dev catena-vxlan6']);
    expect(planned.tunnels[0]).toMatchObject({ name: 'catena-vxlan6', mtu: 1430 });
  });

  test('leads no packets elsewhere that are for own pods, however another node says that it has them', () => {
    const blocks = ['10.244.1.2/32', '10.244.0.0/16', '10.244.1.0/24', 'fd00:244:1::5/128'];
    const planned = plan([A, B, node('aaa', ['192.0.2.66'], blocks)]);
    expect(waysOf(planned)).toEqual(waysOf(plan([A, B])));
    expect(planned.problems).toHaveLength(4);
    for (const text of planned.problems) expect(text).toContain('of node "a", which is this node');
    expect(planned.own.map(renderCidr)).toEqual(['10.244.1.0/24', 'fd00:244:1::/64']);
  });

  test('of nodes that claim the same, the older one has it, whatever its name; else the one with more of it', () => {
    const since = (one: ClusterNode, at: number) => ({ ...one, since: `2026-11-26T13:0${at}:00Z` });
    for (const blocks of [['10.244.2.0/24'], ['10.244.2.7/32'], ['10.244.2.0/23']]) {
      const rogue = node('aaa', ['192.0.2.2'], blocks);
      const planned = plan([since(A, 0), since(B, 0), since(rogue, 1)]);
      expect(waysOf(planned)).toEqual(waysOf(plan([A, B])));
      // The address, too.
      expect(planned.problems).toHaveLength(2);
    }
    const part = plan([A, B, node('aaa', ['192.0.2.66'], ['10.244.2.7/32'])]);
    expect(waysOf(part)).toEqual(waysOf(plan([A, B])));
    expect(part.problems[0]).toContain('of node "b", which has more of it');
  });

  test.each([
    ['0.0.0.0/0 ::/0'],
    ['0.0.0.0/1 128.0.0.0/1 128.0.0.0/2 8000::/1'],
    ['169.254.169.254/32 127.0.0.53/32 fe80::1/128 224.0.0.0/24 ff02::/64'],
    ['10.96.0.1/32 10.96.0.0/16 8.8.8.0/24 2001:4860::/32'],
  ])(
    'leads to no default route, link-local, loopback or API server address, nor out of the cluster: %s',
    text => {
      const blocks = text.split(' ');
      const limits = { within: ['10.0.0.0/8', 'fd00::/16'].map(parseCidr), never: [parseIp('10.96.0.1')] };
      const planned = plan([A, B, node('rogue', ['192.0.2.66'], blocks)], [ETH0], { limits });
      expect(waysOf(planned)).toEqual(waysOf(plan([A, B])));
      expect(planned.problems).toHaveLength(blocks.length);
    },
  );

  test('names what cannot be', () => {
    expect(planWays([B], [ETH0], CHOICES)).toBeUndefined();
    const double = plan([A, B, node('d', ['192.0.2.4'], ['10.244.2.0/24'])]);
    expect(double.problems).toEqual([
      'block 10.244.2.0/24 of node "d" overlaps 10.244.2.0/24 of node "b", which comes first by name: it gets no route',
    ]);
    expect(waysOf(double)).toHaveLength(2);
    const loop = plan([A, node('b', ['192.0.2.2'], ['192.0.0.0/16'])]);
    expect(loop.ways).toEqual([]);
    expect(loop.problems[0]).toContain('block 192.0.0.0/16 of node "b" contains 192.0.2.1');
    expect(plan([A, node('b', [], ['10.244.2.0/24'])]).problems[0]).toContain('it has no address');
    expect(plan([A, C], [link(2, 'eth0', ['192.0.2.9/24'])]).problems[0]).toContain(
      'is on none of its devices',
    );
    const same = plan([A, node('b', ['192.0.2.1'], ['10.244.2.0/24'])]);
    expect(same.problems).toEqual([
      'address 192.0.2.1 belongs to nodes "a" and "b": the first one has it',
      'no way to 10.244.2.0/24 of node "b": it has no address',
    ]);
    const twins = plan([A, B, node('b', ['192.0.2.9'], ['10.244.9.0/24'])]);
    expect(twins.problems).toEqual([
      'nodes with addresses 192.0.2.2 and 2001:db8::2 and 192.0.2.9 are both named "b": the first one alone gets routes',
    ]);
    expect(waysOf(twins)).toEqual(waysOf(plan([A, B])));
    const small = plan([A, C], [link(2, 'eth0', ['192.0.2.1/24'], 1300)]);
    expect(small.problems.join()).toContain('leaves 1250 bytes in the tunnel');
  });
});

function addressesOf(nodes: readonly ClusterNode[]): string[] {
  return nodes.flatMap(({ addresses }) => addresses.map(renderIp));
}

const octet = fc.integer({ min: 1, max: 250 });
const someNode = fc.record({
  name: fc.constantFrom('b', 'c', 'd', 'e', 'f'),
  net: fc.constantFrom('192.0.2', '198.51.100', '203.0.113'),
  host: octet,
  v6: fc.boolean(),
  blocks: fc.array(octet, { maxLength: 4 }),
});

describe('any cluster', () => {
  const clusters = fc.uniqueArray(someNode, { selector: ({ name }) => name, maxLength: 5 }).map(some =>
    some.map(({ name, net, host, v6, blocks }) =>
      node(
        name,
        [`${net}.${host}`, ...(v6 ? [`2001:db8:${host}::1`] : [])],
        blocks.flatMap(n => [`10.244.${n}.0/24`, ...(v6 ? [`fd00:244:${n}::/64`] : [])]),
      ),
    ),
  );

  test('has one way to each block of another node, or a problem that names it', () => {
    fc.assert(
      fc.property(
        clusters,
        fc.constantFrom('auto' as const, 'direct' as const, 'vxlan' as const),
        (peers, ways) => {
          const planned = plan([A, ...peers], [ETH0], { ways });
          const wanted = new Set(
            peers
              .flatMap(peer => peer.blocks.map(renderCidr))
              .filter(text => !planned.own.map(renderCidr).includes(text)),
          );
          const reached = planned.ways.map(({ dst }) => renderCidr(dst));
          expect(new Set(reached).size).toBe(reached.length);
          for (const block of wanted)
            if (!reached.includes(block)) expect(planned.problems.join('\n')).toContain(block);
          for (const block of reached) expect(wanted.has(block)).toBe(true);
        },
      ),
      { numRuns: 500 },
    );
  });

  test('gets the same plan whatever the order of its nodes', () => {
    fc.assert(
      fc.property(clusters, peers => {
        const nodes = [A, ...peers];
        expect(plan(nodes.toReversed())).toEqual(plan(nodes));
      }),
      { numRuns: 500 },
    );
  });

  test('has a neighbour and a forwarding entry behind each way through a tunnel, and none besides', () => {
    fc.assert(
      fc.property(clusters, peers => {
        const planned = plan([A, ...peers]);
        const gateways = planned.ways
          .filter(({ through }) => 'tunnel' in through)
          .map(one => renderIp(one.gateway));
        const neighbours = planned.tunnels.flatMap(one => one.neighbours);
        expect(new Set(neighbours.map(({ ip }) => renderIp(ip)))).toEqual(new Set(gateways));
        const ends = new Set(planned.tunnels.flatMap(one => one.forwarding.map(({ mac }) => mac)));
        expect(new Set(neighbours.map(({ mac }) => mac))).toEqual(ends);
      }),
      { numRuns: 500 },
    );
  });

  test('leads directly exactly to those on a subnet of this node', () => {
    fc.assert(
      fc.property(clusters, peers => {
        for (const { node: name, through, dst } of plan([A, ...peers]).ways) {
          const ip = peers
            .find(one => one.name === name)
            ?.addresses.find(one => one.family === dst.ip.family);
          // An address that another node has counts there.
          if (ip === undefined || addressesOf([A, ...peers]).filter(text => text === renderIp(ip)).length > 1)
            continue;
          const isNear = ETH0.addresses.some(subnet => cidrContains(subnet, ip));
          expect('index' in through).toBe(isNear);
        }
      }),
      { numRuns: 500 },
    );
  });
});
