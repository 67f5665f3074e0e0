// Does a change of rules that our own plugins, kubelet or kube-proxy make cause no look at every attachment?
import { describe, expect, test } from 'bun:test';
import { renderOwner } from '../../../src/cni/attachment.ts';
import { attrs } from '../../../src/netlink/codec/attrs.ts';
import { str } from '../../../src/netlink/codec/fields.ts';
import { type Envelope, layout } from '../../../src/netlink/codec/message.ts';
import { nfgenmsg } from '../../../src/netlink/nfgenmsg.ts';
import { type Element, elementMessage } from '../../../src/netlink/nft/element.ts';
import { NftMsg, nftType } from '../../../src/netlink/nft/message.ts';
import { chooseSweep } from '../../../src/watch/concerned.ts';
import { hintsOfRules } from '../../../src/watch/rule-hints.ts';

type Named = Pick<Element, 'comment'>;

const OWNER = { network: 'net', containerId: 'c1', ifname: 'eth0' };
const COUNT: Named = {};
const ITS: Named = { comment: renderOwner(OWNER) };

const named = layout(nfgenmsg, attrs('named', { table: [1, str], second: [2, str], third: [3, str] }));

function message(type: number, body: Uint8Array): Envelope {
  return { type: nftType(type), flags: 0, seq: 0, body };
}

function elements(type: number, table: string, set: string, ...those: Named[]): Envelope {
  const list = those.map(({ comment }) => ({ ...(comment === undefined ? {} : { comment }) }));
  return message(type, elementMessage.encode({}, { table, set, elements: list }));
}

const gone = (table: string, set: string, ...those: Named[]) =>
  elements(NftMsg.DELSETELEM, table, set, ...those);
const added = (table: string, set: string) => elements(NftMsg.NEWSETELEM, table, set, COUNT);
const rule = (table: string, chain: string) =>
  message(NftMsg.DELRULE, named.encode({}, { table, second: chain }));
const chain = (table: string, name: string) =>
  message(NftMsg.DELCHAIN, named.encode({}, { table, third: name }));

describe('deleted elements', () => {
  test('name their attachment', () => {
    const hints = hintsOfRules([gone('catena_portmap', 'claims4', ITS)]);
    expect(hints).toEqual([{ of: 'owner', owner: OWNER, table: 'catena_portmap' }]);
    expect(chooseSweep(hints)).toBeUndefined();
  });

  test('that count what attachments have are no damage if attachments left at the same time', () => {
    const [own, count] = [gone('catena_portmap', 'claims4', ITS), gone('catena_portmap', 'hostips4', COUNT)];
    expect(chooseSweep(hintsOfRules([own, count]))).toBeUndefined();
    // The kernel may report a transaction in two parts.
    expect(chooseSweep([...hintsOfRules([count]), ...hintsOfRules([own])])).toBeUndefined();
    const elsewhere = gone('catena_masquerade', 'pods4', ITS);
    expect(chooseSweep(hintsOfRules([elsewhere, count]))).toBe('possible');
    expect(chooseSweep(hintsOfRules([count]))).toBe('possible');
  });

  test('that count what attachments have are no damage if they are added again with another count', () => {
    const count = gone('catena_portmap', 'hostips4', COUNT);
    expect(hintsOfRules([count, added('catena_portmap', 'hostips4')])).toEqual([]);
    expect(chooseSweep(hintsOfRules([count, added('catena_portmap', 'tally4')]))).toBe('possible');
  });
});

describe('deleted rules', () => {
  test('of kubelet and kube-proxy concern no attachment', () => {
    expect(hintsOfRules([rule('nat', 'KUBE-SERVICES'), chain('nat', 'KUBE-SVC-ABC')])).toEqual([]);
  });

  test.each([
    ['nat', 'POSTROUTING', 'possible'],
    ['filter', 'CNI-FORWARD', 'possible'],
    ['catena_portmap', 'KUBE-SERVICES', 'likely'],
    ['catena_masquerade', 'postrouting', 'likely'],
    ['other', 'POSTROUTING', undefined],
  ] as const)('of table %s, chain %s: %s', (table, name, sweep) => {
    expect(chooseSweep(hintsOfRules([rule(table, name)]))).toBe(sweep);
  });
});
