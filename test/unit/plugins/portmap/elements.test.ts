// Do the elements of an attachment lead back to all that belongs to it?
import { describe, expect, test } from 'bun:test';
import {
  decodeClaim,
  type Entry,
  forwardPlace,
  ownerOf,
  type Place,
  placesOf,
  planElements,
} from '../../../../plugins/portmap/elements.ts';
import type { FamilyPlan } from '../../../../plugins/portmap/plan.ts';
import { ALL_SETS, SETS } from '../../../../plugins/portmap/skeleton.ts';
import { parseCidr } from '../../../../src/net/cidr.ts';
import { parseIp } from '../../../../src/net/ip.ts';
import { decodeFields, encodeFields, renderFields } from '../../../../src/netlink/nft/datatype.ts';

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

describe('ownerOf()', () => {
  test('has a note for people and a handle that fits an interface name', () => {
    expect(owner.note).toBe('catena:podnet/ctr1/eth0');
    expect(owner.handle).toMatch(/^[0-9a-f]{15}$/);
    expect(ownerOf({ network: 'podnet', containerId: 'ctr1', ifname: 'eth1' }).handle).not.toBe(owner.handle);
  });

  test('keeps the note of a long container id short enough for nft', () => {
    const { note } = ownerOf({ network: 'podnet', containerId: 'x'.repeat(200), ifname: 'eth0' });
    expect(note.length).toBeLessThan(128);
    expect(note).toStartWith('catena:podnet/');
  });
});

describe('planElements()', () => {
  const text = ({ set, element }: Entry) => `${set.name} ${renderFields(element.key)}`;

  test('lists everything of one IP version', () => {
    const [v4] = plans.map(plan => planElements(plan, owner, 'local').map(text));
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
    const entries = plan ? planElements(plan, owner, masquerading) : [];
    const own = entries.filter(({ set }) => /snat|hairpin/.test(set.name));
    expect(own.map(({ set }) => set.name)).toEqual([...sets]);
    expect(own[0]?.element.data).toEqual(chain === undefined ? undefined : { code: -4, chain });
  });

  test('names the owner in every element', () => {
    for (const { element } of plans.flatMap(plan => planElements(plan, owner, 'local'))) {
      expect(element.comment).toBe(owner.note);
    }
  });

  test('uses sets of the skeleton, and values that fit them', () => {
    for (const { set, element } of plans.flatMap(plan => planElements(plan, owner, 'local'))) {
      expect(ALL_SETS).toContain(set);
      expect(decodeFields(set.key, encodeFields(set.key, element.key))).toEqual([...element.key]);
    }
  });
});

describe('placesOf()', () => {
  test('leads from the claims to every element that names the owner', () => {
    const text = ({ set, key }: Place) => `${set.name} ${renderFields(key)}`;
    for (const plan of plans) {
      const entries = planElements(plan, owner, 'local');
      const claims = entries
        .filter(({ set }) => set === SETS[plan.family].claims)
        .map(({ element }) => decodeClaim(plan.family, element));
      const found = new Set(claims.flatMap(claim => placesOf(claim, owner)).map(text));
      const wanted = entries.filter(({ element }) => element.comment === owner.note);
      expect(found).toEqual(new Set(wanted.map(({ set, element }) => text({ set, key: element.key }))));
    }
  });
});

test('forwardPlace() tells ports of one address from those of all', () => {
  const port = { protocol: 'tcp', port: 80 } as const;
  expect(forwardPlace(4, port)).toEqual({ set: SETS[4].wildcard, key: [6, 80] });
  const ip = parseIp('fd00::1');
  expect(forwardPlace(6, { ...port, ip })).toEqual({ set: SETS[6].specific, key: [ip, 6, 80] });
});
