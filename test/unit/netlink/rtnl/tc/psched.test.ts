// How long is a tick, according to /proc/net/psched?
import { expect, test } from 'bun:test';
import { parsePsched, readTicksPerUs } from '../../../../../src/netlink/rtnl/tc/psched.ts';

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
