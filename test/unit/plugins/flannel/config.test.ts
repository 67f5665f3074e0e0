import { describe, expect, test } from 'bun:test';
import { FlannelConf, validateFlannelConf } from '../../../../plugins/flannel/config.ts';
import { decode } from '../../../../src/cni/json.ts';

const judge = (delegate: object) => () =>
  validateFlannelConf(decode(FlannelConf, { type: 'flannel', delegate }, 'conf'));

describe('validateFlannelConf()', () => {
  test('accepts a delegate with and without a type', () => {
    expect(judge({})).not.toThrow();
    expect(judge({ type: 'ptp', mtu: 1400 })).not.toThrow();
  });

  test.each([
    [{ type: 5 }, 'its "type" is 5'],
    [{ type: 'flannel' }, '"flannel", which cannot'],
    [{ name: 'x' }, 'it has "name"'],
    [{ ipam: {} }, 'it has "ipam"'],
  ])('refuses %j', (delegate, gist) => {
    expect(judge(delegate)).toThrow(
      expect.objectContaining({ code: 7, message: expect.stringContaining(gist) }),
    );
  });
});
