// What is reported of one set of executables that finishes what the other has begun?
import { describe, expect, test } from 'bun:test';
import type { Conflist } from '../../../src/chain/config/conflist.ts';
import { isCrossing, reportCrossings } from '../../../src/compare/crossings.ts';
import type { Answer, Moment, SceneRecord, Sight } from '../../../src/compare/record.ts';
import { DELETED_BY_B } from '../../../src/compare/scene.ts';

const LIST = { plugins: [{ type: 'bridge' }, { type: 'portmap' }] } as unknown as Conflist;
const OK: Answer = { failed: false };
const RESULT: Answer = { failed: false, result: { ips: [{ address: '10.1.0.2/24' }] } };
const EMPTY: Sight = { places: { host: {} }, files: {} };

const moment = (step: string, answer: Answer, sight = EMPTY, index?: number): Moment => ({
  step,
  verb: step,
  answer,
  durationMs: 1,
  sight,
  ...(index === undefined ? {} : { index }),
});
const record = (...moments: Moment[]): SceneRecord => {
  return { namespaces: {}, began: 0, ended: 1, before: EMPTY, moments };
};
const crossingOf = (second: SceneRecord) =>
  reportCrossings(LIST, [{ name: DELETED_BY_B, first: record(), second }])[0];

describe('reportCrossings()', () => {
  test('leaves out scenes in which each set works with itself', () => {
    expect(reportCrossings(LIST, [{ name: 'life', first: record(), second: record() }])).toEqual([]);
    expect([isCrossing('life'), isCrossing(DELETED_BY_B)]).toEqual([false, true]);
  });

  test('names the plugins that fail, with their errors', () => {
    const no: Answer = { failed: true, code: 999, message: 'no such chain' };
    const found = crossingOf(
      record(moment('ADD', RESULT, EMPTY, 0), moment('DEL', no, EMPTY, 0), moment('DEL', no)),
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
    expect(crossingOf(record(moment('ADD', RESULT, EMPTY, 0), moment('DEL', OK, after)))?.left).toEqual([
      'host: link veth#1',
      'host: nftables 80 → 10.1.0.2 . 80 in wildcard4',
      'host: iptables ip nat: chain CNI-2bbe0c48b91a7d1b8a6753a8',
      'file /leases/10.1.0.2',
    ]);
  });

  test('says that nothing was tried when ADD fails', () => {
    const no: Answer = { failed: true, message: 'no master' };
    expect(crossingOf(record(moment('ADD', no), moment('DEL', OK)))).toMatchObject({
      untried: 'no master',
      fails: [],
    });
  });
});
