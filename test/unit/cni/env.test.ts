import { describe, expect, test } from 'bun:test';
import {
  COMMANDS,
  parseCniArgs,
  parseEnv,
  parseNetworkName,
  pickCniArgs,
  renderCniArgs,
} from '../../../src/cni/env.ts';
import { CniError } from '../../../src/cni/errors.ts';

const FULL = {
  CNI_COMMAND: 'ADD',
  CNI_CONTAINERID: 'c1',
  CNI_NETNS: '/run/netns/x',
  CNI_IFNAME: 'eth0',
  CNI_ARGS: 'A=b',
  CNI_PATH: '/a:/b',
};
function errorOf(env: Record<string, string>): CniError {
  try {
    parseEnv(env);
  } catch (error) {
    if (error instanceof CniError) return error;
  }
  throw new Error('no CniError was thrown');
}

describe('parseEnv()', () => {
  test('reads every variable', () => {
    expect(parseEnv(FULL)).toEqual({
      command: 'ADD',
      containerId: 'c1',
      netns: '/run/netns/x',
      ifname: 'eth0',
      args: 'A=b',
      path: '/a:/b',
      netnsOverride: false,
    });
  });

  test.each([
    ['ADD', ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME']],
    ['CHECK', ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME']],
    ['DEL', ['CNI_CONTAINERID', 'CNI_IFNAME']],
  ])('reports what %s lacks, in the order of the reference', (command, names) => {
    expect(errorOf({ CNI_COMMAND: command }).toReply()).toEqual({
      code: 4,
      msg: `required env variables [${names.join(',')}] missing`,
    });
  });

  test.each(['GC', 'STATUS', 'VERSION'])(
    '%s needs the command only, and ignores the other variables',
    command => {
      expect(parseEnv({ CNI_COMMAND: command, CNI_CONTAINERID: '../x', CNI_IFNAME: 'a/b' })).toMatchObject({
        command,
        containerId: '../x',
        ifname: 'a/b',
        netns: '',
      } as never);
    },
  );

  test('reports all errors at once', () => {
    const error = errorOf({ CNI_COMMAND: 'ADD', CNI_CONTAINERID: '.x', CNI_IFNAME: 'sixteen-bytes-xx' });
    expect(error.code).toBe(4);
    expect(error.message).toContain('required env variables [CNI_NETNS] missing; invalid CNI_CONTAINERID: ');
    expect(error.message).toContain('invalid CNI_IFNAME: ');
    expect(error.details).toBe('CNI_CONTAINERID=".x", CNI_IFNAME="sixteen-bytes-xx"');
  });

  test.each([
    [{}, 'required env variables [CNI_COMMAND] missing'],
    [{ CNI_COMMAND: '' }, 'required env variables [CNI_COMMAND] missing'],
    [{ CNI_COMMAND: 'add' }, 'unknown CNI_COMMAND: add'],
    [{ ...FULL, CNI_COMMAND: 'UPDATE' }, 'unknown CNI_COMMAND: UPDATE'],
  ])('refuses %j', (env, message) => {
    expect(errorOf(env)).toMatchObject({ code: 4, message });
  });

  test.each([
    ['1', true],
    ['true', true],
    ['TRUE', true],
    ['yes', false],
    ['0', false],
    ['', false],
  ])('reads CNI_NETNS_OVERRIDE=%j as %p', (value, expected) => {
    expect(parseEnv({ ...FULL, CNI_NETNS_OVERRIDE: value }).netnsOverride).toBe(expected);
  });

  test('accepts the six commands', () => {
    expect([...COMMANDS]).toEqual(['ADD', 'CHECK', 'DEL', 'GC', 'STATUS', 'VERSION']);
  });
});

describe('parseNetworkName()', () => {
  test('returns the name', () => {
    expect(parseNetworkName('pod-net.1')).toBe('pod-net.1');
  });

  test.each([
    [undefined, 'missing network name', undefined],
    ['', 'missing network name', undefined],
    [7, 'it must be a string', '7'],
    ['../x', 'invalid characters found in network name', '../x'],
  ])('refuses %j', (name, message, details) => {
    try {
      parseNetworkName(name);
      expect.unreachable();
    } catch (error) {
      expect(error).toMatchObject({ code: 7, details } as never);
      expect((error as Error).message).toContain(message);
    }
  });
});

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
