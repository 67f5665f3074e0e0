// Does a walk through chains end, whatever they jump to, and find the same fates as by each way?
import { expect, test } from 'bun:test';
import { ipToBytes, parseCidr, parseIp } from '../../../../../src/net/ip.ts';
import {
  decide,
  isOutside,
  loadHeader,
  META,
  NF_ACCEPT,
  NF_DROP,
  NFT_JUMP,
} from '../../../../../src/netlink/nft/expr.ts';
import type { Rule } from '../../../../../src/netlink/nft/table.ts';
import type { FilterTable } from '../../../../../src/netlink/tables.ts';
import { HostRoutes } from '../../../../../src/node/devices.ts';
import type { Packet } from '../../../../../src/node/doctor/filter/packet.ts';
import { judgeRule } from '../../../../../src/node/doctor/filter/rule.ts';
import { candidatesOf, findFates, walk } from '../../../../../src/node/doctor/filter/walk.ts';

const PACKET: Packet = {
  ...{ family: 4, iif: 'br0', oif: undefined, protocol: 6, source: '10.0.0.2', destination: '10.0.0.3' },
  ...{ isLocal: false, sourcePort: 1000, port: 80, isReply: false, isTranslated: false },
};

/** Chains of `width` jumps into the next one, the last of which ends with a verdict. @returns its fates, and the chains looked at */
function play(
  depth: number,
  width: number,
  last: number,
  before: (depth: number) => readonly unknown[] = () => [],
) {
  const rules = new Map<string, Rule[]>();
  let handle = 0n;
  const rule = (chain: string, code: number, to?: string): Rule => ({
    ...{ chain, handle: ++handle },
    expressions: [
      ...(before(Number(chain.slice(1))) as []),
      decide(to === undefined ? { code } : { code, chain: to }),
    ],
  });
  for (let i = 0; i < depth; i++)
    rules.set(
      `c${i}`,
      Array.from({ length: width }, () => rule(`c${i}`, NFT_JUMP, `c${i + 1}`)),
    );
  rules.set(`c${depth}`, [rule(`c${depth}`, last)]);
  let looks = 0;
  const get = (chain: string) => {
    looks++;
    return rules.get(chain);
  };
  const counted = { get } as unknown as FilterTable['rules'];
  const table: FilterTable = {
    ...{ table: { family: 'inet', name: 'x' }, isOwn: false, chains: [], contents: () => [] },
    rules: counted,
  };
  const { fates } = walk(table, { name: 'c0' }, PACKET);
  return { looks, fates };
}

test('four jumps into each next of 14 chains are not 67 million ways', () => {
  const { looks, fates } = play(14, 4, -1);
  expect([looks, fates]).toEqual([15, []]);
});

test('two marks before each next of 15 chains are not 32 thousand ways', () => {
  const { looks, fates } = play(15, 2, NF_DROP, i => [
    { name: 'meta', data: { dreg: 1, key: META.mark } },
    {
      name: 'bitwise',
      data: {
        ...{ sreg: 1, dreg: 1, length: 4, op: 0, mask: { value: Uint8Array.of(255, 255, 255, 255) } },
        xor: { value: Uint8Array.of((1 << i) & 255, (1 << i) >> 8, 0, 0) },
      },
    },
    { name: 'meta', data: { sreg: 1, key: META.mark } },
  ]);
  expect(looks).toBeLessThan(2_000);
  expect(fates.length).toBeGreaterThan(0);
});

test('a drop at the end of all ways is one fate', () => {
  const { fates } = play(3, 2, NF_DROP);
  expect(fates).toMatchObject([{ what: 'drop', chain: 'c3', isSure: true }]);
});

/** What rules do with packets to a port. */
function fatesOf(port: number, ...all: (readonly unknown[])[]) {
  const rules = all.map((expressions, i) => ({ chain: 'c0', handle: BigInt(i), expressions }) as Rule);
  const table: FilterTable = {
    ...{ table: { family: 'inet', name: 'x' }, isOwn: false, chains: [], contents: () => [] },
    rules: new Map([['c0', rules]]),
  };
  const { fates } = walk(table, { name: 'c0' }, { ...PACKET, port });
  return fates.map(({ what, isSure }) => `${what} ${isSure}`);
}

test('a rule for ports outside of a range spares those in it, ends included', () => {
  const bytes = (port: number) => Uint8Array.of(port >> 8, port & 0xff);
  const rule = [loadHeader('th', 1, 2, 2), isOutside(1, bytes(1000), bytes(2000)), decide({ code: NF_DROP })];
  const fates = [999, 1000, 2000, 2001].map(port => fatesOf(port, rule));
  expect(fates).toEqual([['drop true'], [], [], ['drop true']]);
});

