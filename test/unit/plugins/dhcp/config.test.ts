import { describe, expect, test } from 'bun:test';
import {
  DhcpConf,
  needsUpkeep,
  serversOf,
  validateDhcpConf,
  wishesOf,
} from '../../../../plugins/dhcp/config.ts';
import { decode } from '../../../../src/cni/json.ts';

const conf = (ipam: object) => decode(DhcpConf, { ipam: { type: 'dhcp', ...ipam } }, 'conf');
const DEFAULTS = [1, 121, 3, 33, 6, 15, 119, 26, 51, 58, 59];

describe('options to send', () => {
  test('are named or numbered, and CNI_ARGS win', () => {
    const provide = [
      { option: 'host-name', value: 'a', fromArg: 'NAME' },
      { option: '60', value: 'catena' },
      { option: 'user-class', fromArg: 'ABSENT' },
    ];
    const { provide: sent } = wishesOf(conf({ provide }), [['NAME', 'web']]);
    expect([...sent].map(([code, value]) => [code, new TextDecoder().decode(value)])).toEqual([
      [12, 'web'],
      [60, 'catena'],
    ]);
  });

  test.each([
    [{ provide: [{ option: 'hostname', value: 'a' }] }, '"hostname" is no option'],
    [{ provide: [{ option: '256', value: 'a' }] }, '"256" is no option'],
    [{ provide: [{ option: '53', value: 'a' }] }, 'the protocol sets itself'],
    [{ provide: [{ option: '12', value: 'a'.repeat(256) }] }, 'at most 255 fit'],
    [{ request: [{ option: 'x' }] }, '"x" is no option'],
    [{ timeout: 0 }, '"timeout" is 0'],
    [{ priority: -1 }, '"priority" is -1'],
    [{ servers: ['fd00::1'] }, '"servers" holds "fd00::1", expected IPv4 addresses'],
    [{ servers: ['10.0.0.1'], ipv4: false, ipv6: 'slaac' }, 'expected IPv6 addresses'],
    [{ ipv4: false }, 'there is nothing to ask for'],
    [{ ipv6: 'slaac', rapidCommit: true }, 'it needs "ipv6": "dhcp"'],
  ])('%j is refused', (ipam, words) => {
    expect(() => validateDhcpConf(conf(ipam))).toThrow(words);
  });
});

describe('options to ask for', () => {
  test('are the usual ones and those named', () => {
    expect(wishesOf(conf({ request: [{ option: '42' }, { option: 'routers' }] }), []).request).toEqual([
      ...DEFAULTS,
      42,
    ]);
  });

  test.each([
    [[{ option: '42', skipDefault: true }], [42]],
    [[{ option: '42' }, { skipDefault: true }], [42]],
    [[{ skipDefault: false }], DEFAULTS],
    [[{ option: '' }], DEFAULTS],
  ])('of %j are %p: only those named with skipDefault', (request, expected) => {
    expect(wishesOf(conf({ request }), []).request).toEqual([...expected]);
  });
});

describe('families', () => {
  test.each([
    [{}, true],
    [{ ipv6: 'slaac' }, true],
    [{ ipv6: 'dhcp', ipv4: false }, true],
    [{ ipv6: 'slaac', ipv4: false }, false],
    [{ ipv6: 'stateless', ipv4: false }, false],
  ])('%j needs a daemon: %p', (ipam, needed) => {
    validateDhcpConf(conf(ipam));
    expect(needsUpkeep(conf(ipam))).toBe(needed);
  });

  test('servers count for their own family only', () => {
    const servers = ['10.0.0.1', 'FE80::1'];
    expect([serversOf(servers, 4), serversOf(servers, 6)]).toEqual([['10.0.0.1'], ['fe80::1']]);
    expect([serversOf(['10.0.0.1'], 6), serversOf(undefined, 4)]).toEqual([undefined, undefined]);
  });
});
