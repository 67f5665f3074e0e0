import { expect, test } from 'bun:test';
import { describePluginError, joinErrors, withDetails } from '../../../../src/chain/run/plugin-errors.ts';
import { CniError } from '../../../../src/cni/errors.ts';

const plugin = { network: 'n', type: 'bridge', index: 0, verb: 'DEL', exitCode: 1 };
const failed = new CniError(11, 'try later', { details: 'busy', plugin: plugin });

test('describeLinkError() names the plugin', () => {
  expect(describePluginError(failed)).toBe('bridge DEL: try later (busy)');
  expect(describePluginError(new Error('outer', { cause: new Error('inner') }))).toBe('outer: inner');
});

test('withDetails() adds to the details and keeps the rest', () => {
  const error = withDetails(failed, 'and more', [new Error('another')]);
  expect(error).toMatchObject({ code: 11, message: 'try later', details: 'busy; and more', plugin });
  expect((error as CniError).cause).toBeInstanceOf(AggregateError);
});

test('joinErrors() leaves one alone and joins several under the first code', () => {
  expect(joinErrors('Cannot x', [failed])).toBe(failed);
  expect(joinErrors('Cannot x', [failed, new Error('boom')])).toMatchObject({
    code: 11,
    message: 'Cannot x: 2 steps failed',
    details: 'bridge DEL: try later (busy); boom',
  });
});
