// Can a node attract packets that are not for it, whatever it announces?
import { expect, test } from 'bun:test';
import fc from 'fast-check';
import type { ClusterNode } from '../../src/between/claims.ts';
import { type PlanChoices, planWays } from '../../src/between/plan.ts';
import {
  type Cidr,
  cidrContains,
  lastOf,
  parseCidr,
  parseIp,
  renderCidr,
  renderIp,
} from '../../src/net/ip.ts';
import { RUNS } from './arbitrary.ts';

const LINK = { index: 2, name: 'eth0', mtu: 1500, isUp: true, addresses: [parseCidr('192.0.2.1/24')] };
const CLUSTER = parseCidr('10.244.0.0/16');
const CHOICES: PlanChoices = { own: 'm', ways: 'auto', vni: 6700, port: 4789 };

/** Nodes that were there first; `m` is this one. */
const ELDERS = ['m', 'n', 'o'].map((name, i) => {
  const blocks = [`10.244.${2 * i}.0/24`, `10.244.${2 * i + 1}.0/25`].map(parseCidr);
  return { name, addresses: [parseIp(`192.0.2.${i + 1}`)], blocks, since: '2026-01-01T00:00:00Z' };
});

/** Parts, wholes, neighbours and wholes of wholes of what there is, and anything else. */
const announced = fc.oneof(
  {
    weight: 5,
    arbitrary: fc
      .tuple(fc.integer({ min: 0, max: 7 }), fc.nat(255), fc.integer({ min: 0, max: 32 }))
      .map(([third, last, prefix]) => `10.244.${third}.${last}/${prefix}`),
  },
  {
    weight: 2,
    arbitrary: fc.tuple(fc.ipV4(), fc.nat(32)).map(([ip, prefix]) => `${ip}/${prefix}`),
  },
  fc.constantFrom('0.0.0.0/1', '128.0.0.0/1', '169.254.169.254/32', '127.0.0.1/32', '192.0.2.2/32'),
);

const strangers = fc.array(
  fc.record({
    name: fc.constantFrom('a', 'aaa', 'mm', 'z'),
    addresses: fc.subarray(['192.0.2.66', '192.0.2.2', '198.51.100.9', '192.0.2.1']),
    blocks: fc.array(announced, { maxLength: 6 }),
  }),
  { minLength: 1, maxLength: 3 },
);

test('no announcement, however odd, leads packets of own pods or of an older node elsewhere', () => {
  fc.assert(
    fc.property(strangers, fc.boolean(), (found, isBounded) => {
      const younger = found.map(({ name, addresses, blocks }, i): ClusterNode => {
        return {
          name: `${name}${i}`,
          addresses: addresses.map(parseIp),
          blocks: blocks.map(parseCidr),
          since: '2026-06-01T00:00:00Z',
        };
      });
      const limits = { never: [], ...(isBounded && { within: [CLUSTER] }) };
      const planned = planWays([...younger, ...ELDERS], [LINK], { ...CHOICES, limits });
      const ways = planned?.ways ?? [];
      const samples = [...ELDERS, ...younger].flatMap(({ blocks }) =>
        blocks.flatMap(block => [block.ip, lastOf(block)]),
      );
      for (const ip of samples) {
        const best = ways
          .filter(({ dst }) => cidrContains(dst, ip))
          .reduce<(typeof ways)[number] | undefined>(
            (a, b) => (a && a.dst.prefix >= b.dst.prefix ? a : b),
            undefined,
          );
        const elder = ELDERS.find(({ blocks }) => blocks.some(block => cidrContains(block, ip)));
        const to = best && `${renderIp(ip)} leads to ${best.node} by ${renderCidr(best.dst)}`;
        if (elder) expect(best?.node ?? 'm', to).toBe(elder.name);
        else if (best) expect(findWrong(best.dst, isBounded), to).toBeUndefined();
      }
      for (const { node, gateway } of ways) {
        const elder = ELDERS.find(({ addresses }) => addresses.some(ip => ip.value === gateway.value));
        if (elder) expect(node).toBe(elder.name);
      }
    }),
    { numRuns: RUNS / 10 },
  );
});

/** Why no node may have such a block. */
function findWrong(dst: Cidr, isBounded: boolean): string | undefined {
  if (dst.prefix < 8) return 'a part of the default route';
  if (isBounded && !(cidrContains(CLUSTER, dst.ip) && dst.prefix >= CLUSTER.prefix))
    return 'out of the cluster';
  const special = ['169.254.0.0/16', '127.0.0.0/8', '224.0.0.0/4'].map(parseCidr);
  return special.some(one => cidrContains(one, dst.ip) || cidrContains(dst, one.ip))
    ? 'no address of a pod'
    : undefined;
}
