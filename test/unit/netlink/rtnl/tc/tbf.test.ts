// Do a bucket's numbers survive the way into the kernel's structs and back?
import { expect, test } from 'bun:test';
import { tbfFromOptions, tbfToOptions } from '../../../../../src/netlink/rtnl/tc/tbf.ts';

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
