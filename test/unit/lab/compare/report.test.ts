// What is reported of two sets of executables, and may one replace the other?
import { describe, expect, test } from 'bun:test';
import { type Conflist, parseNetwork } from '../../../../src/chain/config/conflist.ts';
import {
  type CompareReport,
  type Crossing,
  isCrossing,
  type ReportedDifference,
  renderReport,
  renderVerdict,
  reportCrossings,
  reportOn,
  sortOut,
} from '../../../../src/lab/compare/report.ts';
import {
  DELETED_BY_B,
  type Moment,
  type SceneRecord,
  type Sight,
  type StepReply,
} from '../../../../src/lab/compare/scene.ts';

const LIST = parseNetwork(
  JSON.stringify({ cniVersion: '1.0.0', name: 'net', plugins: [{ type: 'bridge' }, { type: 'tuning' }] }),
);

function record(mtu: string, durationMs: number, message?: string): SceneRecord {
  const [places, files] = [{ host: { link: { br0: { mtu } } } }, {}];
  const answer = message === undefined ? { failed: false } : { failed: true, message };
  const moment = { step: 'ADD', verb: 'ADD', index: 0, answer, durationMs, sight: { places, files } };
  const before = { places: { host: { link: { br0: { mtu: '0' } } } }, files };
  return { namespaces: {}, began: 0, ended: 1, before, moments: [moment] };
}

const played = (second: string) =>
  ['life', 'twice'].map(name => ({ name, first: record('1500', 4), second: record(second, 8) }));

describe('reportOn()', () => {
  test('reports a difference once, with the scenes in which it occurred, and the times', () => {
    const { same, plugins } = reportOn(LIST, played('1400'), []);
    expect(same).toBe(false);
    expect(plugins.map(({ type, differences }) => [type, differences.length])).toEqual([
      ['bridge', 1],
      ['tuning', 0],
      ['the chain as a whole', 0],
    ]);
    expect(plugins[0]?.differences[0]).toMatchObject({
      what: 'link br0, mtu',
      scene: 'life',
      alsoIn: ['twice'],
    });
    expect(plugins[0]?.times).toEqual({ ADD: { first: 4, second: 8 } });
  });

  test('leaves out intended differences', () => {
    expect(reportOn(LIST, played('1400'), [/^ADD: host: link br0, mtu: 1500 \| 1400$/]).same).toBe(true);
    expect(reportOn(LIST, played('1400'), [/txqlen/]).same).toBe(false);
  });
});

test('does not count a failure of both sides as equal', () => {
  const both = { first: record('1500', 4, 'no such device'), second: record('1500', 8, 'no such device') };
  const report = reportOn(LIST, [{ name: 'life', ...both }], []);
  expect(report).toMatchObject({
    same: false,
    failing: [{ index: 0, type: 'bridge', message: 'no such device' }],
  });
  const text = renderReport(report, '/a', '/b');
  expect(text).toContain('\nNOT COMPARED: ADD of 0 bridge fails with both sets: no such device\n');
  expect(text).toEndWith('\nMAY B REPLACE A? unknown: ADD of bridge fails with both sets\n');
  expect(reportOn(LIST, [{ name: 'life', ...both, second: record('1500', 8) }], []).failing).toEqual([]);
});

describe('renderReport()', () => {
  test('shows both values below each other, and the verdict last', () => {
    const text = renderReport(reportOn(LIST, played('1400'), []), '/a', '/b');
    expect(text).toContain('0 bridge: 1 difference; ADD 4.0 ms / 8.0 ms\n');
    expect(text).toContain('  ADD: host: link br0, mtu (life and 1 more scene)\n    A  1500\n    B  1400\n');
    expect(text).toContain('\n1 tuning: the same\n');
    expect(text).toEndWith('\nMAY B REPLACE A? not as it is: 1 difference must be intended\n');
  });
});

const CROSSED = { plugins: [{ type: 'bridge' }, { type: 'portmap' }] } as unknown as Conflist;
const OK: StepReply = { failed: false };
const RESULT: StepReply = { failed: false, result: { ips: [{ address: '10.1.0.2/24' }] } };
const EMPTY: Sight = { places: { host: {} }, files: {} };

const moment = (step: string, answer: StepReply, sight = EMPTY, index?: number): Moment => ({
  step,
  verb: step,
  answer,
  durationMs: 1,
  sight,
  ...(index === undefined ? {} : { index }),
});
const recordOf = (...moments: Moment[]): SceneRecord => {
  return { namespaces: {}, began: 0, ended: 1, before: EMPTY, moments };
};
const crossingOf = (second: SceneRecord) =>
  reportCrossings(CROSSED, [{ name: DELETED_BY_B, first: recordOf(), second }])[0];

