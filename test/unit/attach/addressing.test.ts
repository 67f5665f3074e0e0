import { describe, expect, test } from 'bun:test';
import { holdingsOf, refuseUnusable } from '../../../src/attach/addressing.ts';
import type { CniEnv } from '../../../src/cni/env.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import { parseCidr, parseIp } from '../../../src/net/ip.ts';

const read = (request: JsonObject, args = '') => holdingsOf({ request, env: { args } as CniEnv });

describe('holdingsOf() subnets', () => {
  test.each<[string, JsonObject]>([
    ['host-local, in the old form', { ipam: { subnet: '10.1.0.0/16' } }],
    ['host-local', { ipam: { ranges: [[{ subnet: 'fd00::/64' }], [{ subnet: '10.1.0.0/16' }]] } }],
    ['static', { ipam: { addresses: [{ address: '10.1.2.3/16', gateway: '10.1.0.1' }] } }],
    ['whereabouts', { ipam: { range: '10.1.0.5-10.1.0.9/16' } }],
    ['whereabouts, several', { ipam: { ipRanges: [{ range: '10.1.9.9/16' }] } }],
    ['the capability ipRanges', { runtimeConfig: { ipRanges: [[{ subnet: '10.1.0.0/16' }]] } }],
    ['any letter case', { IPAM: { Subnet: '10.1.0.0/16' } }],
  ])('reads %s', (_, request) => {
    const { holds, names } = read(request);
    expect(holds(parseCidr('10.1.0.1/16'))).toBe(true);
    expect(names(parseCidr('10.1.0.1/16'))).toBe(true);
    expect(holds(parseCidr('10.1.7.1/24'))).toBe(true);
    expect(names(parseCidr('10.1.7.1/24'))).toBe(false);
    expect(holds(parseCidr('10.1.0.1/8'))).toBe(false);
    expect(holds(parseCidr('10.2.0.1/16'))).toBe(false);
    expect(holds(parseCidr('::10.1.0.1/112'))).toBe(false);
  });

  test.each<[string, JsonObject]>([
    ['a destination', { ipam: { routes: [{ dst: '10.1.0.0/16', subnet: '10.1.0.0/16' }] } }],
    ['what is not handed out', { ipam: { exclude: [{ range: '10.1.0.0/16' }] } }],
    [
      'what a container asks for',
      { runtimeConfig: { ips: ['10.1.0.0/16'] }, args: { cni: { subnet: '10.1.0.0/16' } } },
    ],
    ['half of the net', { ipam: { subnet: '0.0.0.0/1', ranges: [[{ subnet: '0.0.0.0/0' }]] } }],
    ['nothing that can be read', { ipam: { subnet: 7, ranges: ['10.1.0.0/16', null, { subnet: 'x' }] } }],
  ])('ignores %s', (_, request) => {
    expect(read(request).holds(parseCidr('10.1.0.1/16'))).toBe(false);
  });
});

describe('holdingsOf() requested addresses', () => {
  test.each<[string, JsonObject, string]>([
    ['the capability ips', { runtimeConfig: { ips: ['10.1.0.5/8'] } }, ''],
    ['args', { args: { cni: { ips: ['10.1.0.5'] } } }, ''],
    ['CNI_ARGS', {}, 'IgnoreUnknown=1;IP=fd00::5/64,10.1.0.5/8'],
    ['CNI_ARGS that are no list of pairs', {}, 'x:10.1.0.5;;'],
    ['an annotation', { runtimeConfig: { 'a/annotations': { 'x.io/ips': '["10.1.0.5","fd00::5"]' } } }, ''],
    ['another notation', { runtimeConfig: { ips: ['::ffff:10.1.0.5/104'] } }, ''],
  ])('reads %s', (_, request, args) => {
    const { isAsked } = read(request, args);
    expect(isAsked(parseIp('10.1.0.5'))).toBe(true);
    expect(isAsked(parseIp('10.1.0.6'))).toBe(false);
    expect(isAsked(parseIp('10.1.0.50'))).toBe(false);
  });

  test('ignores the configuration and the ranges of the runtime', () => {
    const { isAsked } = read({
      ipam: { addresses: [{ address: '10.1.0.5/24' }] },
      runtimeConfig: { ipRanges: [[{ subnet: '10.1.0.0/24', rangeStart: '10.1.0.5' }]] },
    });
    expect(isAsked(parseIp('10.1.0.5'))).toBe(false);
  });

  test('reads long texts in linear time', () => {
    const { isAsked } = read({ args: { text: `${':'.repeat(200_000)} ${'1.'.repeat(200_000)} fd00::5` } });
    expect(isAsked(parseIp('fd00::5'))).toBe(true);
  });
});

test.each(['127.0.0.5/8', '127.5.0.2/24', '224.5.0.2/24', '239.255.255.255/32', '::1/64', 'ff05::2/64'])(
  'no interface of a container gets %s',
  address => {
    const refuse = () => refuseUnusable([{ cidr: parseCidr(address), gateway: undefined }]);
    expect(refuse).toThrow(`Cannot give the container address ${address}: it is a loopback or multicast`);
  },
);

test.each(['126.255.255.254/8', '128.0.0.2/24', '223.5.0.2/24', '240.0.0.2/24', '::2/64', 'fd00::2/64'])(
  'an interface may get %s',
  address => {
    refuseUnusable([{ cidr: parseCidr(address), gateway: undefined }]);
  },
);
