// Which mappings apply to which address of the pod?

import { describe, expect, test } from 'bun:test';
import {
  decodeClaim,
  decodeWay,
  type FamilyPlan,
  findIdle,
  isNoteOfContainer,
  type Means,
  MOST_MAPPINGS,
  ownerOf,
  ownerOfNote,
  placesOf,
  planElements,
  planForwards,
  renderHostPort,
  takenPlace,
} from '../../../../plugins/portmap/plan.ts';
import { conditionalSets, FIXED_SETS, SETS } from '../../../../plugins/portmap/sets.ts';
import type { ResultIp } from '../../../../src/cni/result.ts';
import type { PortMapping } from '../../../../src/cni/schemas.ts';
import { parseCidr, parseIp } from '../../../../src/net/ip.ts';
import type { ElementPlace, Entry } from '../../../../src/netlink/nft/element.ts';
import { decodeFields, encodeFields, renderFields } from '../../../../src/netlink/nft/table.ts';

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

test('findIdle() names what leads to no pod', () => {
  const own = (address: string) => ({ interfaces, ips: [{ address, interface: 1 }] });
  const idle = (hostIP: string, snat = true, address = '10.1.0.5/24') =>
    findIdle([{ ...WEB, hostIP }], own(address), 'eth0', snat);
  expect(idle('127.0.0.1')).toEqual([]);
  expect(idle('127.0.0.1', false)).toEqual([
    'Host port 127.0.0.1:8080/tcp is not forwarded: answers to a loopback address leave no pod without "snat": true',
  ]);
  expect(idle('192.0.2.1', false)).toEqual([]);
  expect(idle('192.0.2.1', true, 'fd00::5/64')).toEqual([
    'Host port 192.0.2.1:8080/tcp is not forwarded: the pod has no IPv4 address',
  ]);
});

test('renderHostPort() names address, port and protocol', () => {
  const port = { protocol: 'udp', port: 53 } as const;
  expect(renderHostPort(port)).toBe('53/udp');
  expect(renderHostPort({ ...port, ip: parseIp('192.0.2.1') })).toBe('192.0.2.1:53/udp');
  expect(renderHostPort({ ...port, ip: parseIp('fd00::1') })).toBe('[fd00::1]:53/udp');
});

const owner = ownerOf({ network: 'podnet', containerId: 'ctr1', ifname: 'eth0' });
const plans: FamilyPlan[] = [
  {
    family: 4,
    pod: parseCidr('10.9.0.2/24'),
    forwards: [
      { protocol: 'tcp', port: 8080, containerPort: 80 },
      { protocol: 'udp', port: 53, containerPort: 5353, ip: parseIp('192.0.2.1') },
    ],
  },
  {
    family: 6,
    pod: parseCidr('fd00::2/64'),
    forwards: [{ protocol: 'sctp', port: 9, containerPort: 9, ip: parseIp('2001:db8::1') }],
  },
];

const LOCAL: Means = { backend: 'nftables', conditions: { 4: '', 6: '' }, masquerading: 'local' };
const CONDITIONAL: Means = { ...LOCAL, conditions: { 4: 'abc', 6: '' } };
const IPTABLES: Means = { ...LOCAL, backend: 'iptables' };

describe('ownerOf()', () => {
  test('has a readable note and a handle that fits an interface name', () => {
    expect(owner.note).toBe('catena:podnet/ctr1/eth0');
    expect(owner.handle).toMatch(/^[0-9a-f]{15}$/);
    expect(ownerOf({ network: 'podnet', containerId: 'ctr1', ifname: 'eth1' }).handle).not.toBe(owner.handle);
  });

  test('keeps the note of a long container id short enough for nft', () => {
    const { note } = ownerOf({ network: 'podnet', containerId: 'x'.repeat(200), ifname: 'eth0' });
    expect(note.length).toBeLessThan(128);
    expect(note).toStartWith('catena:podnet/');
  });

  test('is found by its note, except for parts that are hashed', () => {
    expect(ownerOfNote(owner.note)).toEqual(owner);
    const long = ownerOf({ network: 'podnet', containerId: 'x'.repeat(200), ifname: 'eth0' });
    expect(ownerOfNote(long.note)).toEqual({ note: long.note, handle: long.handle });
  });

  test('a note names its container on every network, also with a digest', () => {
    const on = (network: string, containerId = 'x'.repeat(64)) =>
      ownerOf({ network, containerId, ifname: 'eth0' });
    const [short, long] = [on('podnet'), on('n'.repeat(60))];
    for (const note of [short.note, long.note])
      for (const own of [short, long]) expect(isNoteOfContainer(note, own)).toBe(true);
    for (const { note } of [on('podnet', 'y'.repeat(64)), on('n'.repeat(60), 'y'.repeat(64))])
      for (const own of [short, long]) expect(isNoteOfContainer(note, own)).toBe(false);
  });
});

