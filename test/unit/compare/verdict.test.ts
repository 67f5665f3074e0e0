// Which differences matter, and what is the answer?
import { describe, expect, test } from 'bun:test';
import type { Crossing } from '../../../src/compare/crossings.ts';
import type { CompareReport, ReportedDifference } from '../../../src/compare/report.ts';
import { renderVerdict, sortOut } from '../../../src/compare/verdict.ts';

const difference = (more: Partial<ReportedDifference>): ReportedDifference => {
  return { scene: 'life', step: 'ADD', verb: 'ADD', where: 'host', what: '', alsoIn: [], ...more };
};
const NFT = difference({ what: 'nftables table inet catena_portmap', first: 'exists' });
const IPTABLES = difference({ what: 'iptables ip nat: chain CNI-DN-0', second: 'policy -' });

describe('sortOut()', () => {
  test.each([
    ['an alias', difference({ what: 'link veth#1, alias', first: 'catena:a/b/c' })],
    ['an index', difference({ where: 'files', what: '/var/lib/cni/networks/net/.catena-taken', first: 'x' })],
    [
      'words of errors',
      difference({ where: 'answer', first: 'it fails with code 4', second: 'it fails with code 999' }),
    ],
    [
      'a verb that one set lacks',
      difference({ where: 'answer', first: 'it succeeds', second: 'not called' }),
    ],
    ['an empty "dns"', difference({ where: 'result', what: 'dns', second: 'exists' })],
    [
      'what a crossing tells',
      difference({ scene: 'ADD by A, DEL', verb: 'DEL', what: 'link veth#1', second: 'veth' }),
    ],
  ])('does not count %s', (_what, one) => {
    expect(sortOut({ differences: [one] }).matter).toEqual([]);
  });

  test.each([
    ['an MTU', difference({ what: 'link eth0, mtu', first: '1500', second: '1400' })],
    ['a name server', difference({ where: 'result', what: 'dns', second: 'nameservers ["10.0.0.1"]' })],
    ['a stray file', difference({ where: 'files', what: '/run/stray/file', second: 'x' })],
    ['a failure', difference({ where: 'answer', first: 'it succeeds', second: 'it fails with code 999' })],
    ['a rule that is missing', NFT],
    ['a rule too many', IPTABLES],
    ['a rule that DEL leaves', { ...IPTABLES, verb: 'DEL' }],
  ])('counts %s', (_what, one) => {
    expect(sortOut({ differences: [one] }).matter).toEqual([one]);
  });

  test('does not count rules of two packet filters that do the same', () => {
    expect(sortOut({ differences: [NFT, IPTABLES] })).toEqual({ matter: [], byDesign: 2 });
  });
});

describe('renderVerdict()', () => {
  const crossing = (more: Partial<Crossing> = {}): Crossing => {
    return { scene: '', maker: 'A', verb: 'DEL', by: 'B', handedOver: false, fails: [], left: [], ...more };
  };
  const verdict = (crossings: Crossing[], differences: ReportedDifference[] = []) =>
    renderVerdict({
      failing: [],
      links: [{ index: 0, link: 'bridge', differences, times: {} }],
      crossings,
    } as unknown as CompareReport);

  test.each([
    [/yes$/, [crossing(), crossing({ verb: 'CHECK' })]],
    [/was not tried$/, []],
    [/must be handed over \(catena handover\) or deleted first$/, [crossing({ left: ['veth'] })]],
    [/CHECK of what A made fails$/, [crossing(), crossing({ verb: 'CHECK', fails: ['portmap'] })]],
    [/A could not delete what B makes$/, [crossing(), crossing({ maker: 'B', by: 'A', fails: ['bridge'] })]],
  ])('answers %p', (expected, crossings) => {
    expect(verdict(crossings)).toMatch(expected);
  });

  test('counts what must be intended', () => {
    const one = difference({ what: 'link eth0, mtu', first: '1500', second: '1400' });
    expect(verdict([crossing()], [one, NFT, IPTABLES])).toContain('1 difference must be intended');
  });
});