test('a rule that rejects packets takes them away', () => {
  expect(fatesOf(80, [{ name: 'reject', data: new Uint8Array() }])).toEqual(['drop true']);
});

test("the reference's rules against spoofing take no packet away", () => {
  const drop = { chain: 'own-mac', handle: 2n, expressions: [decide({ code: NF_DROP })] };
  const jump = { chain: 'c0', handle: 1n, expressions: [decide({ code: NFT_JUMP, chain: 'own-mac' })] };
  const fatesOf = (comment: string) => {
    const noted = [jump, drop].map((rule): Rule => ({ ...rule, comment }));
    const rules = new Map(noted.map(rule => [rule.chain, [rule]]));
    const table = { family: 'bridge', name: 'nat' } as const;
    return walk({ table, isOwn: false, chains: [], contents: () => [], rules }, { name: 'c0' }, PACKET).fates;
  };
  expect(fatesOf('macspoofchk-web-eth0')).toEqual([]);
  expect(fatesOf('of another program')).toHaveLength(1);
});

test('what a rule may have accepted may come to the next one', () => {
  const [accept, drop] = [decide({ code: NF_ACCEPT }), decide({ code: NF_DROP })];
  expect(fatesOf(80, [accept], [drop])).toEqual([]);
  expect(fatesOf(80, [{ name: 'limit' }, accept], [drop])).toEqual(['drop false']);
});

type Expressions = Rule['expressions'];

const compared = (value: Uint8Array, op = 0) => ({ name: 'cmp', data: { sreg: 1, op, data: { value } } });
const set = (mark: number) =>
  [
    { name: 'immediate', data: { dreg: 1, data: { value: Uint8Array.of(mark, 0, 0, 0) } } },
    { name: 'meta', data: { sreg: 1, key: META.mark } },
  ] as const;
const LIMIT = { name: 'limit' };
const UDP = [{ name: 'meta', data: { dreg: 1, key: META.l4proto } }, compared(Uint8Array.of(17))];
const markIs = (mark: number) => [
  { name: 'meta', data: { dreg: 1, key: META.mark } },
  compared(Uint8Array.of(mark, 0, 0, 0)),
];
/** linux/netfilter/xt_mark.h: a mark, a mask, and for a match whether that is inverted. */
const xt = (name: 'match' | 'target', mark: number, mask: number) => ({
  name,
  data: {
    ...(name === 'match' ? { name: 'mark', revision: 1 } : { name: 'MARK', revision: 2 }),
    info: Uint8Array.of(mark, 0, 0, 0, mask, 0, 0, 0, 0, 0, 0, 0),
  },
});

test.each([
  ['set before', [set(1)], markIs(1), ['drop true']],
  ['another one', [set(1)], markIs(2), []],
  ['set again', [set(1), set(2)], markIs(1), []],
  ['perhaps set', [[LIMIT, ...set(1)]], markIs(1), ['drop false']],
  ['perhaps set to what it was', [set(1), [LIMIT, ...set(1)]], markIs(1), ['drop true']],
  ['set by a rule that then does not match', [[...set(1), ...UDP]], markIs(1), ['drop true']],
  ['set by a rule that does not match', [[...UDP, ...set(1)]], markIs(1), []],
  ['bits of iptables', [[xt('target', 1, 1)], [xt('target', 4, 4)]], [xt('match', 4, 4)], ['drop true']],
  ['a bit turned off', [set(5), [xt('target', 4, 0)]], [xt('match', 4, 4)], []],
])('the mark of a packet is what rules made of it: %s', (_, before, condition, fates) => {
  const rules = [...before, [...condition, decide({ code: NF_DROP })]].map((expressions, i) => ({
    ...{ chain: 'c0', handle: BigInt(i), expressions },
  })) as unknown as Rule[];
  const table: FilterTable = {
    ...{ table: { family: 'inet', name: 'x' }, isOwn: false, chains: [], contents: () => [] },
    rules: new Map([['c0', rules]]),
  };
  const found = walk(table, { name: 'c0' }, PACKET).fates;
  expect(found.map(({ what, isSure }) => `${what} ${isSure}`)).toEqual(fates);
});

const header = (base: number, offset: number, value: Uint8Array, op = 0) =>
  [
    { name: 'payload', data: { dreg: 1, base, offset, length: value.length } },
    compared(value, op),
  ] as unknown as Expressions;
const meta = (key: number, value: Uint8Array, op = 0) =>
  [{ name: 'meta', data: { dreg: 1, key } }, compared(value, op)] as unknown as Expressions;