describe('planElements()', () => {
  const text = ({ set, element }: Entry) => `${set.name} ${renderFields(element.key)}`;

  test('lists everything of one IP version', () => {
    const [v4] = plans.map(plan => planElements(plan, owner, LOCAL).map(text));
    expect(v4).toEqual([
      'wildcard4 6 . 8080',
      'specific4 192.0.2.1 . 17 . 53',
      `claims4 ${owner.handle} . 0`,
      `claims4 ${owner.handle} . 1`,
      'pods4 10.9.0.2',
      'snat4 10.9.0.2',
      'hairpin4 10.9.0.0 . 10.9.0.2',
    ]);
  });

  test.each([
    ['none', [], undefined],
    ['local', ['snat6', 'hairpin6'], 'snat6_64'],
    ['all', ['snat6'], 'snat_all'],
  ] as const)('masquerades %s', (masquerading, sets, chain) => {
    const [, plan] = plans;
    const entries = plan ? planElements(plan, owner, { ...LOCAL, masquerading }) : [];
    const own = entries.filter(({ set }) => /snat|hairpin/.test(set.name));
    expect(own.map(({ set }) => set.name)).toEqual([...sets]);
    expect(own[0]?.element.data).toEqual(chain === undefined ? undefined : { code: -4, chain });
  });

  test('keeps elements with conditions separate, and records that', () => {
    const [v4] = plans.map(plan => planElements(plan, owner, CONDITIONAL).map(text));
    expect(v4?.slice(0, 2)).toEqual(['wildcard4_abc 6 . 8080', 'specific4_abc 192.0.2.1 . 17 . 53']);
    expect(v4).toContain(`means4 ${owner.handle}`);
  });

  test('does not forward what iptables forwards', () => {
    const [v4] = plans.map(plan => planElements(plan, owner, IPTABLES).map(text));
    expect(v4).toEqual([
      'iptables4  . 0.0.0.0 . 6 . 8080',
      'iptables4  . 192.0.2.1 . 17 . 53',
      `claims4 ${owner.handle} . 0`,
      `claims4 ${owner.handle} . 1`,
      `means4 ${owner.handle}`,
      'pods4 10.9.0.2',
    ]);
  });

  test('names the owner in every element', () => {
    for (const { element } of plans.flatMap(plan => planElements(plan, owner, LOCAL))) {
      expect(element.comment).toBe(owner.note);
    }
  });

  test('uses sets of the skeleton, and values that fit them', () => {
    for (const { set, element } of plans.flatMap(plan => planElements(plan, owner, LOCAL))) {
      expect(FIXED_SETS).toContain(set);
      expect(decodeFields(set.key, encodeFields(set.key, element.key))).toEqual([...element.key]);
    }
  });
});

describe('placesOf()', () => {
  test.each([
    ['nftables', LOCAL],
    ['conditions', CONDITIONAL],
    ['iptables', IPTABLES],
  ])('leads from the claims to every element that names the owner: %s', (_name, means) => {
    const text = ({ set, key }: ElementPlace) => `${set.name} ${renderFields(key)}`;
    for (const plan of plans) {
      const entries = planElements(plan, owner, means);
      const way = decodeWay(entries.find(({ set }) => set === SETS[plan.family].means)?.element);
      expect(way).toEqual({ backend: means.backend, condition: means.conditions[plan.family] });
      const claims = entries
        .filter(({ set }) => set === SETS[plan.family].claims)
        .map(({ element }) => decodeClaim(plan.family, element, way));
      const found = new Set(claims.flatMap(claim => placesOf(claim, owner)).map(text));
      for (const { set, element } of entries) expect(found).toContain(text({ set, key: element.key }));
    }
  });
});

test('takenPlace() distinguishes ports of one address from those of all', () => {
  const port = { protocol: 'tcp', port: 80, backend: 'nftables', condition: '' } as const;
  expect(takenPlace({ ...port, family: 4 })).toEqual({ set: SETS[4].wildcard, key: [6, 80] });
  const ip = parseIp('fd00::1');
  expect(takenPlace({ ...port, family: 6, ip })).toEqual({ set: SETS[6].specific, key: [ip, 6, 80] });
  expect(takenPlace({ ...port, family: 6, ip, condition: 'abc' }).set).toEqual(
    conditionalSets(6, 'abc').specific,
  );
  expect(takenPlace({ ...port, family: 6, ip, backend: 'iptables' })).toEqual({
    set: SETS[6].iptables,
    key: ['', ip, 6, 80],
  });
});
