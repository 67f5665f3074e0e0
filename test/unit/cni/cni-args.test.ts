import { describe, expect, test } from 'bun:test';
import { parseCniArgs, pickCniArgs, renderCniArgs } from '../../../src/cni/cni-args.ts';

describe('parseCniArgs()', () => {
  test.each([
    ['', []],
    ['K=v', [['K', 'v']]],
    [
      'A=1;B=;A=2',
      [
        ['A', '1'],
        ['B', ''],
        ['A', '2'],
      ],
    ],
    ['=v', [['', 'v']]],
  ])('splits %j', (text, expected) => {
    expect(parseCniArgs(text)).toEqual(expected as never);
    expect(renderCniArgs(parseCniArgs(text))).toBe(text);
  });

  test.each([
    ['K', 'K'],
    ['A=1;', ''],
    [';A=1', ''],
    ['A=1;;B=2', ''],
    ['K=a=b', 'K=a=b'],
  ])('refuses %j, naming the pair', (text, pair) => {
    expect(() => parseCniArgs(text)).toThrow(
      expect.objectContaining({
        code: 4,
        message: `Cannot read CNI_ARGS: invalid pair ${JSON.stringify(pair)}, expected KEY=VALUE`,
        details: text,
      }),
    );
  });
});

describe('pickCniArgs()', () => {
  const pick = (text: string) => pickCniArgs(parseCniArgs(text), ['IP', 'MAC']);

  test('returns the known ones, the last of a repeated one', () => {
    expect(pick('IP=1;MAC=x;IP=2')).toEqual({ IP: '2', MAC: 'x' });
    expect(pick('')).toEqual({});
  });

  test.each(['1', 'true', 'TRUE', 'True'])(
    'ignores unknown ones with IgnoreUnknown=%s at any position',
    word => {
      expect(pick(`K8S_POD_NAME=p;IP=1;IgnoreUnknown=${word}`)).toEqual({ IP: '1' });
    },
  );

  test.each(['X=1;ip=2', 'X=1;ip=2;IgnoreUnknown=0', 'IgnoreUnknown=false;X=1;ip=2'])(
    'reports the unknown ones of %s',
    text => {
      expect(() => pick(text)).toThrow('Cannot use CNI_ARGS: unknown args ["X=1","ip=2"]');
    },
  );

  test('refuses a value that is not a boolean', () => {
    expect(() => pick('IgnoreUnknown=yes')).toThrow('IgnoreUnknown must be 1, true, 0 or false, found "yes"');
  });
});