const address = (text: string) => ipToBytes(parseIp(text));
const name = (text: string) => new TextEncoder().encode(text);

const packetOf = (more: Partial<Packet>): Packet => ({
  ...{ family: 4, iif: 'br0', oif: 'eth0', protocol: 6, source: '10.0.0.2', destination: '10.0.0.3' },
  ...{ isLocal: false, sourcePort: 1000, port: 80, isReply: false, isTranslated: false },
  ...more,
});

test('no rule that may match is left out, and the order stays', () => {
  const choices: readonly (readonly Expressions[])[] = [
    [
      [],
      header(1, 16, address('10.0.0.3')),
      header(1, 16, address('10.0.0.9')),
      header(1, 16, address('10.0.0.3'), 1),
    ],
    [
      [],
      header(1, 12, Uint8Array.of(10, 0, 0)),
      header(1, 12, Uint8Array.of(10, 9, 0)),
      header(1, 24, address('fd00::1')),
    ],
    [
      [],
      meta(META.iifname, name('br')),
      meta(META.iifname, name('br0\0')),
      meta(META.oifname, name('eth1\0')),
    ],
    [
      [],
      header(2, 2, Uint8Array.of(0, 80)),
      header(2, 2, Uint8Array.of(0, 81)),
      meta(META.mark, new Uint8Array(4)),
    ],
    [[], [{ name: 'limit' }] as unknown as Expressions, meta(META.l4proto, Uint8Array.of(17))],
  ];
  const rules = choices
    .reduce<Expressions[]>((all, next) => all.flatMap(one => next.map(more => [...one, ...more])), [[]])
    .map((expressions, i): Rule => ({ chain: 'c', handle: BigInt(i), expressions }));
  const packets = [
    packetOf({}),
    packetOf({ source: undefined, iif: undefined }),
    packetOf({ oif: undefined, port: 81, protocol: 17 }),
    packetOf({ family: 6, source: 'fd00::2', destination: 'fd00::1' }),
  ];
  const marks = [
    [0, 0, 0, 0],
    [undefined, undefined, undefined, undefined],
  ];
  for (const one of packets)
    for (const mark of marks) {
      const packet = { ...one, mark };
      const may = rules.filter(rule => judgeRule(rule, packet, () => []).matches !== false);
      const found = candidatesOf(rules, packet);
      const handles = found.map(({ handle }) => handle);
      expect(may.length).toBeGreaterThan(0);
      expect(may.filter(rule => !found.includes(rule))).toEqual([]);
      expect(handles).toEqual(handles.toSorted((a, b) => Number(a - b)));
      expect(found.length).toBeLessThan(rules.length);
    }
});

/** How often doctor looks into a rule of another program: each wants one address and one port, as those of kube-proxy. */
function looksAt(attachments: number, rules: number) {
  let looks = 0;
  const list = Array.from({ length: rules }, (_, i): Rule => {
    const to = Uint8Array.of(10, 1, i >> 8, i & 0xff);
    const expressions = [
      ...header(1, 16, to),
      ...header(2, 2, Uint8Array.of(1, 187)),
      decide({ code: NF_DROP }),
    ];
    return {
      ...{ chain: 'forward', handle: BigInt(i) },
      get expressions() {
        looks++;
        return expressions;
      },
    };
  });
  const base = { hook: 'forward', type: 'filter', priority: 0 } as const;
  const table: FilterTable = {
    ...{
      table: { family: 'ip', name: 'x' },
      isOwn: false,
      chains: [{ name: 'forward', base }],
      contents: () => [],
    },
    rules: new Map([['forward', list]]),
  };
  const pods = Array.from({ length: attachments }, (_, i) => ({
    ...{ network: 'net', containerId: `c${i}`, ifname: 'eth0', family: 4 as const, address: `10.9.0.${i}` },
    ...{ device: 'br0', ports: [{ hostPort: 1000 + i, containerPort: 443, protocol: 'tcp' as const }] },
  }));
  const routes = new HostRoutes([{ dst: parseCidr('0.0.0.0/0'), device: 'eth0' }]);
  const devices = [{ name: 'eth0', addresses: ['192.0.2.1/24'] }];
  const fates = findFates([table], pods, { routes, devices } as unknown as Parameters<typeof findFates>[2]);
  expect(fates).toEqual([]);
  return looks;
}

test('each rule is looked at a few times, however many attachments there are', () => {
  const few = looksAt(1, 2_000);
  expect(few).toBeLessThanOrEqual(3 * 2_000);
  expect(looksAt(200, 2_000)).toBe(few);
  expect(looksAt(200, 4_000)).toBe(2 * few);
});
