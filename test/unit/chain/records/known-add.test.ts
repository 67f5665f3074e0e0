import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { type Entry, writeEntry } from '../../../../src/attachments/entries.ts';
import { ofEntry } from '../../../../src/attachments/notes.ts';
import {
  findCachedResult,
  findConfigOfAdd,
  withCachedArgs,
} from '../../../../src/chain/records/known-add.ts';
import type { CniError } from '../../../../src/cni/errors.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

const LIST = listOf('1.0.0', [{ type: 'noop' }]);
const CACHED: Entry = {
  network: 'testnet',
  containerId: 'c1',
  ifname: 'eth0',
  netns: '',
  args: [],
  capabilityArgs: {},
  source: LIST.source,
  result: { cniVersion: '0.4.0', ips: [{ version: '4', address: '10.0.0.2/24' }] },
};

const known = (more: Partial<Entry> = {}) => ofEntry({ ...CACHED, ...more }, chain.runtime.cacheDir, []);

test('findCachedResult() converts the recorded result to the version of the list', () => {
  expect(findCachedResult(LIST, ATTACHMENT, chain.runtime)).toBeUndefined();
  writeEntry(chain.runtime.cacheDir, CACHED);
  expect(findCachedResult(LIST, ATTACHMENT, chain.runtime)).toEqual({
    cniVersion: '1.0.0',
    ips: [{ address: '10.0.0.2/24' }],
  });
  writeEntry(chain.runtime.cacheDir, { ...CACHED, result: { cniVersion: '7.0.0' } });
  expect(() => findCachedResult(LIST, ATTACHMENT, chain.runtime)).toThrow(
    'Cannot use cached result: unsupported CNI result version "7.0.0"',
  );
});

describe('findFrozen()', () => {
  const find = (source: string) => {
    const warnings: string[] = [];
    const onWarning = ({ message }: CniError) => warnings.push(message);
    const found = findConfigOfAdd(known({ source }), { ...chain.runtime, onWarning });
    return { found, warnings };
  };

  test('returns the list of the ADD', () => {
    expect(find(LIST.source)).toEqual({ found: LIST, warnings: [] });
  });

  test('returns none for a record of libcni 0.7', () => {
    expect(find('')).toEqual({ found: undefined, warnings: [] });
  });

  test.each([
    ['is not JSON', '{', 'Cannot decode configuration'],
    ['is no list', '{"name":"testnet"}', 'it has no "plugins"'],
    ['is of another network', LIST.source.replace('testnet', 'other'), 'it is for network "other"'],
  ])('warns of a record that %s', (_, source, problem) => {
    const { found, warnings } = find(source);
    expect(found).toBeUndefined();
    expect(warnings).toEqual([expect.stringContaining(problem)]);
    expect(warnings[0]).toStartWith(`Cannot use configuration in cached result "${chain.runtime.cacheDir}`);
  });
});

describe('withCachedArgs()', () => {
  const given = { ...ATTACHMENT, args: [['A', '1']] as const, capabilityArgs: { a: 1 } };

  test('prefers recorded arguments, and always uses recorded capability arguments', () => {
    expect(withCachedArgs(given, known())).toEqual({ ...given, capabilityArgs: {} });
    const cached = known({ args: [['B', '2']] as const, capabilityArgs: { b: 2 } });
    expect(withCachedArgs(given, cached)).toMatchObject({ args: [['B', '2']], capabilityArgs: { b: 2 } });
  });

  test('keeps the given ones without a record, and with one of libcni 0.7', () => {
    expect(withCachedArgs(given, undefined)).toBe(given);
    expect(withCachedArgs(given, known({ source: '' }))).toBe(given);
  });
});
