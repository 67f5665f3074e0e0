// What is a result of a plugin, and how do several failures become one?
import { describe, expect, test } from 'bun:test';
import {
  acceptResult,
  describePluginError,
  joinErrors,
  withDetails,
} from '../../../../src/chain/run/plugin-outcome.ts';
import { CniError } from '../../../../src/cni/errors.ts';

const plugin = { network: 'n', type: 'bridge', index: 1, verb: 'ADD', exitCode: 0, stderr: 'hm' };
const accept = (printed: unknown, version: '0.2.0' | '0.4.0' | '1.0.0' | '1.1.0' = '1.1.0') =>
  acceptResult(typeof printed === 'string' ? printed : JSON.stringify(printed), version, plugin);

describe('acceptResult()', () => {
  test('returns the printed result, unknown keys included, in the version of the list', () => {
    const printed = { cniVersion: '1.0.0', ips: [{ address: '10.0.0.2/24', mine: 1 }], more: { deep: [] } };
    expect(accept(printed)).toEqual({ ...printed, cniVersion: '1.1.0' });
    expect(accept(printed, '0.4.0')).toEqual({
      ...printed,
      cniVersion: '0.4.0',
      ips: [{ version: '4', address: '10.0.0.2/24', mine: 1 }],
      dns: {},
    });
  });

  test.each([
    ['missing', {}],
    ['empty', { cniVersion: '' }],
    ['no text', { cniVersion: 5 }],
  ])('uses the version of the list when the one of the result is %s', (_, printed) => {
    expect(accept({ ...printed, ips: [{ version: '4', address: '10.0.0.2/24' }] }, '0.4.0')).toEqual({
      cniVersion: '0.4.0',
      ips: [{ version: '4', address: '10.0.0.2/24' }],
    });
  });

  test.each([
    ['nothing', '', 6, 'it printed no result'],
    ['no JSON', 'up', 6, 'Cannot decode output of plugin "bridge"'],
    ['two documents', '{}{}', 6, 'Cannot decode output of plugin "bridge"'],
    ['an unknown version', { cniVersion: '2.0.0' }, 1, 'unsupported CNI result version "2.0.0"'],
    [
      'a mistake in the layout of its own version',
      { cniVersion: '0.2.0', ip4: { ip: '10.0.0.2' } },
      6,
      'Cannot use result of plugin "bridge": "ip4.ip" must be an address with a prefix length, found "10.0.0.2"',
    ],
    ['null among addresses', { ips: [null] }, 6, '"ips[0]" must be of type object, found null'],
  ])('blames the producer for %s', (_, printed, code, message) => {
    try {
      accept(printed);
      expect.unreachable();
    } catch (error) {
      expect(error).toMatchObject({ code, plugin, message: expect.stringContaining(message) });
    }
  });

  test('blames the plugin also for what the version of the list cannot express', () => {
    expect(() => accept({ cniVersion: '1.0.0', interfaces: [{ name: 'eth0' }] }, '0.2.0')).toThrow(
      expect.objectContaining({ code: 7, plugin, message: expect.stringContaining('no valid IP addresses') }),
    );
  });
});

const failing = { network: 'n', type: 'bridge', index: 0, verb: 'DEL', exitCode: 1 };
const failed = new CniError(11, 'try later', { details: 'busy', plugin: failing });

test('describeLinkError() names the plugin', () => {
  expect(describePluginError(failed)).toBe('bridge DEL: try later (busy)');
  expect(describePluginError(new Error('outer', { cause: new Error('inner') }))).toBe('outer: inner');
});

test('withDetails() adds to the details and keeps the rest', () => {
  const error = withDetails(failed, 'and more', [new Error('another')]);
  expect(error).toMatchObject({ code: 11, message: 'try later', details: 'busy; and more', plugin: failing });
  expect((error as CniError).cause).toBeInstanceOf(AggregateError);
});

test('joinErrors() leaves one alone and joins several under the first code', () => {
  expect(joinErrors('Cannot x', [failed])).toBe(failed);
  expect(joinErrors('Cannot x', [failed, new Error('boom')])).toMatchObject({
    code: 11,
    message: 'Cannot x: bridge DEL: try later (busy); boom',
    details: undefined,
  });
  expect(joinErrors('Cannot x', [...'abcdefg'])).toMatchObject({
    message: 'Cannot x: a; b; c; d; e and 2 more',
    details: 'f; g',
  });
});
