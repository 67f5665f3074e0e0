// Which rules come of which mappings?

import { describe, expect, test } from 'bun:test';
import {
  asSaved,
  chainKey,
  dnatChain,
  entryComment,
  type IptablesOptions,
  ownerIn,
  planContainerRules,
  planEntryRules,
  planLoopbackRules,
  planSharedChains,
  planSharedRules,
  snatChainOf,
  soleOwner,
} from '../../../../plugins/portmap/iptables-rules.ts';
import type { FamilyPlan } from '../../../../plugins/portmap/plan.ts';
import { parseCidr, parseIp } from '../../../../src/net/ip.ts';

const OWNER = { network: 'n1', containerId: 'ctr1' };
const CHAIN = 'CNI-DN-c189d8b6a7b4d184c9f70';
const COMMENT = String.raw`-m comment --comment "dnat name: \"n1\" id: \"ctr1\""`;
const V4: FamilyPlan = {
  family: 4,
  pod: parseCidr('10.9.0.2/24'),
  forwards: [{ protocol: 'tcp', port: 8080, containerPort: 80 }],
};
const V6: FamilyPlan = {
  family: 6,
  pod: parseCidr('fd00::2/64'),
  forwards: [{ protocol: 'udp', port: 53, containerPort: 5353, ip: parseIp('fd00:1::1') }],
};

function options(more: Partial<IptablesOptions> = {}): IptablesOptions {
  return { snat: true, masqAll: false, mark: 0x2000, conditions: { 4: [], 6: [] }, ...more };
}

describe('planContainerRules()', () => {
  test('marks packets from the subnet and from localhost, then forwards', () => {
    expect(planContainerRules(V4, OWNER, options())).toEqual([
      `${CHAIN} -p tcp --dport 8080 -s 10.9.0.0/24 -j CNI-HOSTPORT-SETMARK`,
      `${CHAIN} -p tcp --dport 8080 -s 127.0.0.1 -j CNI-HOSTPORT-SETMARK`,
      `${CHAIN} -p tcp --dport 8080 -j DNAT --to-destination 10.9.0.2:80`,
    ]);
    expect(entriesOf(V4, options())).toEqual([
      `last CNI-HOSTPORT-DNAT ${COMMENT} -m multiport -p tcp --destination-ports 8080 -j ${CHAIN}`,
    ]);
  });

  test('writes IPv6 as the reference does', () => {
    expect(planContainerRules(V6, OWNER, options())).toEqual([
      `${CHAIN} -p udp --dport 53 -d fd00:1::1 -s fd00::/64 -j CNI-HOSTPORT-SETMARK`,
      `${CHAIN} -p udp --dport 53 -d fd00:1::1 -j DNAT --to-destination [fd00::2]:5353`,
    ]);
    expect(entriesOf(V6, options())).toEqual([
      `last CNI-HOSTPORT-DNAT ${COMMENT} -m multiport -p udp --destination-ports 53 -j ${CHAIN}`,
    ]);
  });

  test('accepts masqAll, snat off and an external chain', () => {
    const sources = (more: Partial<IptablesOptions>) =>
      planContainerRules(V4, OWNER, options(more)).filter(rule => rule.includes(' -s '));
    expect(sources({ masqAll: true })).toEqual([
      `${CHAIN} -p tcp --dport 8080 -s 0.0.0.0/0 -j CNI-HOSTPORT-SETMARK`,
    ]);
    expect(sources({ snat: false })).toEqual([]);
    expect(sources({ externalSetMarkChain: 'KUBE-MARK-MASQ' })[0]).toEndWith('-j KUBE-MARK-MASQ');
  });
});

describe('planEntryRules()', () => {
  test('groups ports by protocol, fifteen to a rule, and puts those with conditions first', () => {
    const forwards = Array.from({ length: 17 }, (_, i) => ({
      protocol: i === 0 ? ('udp' as const) : ('tcp' as const),
      port: 100 + i,
      containerPort: 80,
    }));
    const conditions = {
      4: ['!', '-s', '192.0.2.0/24', '-m', 'comment', '--comment', 'a "b"'],
      6: ['-s', '::1'],
    };
    const words = String.raw`! -s 192.0.2.0/24 -m comment --comment "a \"b\""`;
    expect(entriesOf({ ...V4, forwards }, options({ conditions }))).toEqual([
      `first CNI-HOSTPORT-DNAT ${COMMENT} -m multiport -p tcp --destination-ports ${ports(101, 115)} ${words} -j ${CHAIN}`,
      `first CNI-HOSTPORT-DNAT ${COMMENT} -m multiport -p tcp --destination-ports 116 ${words} -j ${CHAIN}`,
      `first CNI-HOSTPORT-DNAT ${COMMENT} -m multiport -p udp --destination-ports 100 ${words} -j ${CHAIN}`,
    ]);
  });
});

