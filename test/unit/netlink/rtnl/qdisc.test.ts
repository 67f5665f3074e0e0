// Do handles read as tc prints them?

import { expect, test } from 'bun:test';
import {
  parsePsched,
  readTicksPerUs,
  renderTcHandle,
  TC_H_INGRESS,
  TC_H_ROOT,
  tbfFromOptions,
  tbfToOptions,
  tcHandle,
} from '../../../../src/netlink/rtnl/qdisc.ts';

test('tcHandle() joins two halves', () => {
  expect(tcHandle(1, 0)).toBe(0x10000);
  expect(tcHandle(0xffff, 0xfff1)).toBe(TC_H_INGRESS);
});

test('renderTcHandle() prints as tc does', () => {
  expect([tcHandle(1, 0), tcHandle(0x800d, 0), TC_H_INGRESS, TC_H_ROOT].map(renderTcHandle)).toEqual([
    '1:',
    '800d:',
    'ffff:fff1',
    'root',
  ]);
});

test('parsePsched() computes the same as tc', () => {
  expect(parsePsched('000003e8 00000040 000f4240 3b9aca00\n')).toBe(15.625);
  expect(parsePsched('000003e8 00000400 000f4240 3b9aca00\n')).toBe(1000 / 1024);
  // A clock that counts nanoseconds has a tick of its own length.
  expect(parsePsched('000003e8 00000040 3b9aca00 3b9aca00\n')).toBe(1000);
});

test.each([[''], ['nonsense'], ['000003e8 00000000 000f4240 3b9aca00'], ['000003e8 00000040']])(
  'parsePsched() refuses "%s"',
  text => {
    expect(() => parsePsched(text)).toThrow("Cannot read the packet scheduler's clock");
  },
);

test('readTicksPerUs() assumes the usual length when the file is hidden', () => {
  expect(readTicksPerUs('/nonexistent')).toBe(15.625);
});

test.each([1, 125_000, 0xffffffff, 0x1_0000_0000, 0x1_0000_0001, 2 ** 50])(
  'tbfToOptions() and tbfFromOptions() keep a rate of %d bytes per second',
  rateBytes => {
    const tbf = { rateBytes, bufferTicks: 0xffffffff, limitBytes: 0xfffffffe };
    const options = tbfToOptions(tbf);
    expect(options.rate64 !== undefined).toBe(rateBytes > 0xffffffff);
    expect(tbfFromOptions(options)).toEqual(tbf);
  },
);

test('tbfFromOptions() needs the parameters', () => {
  expect(() => tbfFromOptions({})).toThrow('Cannot decode tbf: it has no TCA_TBF_PARMS');
});
