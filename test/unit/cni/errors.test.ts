import { describe, expect, test } from 'bun:test';
import { CniError, describeError, toCniError } from '../../../src/cni/errors.ts';

describe('CniError', () => {
  test('renders as the specification requires', () => {
    const error = new CniError(7, 'no name', { details: 'in the file' });
    expect(error.toReply('1.0.0')).toEqual({
      cniVersion: '1.0.0',
      code: 7,
      msg: 'no name',
      details: 'in the file',
    });
    expect(Object.keys(error.toReply('1.0.0'))).toEqual(['cniVersion', 'code', 'msg', 'details']);
    expect(error.name).toBe('CniError');
  });

  test('omits empty details and an unknown version', () => {
    expect(new CniError(0, 'x', { details: '' }).toReply()).toEqual({ code: 0, msg: 'x' });
  });

  test('has no cause by default', () => {
    expect('cause' in new CniError(0, 'x')).toBe(false);
    expect(new CniError(0, 'x', { cause: 'why' }).cause).toBe('why');
  });
});

describe('toCniError()', () => {
  test('returns a CniError unchanged', () => {
    const error = new CniError(11, 'later');
    expect(toCniError(error)).toBe(error);
  });

  test('keeps the code of a wrapped one, and adds the outer messages', () => {
    const plugin = { network: 'n', type: 'l', index: 0, verb: 'ADD' };
    const inner = new CniError(11, 'later', { details: 'busy', plugin: plugin });
    expect(toCniError(new Error('Cannot add', { cause: inner }))).toMatchObject({
      code: 11,
      message: 'later',
      details: 'busy; Cannot add: later',
      plugin,
    });
  });

  test.each([
    ['an error', new Error('boom'), 'boom'],
    ['an error with a cause', new Error('outer', { cause: new Error('inner') }), 'outer: inner'],
    ['a text', 'a text', 'a text'],
    ['nothing', undefined, 'undefined'],
  ])('gives code 999 to %s', (_, thrown, message) => {
    expect(toCniError(thrown)).toMatchObject({ code: 999, message });
  });
});

describe('describeError()', () => {
  test('includes each text of the chain once', () => {
    const inner = new Error('EACCES: permission denied');
    const middle = new Error('Cannot open "x": EACCES: permission denied', { cause: inner });
    expect(describeError(new Error('Cannot add', { cause: middle }))).toBe(
      'Cannot add: Cannot open "x": EACCES: permission denied',
    );
  });

  test.each([
    [undefined, 'undefined'],
    [new TypeError(''), 'TypeError'],
    [new Error('', { cause: new Error('a') }), 'a'],
  ])('has words for %p, too', (thrown, text) => expect(describeError(thrown)).toBe(text));

  test('includes all of several errors', () => {
    expect(describeError(new AggregateError([new Error('a'), new Error('b')], 'two'))).toBe('two: a: b');
  });
});

test('CniError quotes no more than people can read', () => {
  const { message, details } = new CniError(7, 'x'.repeat(1_000_000), { details: 'y'.repeat(20_000) });
  expect(message).toBe(`${'x'.repeat(16_000)}… (1000000 characters in all)`);
  expect(details).toEndWith('y… (20000 characters in all)');
});
