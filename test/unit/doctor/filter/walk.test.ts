// Does a walk through chains end, whatever they jump to, and find the same fates as by each way?
import { expect, test } from 'bun:test';
import type { Packet } from '../../../../src/doctor/filter/packet.ts';
import { walk } from '../../../../src/doctor/filter/walk.ts';
import { NF_DROP, NFT_JUMP } from '../../../../src/netlink/nft/data.ts';
import { decide } from '../../../../src/netlink/nft/expr/immediate.ts';
import { loadTransportHeader } from '../../../../src/netlink/nft/expr/payload.ts';
import { isOutside } from '../../../../src/netlink/nft/expr/range.ts';
import type { Rule } from '../../../../src/netlink/nft/rule.ts';
import type { FilterTable } from '../../../../src/netlink/tables.ts';

const PACKET: Packet = {
  ...{ family: 4, iif: 'br0', oif: undefined, protocol: 6, source: '10.0.0.2', destination: '10.0.0.3' },
  ...{ isLocal: false, sourcePort: 1000, port: 80, isReply: false, isTranslated: false },
};

/** Chains of `width` jumps into the next one, the last of which ends with a verdict. @returns its fates, and the chains looked at */
function play(depth: number, width: number, last: number) {
  const rules = new Map<string, Rule[]>();
  let handle = 0n;
  const rule = (chain: string, code: number, to?: string): Rule => ({
    ...{ chain, handle: ++handle },
    expressions: [decide(to === undefined ? { code } : { code, chain: to })],
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
  const fates = walk(table, { name: 'c0' }, PACKET, { mark: [0, 0, 0, 0], target: undefined });
  return { looks, fates };
}

test('four jumps into each next of 14 chains are not 67 million ways', () => {
  const { looks, fates } = play(14, 4, -1);
  expect([looks, fates]).toEqual([15, []]);
});

test('a drop at the end of all ways is one fate', () => {
  const { fates } = play(3, 2, NF_DROP);
  expect(fates).toMatchObject([{ what: 'drop', chain: 'c3', isSure: true }]);
});

/** What a rule does with packets to a port. */
function fatesOf(expressions: readonly unknown[], port: number) {
  const rule = { chain: 'c0', handle: 1n, expressions } as Rule;
  const table: FilterTable = {
    ...{ table: { family: 'inet', name: 'x' }, isOwn: false, chains: [], contents: () => [] },
    rules: new Map([['c0', [rule]]]),
  };
  const fates = walk(table, { name: 'c0' }, { ...PACKET, port }, { mark: [0, 0, 0, 0], target: undefined });
  return fates.map(({ what, isSure }) => `${what} ${isSure}`);
}

test('a rule for ports outside of a range spares those in it, ends included', () => {
  const bytes = (port: number) => Uint8Array.of(port >> 8, port & 0xff);
  const rule = [
    loadTransportHeader(1, 2, 2),
    isOutside(1, bytes(1000), bytes(2000)),
    decide({ code: NF_DROP }),
  ];
  const fates = [999, 1000, 2000, 2001].map(port => fatesOf(rule, port));
  expect(fates).toEqual([['drop true'], [], [], ['drop true']]);
});

test('a rule that rejects packets takes them away', () => {
  expect(fatesOf([{ name: 'reject', data: new Uint8Array() }], 80)).toEqual(['drop true']);
});
