import { describe, expect, test } from 'bun:test';
import { TuningConf } from '../../../../plugins/tuning/config.ts';
import { findDifferences, findOverridden, planResult, planTuning } from '../../../../plugins/tuning/plan.ts';
import { decode } from '../../../../src/cni/json.ts';

function plan(conf: object, args: [string, string][] = []) {
  return planTuning(decode(TuningConf, { type: 'tuning', ...conf }, 'test'), args, 'eth0');
}

describe('planTuning()', () => {
  test('does nothing by default', () => {
    expect(plan({})).toEqual({ sysctls: [], link: {} });
    expect(plan({ mac: '', mtu: 0, promisc: false })).toEqual({ sysctls: [], link: {} });
  });

  test('treats allmulti off and a queue length of 0 as configured', () => {
    expect(plan({ allmulti: false, txQLen: 0 }).link).toEqual({ allmulti: false, txQLen: 0 });
  });

  test('chooses the hardware address: conf, CNI_ARGS, capability, args.cni', () => {
    const conf = { mac: '02:00:00:00:00:01' };
    const args: [string, string][] = [['MAC', '02-00-00-00-00-02']];
    const capability = { ...conf, RuntimeConfig: { mac: '0200.0000.0003' } };
    expect(plan(conf).link.mac).toBe('02:00:00:00:00:01');
    expect(plan(conf, args).link.mac).toBe('02:00:00:00:00:02');
    expect(plan(capability, args).link.mac).toBe('02:00:00:00:00:03');
    expect(plan({ ...capability, args: { cni: { mac: '02:00:00:00:00:0A' } } }, args).link.mac).toBe(
      '02:00:00:00:00:0a',
    );
    expect(plan({ ...capability, args: { cni: { mac: '' } } }, args).link.mac).toBeUndefined();
  });

  test('lets args.cni turn off configured values, but not with null', () => {
    const conf = { mtu: 1400, promisc: true, allmulti: true, txQLen: 10 };
    expect(
      plan({ ...conf, args: { cni: { mtu: 0, promisc: false, allmulti: false, txQLen: 5 } } }).link,
    ).toEqual({
      allmulti: false,
      txQLen: 5,
    });
    expect(plan({ ...conf, args: { cni: { mtu: null, promisc: null } } }).link).toEqual(conf);
  });

  test('merges sysctls of args.cni, also into none', () => {
    const args = { cni: { sysctl: { 'net.a': '2' } } };
    expect(plan({ sysctl: { 'net.a': '1', 'net.b': '1' }, args }).sysctls.map(one => one.value)).toEqual([
      '2',
      '1',
    ]);
    expect(plan({ args }).sysctls).toHaveLength(1);
  });

  const bad: [string, object][] = [
    ['a hardware address that is none', { mac: 'zz' }],
    ['a multicast hardware address', { mac: '01:00:00:00:00:01' }],
    ['a negative MTU', { mtu: -1 }],
    ['a negative queue length', { txQLen: -1 }],
    ['a MTU that fits no message', { mtu: 2 ** 33 }],
  ];
  for (const [title, conf] of bad) {
    test(`refuses ${title}`, () =>
      expect(() => plan(conf)).toThrow(expect.objectContaining({ code: 7 }) as Error));
  }
});

describe('planResult()', () => {
  test('updates the interface of that sandbox only', () => {
    const interfaces = [
      { name: 'eth0', mac: 'a' },
      { name: 'eth0', mac: 'b', sandbox: '/n' },
      { name: 'x', sandbox: '/n' },
    ];
    const prev = { interfaces, ips: [{ address: '10.0.0.2/24' }] };
    expect(planResult(prev, { mac: 'c', mtu: 1400 }, 'eth0', '/n')).toEqual({
      interfaces: [
        { name: 'eth0', mac: 'a' },
        { name: 'eth0', mac: 'c', sandbox: '/n', mtu: 1400 },
        { name: 'x', sandbox: '/n' },
      ],
      ips: [{ address: '10.0.0.2/24' }],
    });
    expect(planResult(prev, { txQLen: 5 }, 'eth0', '/n')).toEqual(prev);
  });
});