test('planSharedRules() marks with one bit, and omits the mark with an external chain', () => {
  const text = (more?: Partial<IptablesOptions>) =>
    planSharedRules(options(more)).map(({ chain, words }) => `${chain} ${words}`);
  expect(text({ mark: 0x20 })).toEqual([
    'CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x20/0x20',
    'CNI-HOSTPORT-MASQ -m mark --mark 0x20/0x20 -j MASQUERADE',
    'POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ',
    'PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT',
    'OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT',
  ]);
  expect(text({ snat: false })).toHaveLength(2);
  expect(planSharedChains(options({ externalSetMarkChain: 'X' }))).toEqual(['CNI-HOSTPORT-DNAT']);
});

function ports(first: number, last: number): string {
  return Array.from({ length: last - first + 1 }, (_, i) => first + i).join(',');
}

function entriesOf(plan: FamilyPlan, own: IptablesOptions): string[] {
  return planEntryRules(plan, OWNER, own).map(({ place, chain, words }) => `${place} ${chain} ${words}`);
}

test('planLoopbackRules() leaves ::1 to the host, and 127.0.0.1 to the pod', () => {
  expect(planLoopbackRules(6, OWNER)).toEqual([`${CHAIN} -d ::1/128 -j RETURN`]);
  expect(planLoopbackRules(4, OWNER)).toEqual([]);
});

test('asSaved() renders a rule as iptables-save does', () => {
  expect(planContainerRules(V4, OWNER, options()).map(rule => asSaved(rule, 4))).toEqual([
    `${CHAIN} -s 10.9.0.0/24 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK`,
    `${CHAIN} -s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK`,
    `${CHAIN} -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.9.0.2:80`,
  ]);
  const [, forward = ''] = planContainerRules(V6, OWNER, options());
  expect(asSaved(forward, 6)).toBe(
    `${CHAIN} -d fd00:1::1/128 -p udp -m udp --dport 53 -j DNAT --to-destination [fd00::2]:5353`,
  );
  const [all = ''] = planContainerRules(V4, OWNER, options({ masqAll: true }));
  expect(asSaved(all, 4)).toBe(`${CHAIN} -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK`);
});

test.each([
  ['n1', 'ctr1', 'c189d8b6a7b4d184c9f70'],
  ['podnet', '0123456789abcdef', '797f1dae695cd89d5e1ef'],
])('dnatChain() of %s and %s ends in %s', (network, containerId, digits) => {
  expect(dnatChain({ network, containerId })).toBe(`CNI-DN-${digits}`);
  expect(snatChainOf({ network, containerId })).toBe(`CNI-SN-${digits}`);
});

test('entryComment() fits a comment of iptables, whatever the names', () => {
  expect(entryComment({ network: 'n1', containerId: 'ctr1' })).toBe('dnat name: "n1" id: "ctr1"');
  expect(entryComment({ network: 'n1', containerId: 'x'.repeat(300) })).toHaveLength(255);
});

test('ownerIn() reads whole comments only', () => {
  expect(ownerIn('dnat name: "n1" id: "ctr1"')).toEqual({ network: 'n1', containerId: 'ctr1' });
  expect(ownerIn(`dnat name: "n1" id: "${'x'.repeat(99)}...`)).toBeUndefined();
  expect(ownerIn('web name: "n1" id: "ctr1"')).toBeUndefined();
  expect(ownerIn(undefined)).toBeUndefined();
});

test('soleOwner() has a chain that no container has, and its comment leads back to it', () => {
  const sole = soleOwner({ network: 'n1', containerId: 'ctr1', ifname: 'net1' });
  expect(dnatChain(sole)).not.toBe(dnatChain({ network: 'n1', containerId: 'ctr1' }));
  expect(ownerIn(entryComment(sole))).toEqual(sole);
});

test('chainKey() begins as the hash of the chain, and fits the name of an interface', () => {
  const owner = { network: 'n1', containerId: 'ctr1' };
  expect(dnatChain(owner)).toStartWith(`CNI-DN-${chainKey(owner)}`);
  expect(chainKey(owner)).toHaveLength(15);
});