describe('reportCrossings()', () => {
  test('leaves out scenes in which each set works with itself', () => {
    expect(reportCrossings(CROSSED, [{ name: 'life', first: recordOf(), second: recordOf() }])).toEqual([]);
    expect([isCrossing('life'), isCrossing(DELETED_BY_B)]).toEqual([false, true]);
  });

  test('names the plugins that fail, with their errors', () => {
    const no: StepReply = { failed: true, code: 999, message: 'no such chain' };
    const found = crossingOf(
      recordOf(moment('ADD', RESULT, EMPTY, 0), moment('DEL', no, EMPTY, 0), moment('DEL', no)),
    );
    expect(found).toMatchObject({
      maker: 'A',
      by: 'B',
      verb: 'DEL',
      fails: ['bridge: no such chain'],
      left: [],
    });
  });

  test('lists remains of the container, but not of the network', () => {
    const after: Sight = {
      places: {
        host: {
          link: { cni0: { kind: 'bridge' }, 'veth#1': { kind: 'veth' } },
          nftables: {
            'table inet catena_portmap': {},
            '80 → 10.1.0.2 . 80 in wildcard4': {},
            '80 → 10.1.0.25 . 80 in wildcard4': {},
          },
          iptables: {
            'ip nat: chain CNI-2bbe0c48b91a7d1b8a6753a8': {},
            'ip nat: chain CNI-HOSTPORT-DNAT': {},
          },
          sysctl: { 'ipv4/conf/veth#1/forwarding': {} },
        },
      },
      files: {
        '/leases/10.1.0.2': 'x',
        '/leases/last_reserved_ip.0': '10.1.0.2',
        '/leases/.catena-owners': '10.1.0.2',
      },
    };
    expect(crossingOf(recordOf(moment('ADD', RESULT, EMPTY, 0), moment('DEL', OK, after)))?.left).toEqual([
      'host: link veth#1',
      'host: nftables 80 → 10.1.0.2 . 80 in wildcard4',
      'host: iptables ip nat: chain CNI-2bbe0c48b91a7d1b8a6753a8',
      'file /leases/10.1.0.2',
    ]);
  });

  test('says that nothing was tried when ADD fails', () => {
    const no: StepReply = { failed: true, message: 'no master' };
    expect(crossingOf(recordOf(moment('ADD', no), moment('DEL', OK)))).toMatchObject({
      untried: 'no master',
      fails: [],
    });
  });
});

const difference = (more: Partial<ReportedDifference>): ReportedDifference => {
  return { scene: 'life', step: 'ADD', verb: 'ADD', where: 'host', what: '', alsoIn: [], ...more };
};
const NFT = difference({ what: 'nftables table inet catena_portmap', first: 'exists' });
const IPTABLES = difference({ what: 'iptables ip nat: chain CNI-DN-0', second: 'policy -' });

describe('sortOut()', () => {
  test.each([
    ['an alias', difference({ what: 'link veth#1, alias', first: 'catena:a/b/c' })],
    [
      'an index',
      difference({ where: 'files', what: '/var/lib/cni/networks/net/.catena-owners', first: 'x' }),
    ],
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
    const element = difference({
      what: 'nftables 80 → 10.0.0.2 in dnat of table inet cni, element',
      second: 'x',
    });
    expect(sortOut({ differences: [NFT, IPTABLES, element] })).toEqual({ matter: [], byDesign: 3 });
  });

  test('counts a rule that is another one in the same table, whatever other tables have', () => {
    const rule = (more: object) =>
      difference({ what: `iptables ip nat: -A CNI-DN-0 --to ${JSON.stringify(more)}`, ...more });
    const changed = [rule({ first: 'exists' }), rule({ second: 'exists' })];
    expect(sortOut({ differences: changed }).matter).toEqual(changed);
    const [lost] = changed as [ReportedDifference];
    const same = difference({
      what: 'nftables rule 1 of chain a in table inet cni, steps',
      first: 'x',
      second: 'y',
    });
    const others = difference({ what: 'nftables table inet other', second: 'exists' });
    expect(sortOut({ differences: [NFT, others, lost, same] }).matter).toEqual([same]);
    expect(sortOut({ differences: [NFT, IPTABLES, lost] }).matter).toEqual([NFT, IPTABLES, lost]);
  });
});

describe('renderVerdict()', () => {
  const crossing = (more: Partial<Crossing> = {}): Crossing => {
    return { scene: '', maker: 'A', verb: 'DEL', by: 'B', handedOver: false, fails: [], left: [], ...more };
  };
  const verdict = (crossings: Crossing[], differences: ReportedDifference[] = []) =>
    renderVerdict({
      failing: [],
      plugins: [{ index: 0, type: 'bridge', differences, times: {} }],
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