describe('findDifferences()', () => {
  const wanted = plan({
    sysctl: { 'net.ipv4.tcp_rmem': '1 2 3', 'net.x': '1', 'net.w': '1' },
    mtu: 1400,
    promisc: true,
  });

  test('ignores white space and unreadable sysctls', () => {
    const sysctls = new Map([
      ['net/ipv4/tcp_rmem', '1\t2\t3'],
      ['net/x', '1'],
      ['net/w', undefined],
    ]);
    expect(findDifferences(wanted, { index: 2, sysctls, link: { mtu: 1400, promisc: true } })).toEqual([]);
  });

  test.each([
    ['8081,30000-30010,8080,30005', '8080-8081,30000-30010', true],
    ['8080,8082', '8080,8082', true],
    ['8080,8081', '8080,8082', false],
    ['0x100', '256', true],
    ['010', '8', true],
    ['0', '0', true],
    ['-1', '-1', true],
    ['2001:db8::1', '2001:0db8:0000:0000:0000:0000:0000:0001', true],
    ['bbr', 'cubic', false],
  ])('knows %j as the kernel prints it, %j: %p', (value, printed, isSame) => {
    const state = { index: 2, sysctls: new Map([['net/x', printed]]), link: {} };
    expect(findDifferences(plan({ sysctl: { 'net.x': value } }), state)).toHaveLength(isSame ? 0 : 1);
  });

  test('names every difference with both values', () => {
    const sysctls = new Map([
      ['net/ipv4/tcp_rmem', '1 2 4'],
      ['net/w', '1'],
    ]);
    expect(findDifferences(wanted, { index: 2, sysctls, link: { mtu: 1500, promisc: false } })).toEqual([
      'sysctl "net/ipv4/tcp_rmem" is "1 2 4" instead of "1 2 3"',
      'sysctl "net.x" does not exist',
      'promisc is false instead of true',
      'mtu is 1500 instead of 1400',
    ]);
  });
});

describe('findOverridden()', () => {
  const find = (conf: object, former: object, args: [string, string][] = []) => {
    const [now, before] = [conf, former].map(one => decode(TuningConf, { type: 'tuning', ...one }, 'test'));
    return findOverridden(now as TuningConf, before as TuningConf, args);
  };
  const [a, b] = ['02:00:00:00:00:0a', '02:00:00:00:00:0b'];
  const cni = (own: object) => ({ args: { cni: own } });

  test.each<
    [what: string, conf: object, former: object, args: [string, string][], found: string | undefined]
  >([
    ['nothing', { mtu: 1400 }, { mtu: 1300 }, [], undefined],
    [
      'an option of args.cni',
      { mtu: 1400, ...cni({ mtu: 1300 }) },
      cni({ mtu: 1300 }),
      [],
      '"args.cni" has "mtu"',
    ],
    [
      'one that stays',
      { mtu: 1400, ...cni({ mtu: 1300 }) },
      { mtu: 1400, ...cni({ mtu: 1300 }) },
      [],
      undefined,
    ],
    ['one that goes', cni({ mtu: 1300 }), { mtu: 1400, ...cni({ mtu: 1300 }) }, [], undefined],
    [
      'a sysctl of args.cni',
      { sysctl: { 'net.a': '1', 'net.b': '2' }, ...cni({ sysctl: { 'net.b': '1' } }) },
      cni({ sysctl: { 'net.b': '1' } }),
      [],
      '"args.cni" has "net.b"',
    ],
    [
      'the capability',
      { mac: a, runtimeConfig: { mac: b } },
      { runtimeConfig: { mac: b } },
      [],
      'the capability',
    ],
    ['CNI_ARGS', { mac: a }, {}, [['MAC', b]], 'CNI_ARGS has "MAC"'],
    ['the capability before CNI_ARGS', { runtimeConfig: { mac: a } }, {}, [['MAC', b]], undefined],
    [
      'args.cni before the capability',
      { runtimeConfig: { mac: a }, ...cni({ mac: b }) },
      cni({ mac: b }),
      [],
      '"args.cni" has "mac"',
    ],
  ])('%s', (_, conf, former, args, found) => {
    const why = find(conf, former, args);
    if (found === undefined) expect(why).toBeUndefined();
    else expect(why).toContain(found);
  });
});
