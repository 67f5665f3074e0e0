// Does the index of rules leave out no rule that may match, and is the cost of attachments and rules their sum, not their product?
import { expect, test } from 'bun:test';
import { candidatesOf } from '../../../../src/doctor/filter/candidates.ts';
import { findFates } from '../../../../src/doctor/filter/fates.ts';
import type { Packet } from '../../../../src/doctor/filter/packet.ts';
import { judgeRule } from '../../../../src/doctor/filter/rule.ts';
import { ipToBytes, parseIp } from '../../../../src/net/ip.ts';
import { NF_DROP } from '../../../../src/netlink/nft/data.ts';
import { decide } from '../../../../src/netlink/nft/expr/immediate.ts';
import { META } from '../../../../src/netlink/nft/expr/meta.ts';
import type { Rule } from '../../../../src/netlink/nft/rule.ts';
import type { FilterTable } from '../../../../src/netlink/tables.ts';

type Expressions = Rule['expressions'];

const compared = (value: Uint8Array, op = 0) => ({ name: 'cmp', data: { sreg: 1, op, data: { value } } });
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
  for (const packet of packets)
    for (const mark of marks) {
      const may = rules.filter(
        rule => judgeRule(rule, packet, { contents: () => [], mark }).matches !== false,
      );
      const found = candidatesOf(rules, packet, mark);
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
  const routes = [{ destination: '0.0.0.0/0', device: 'eth0' }];
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
