// Which container ids, names, interfaces and arguments does the runtime take? (reference notes "Validators")

import { describe, expect, test } from 'bun:test';
import { parseNetwork } from '../../src/chain/config/conflist.ts';
import { pluginEnv } from '../../src/chain/run/call-plugins.ts';
import { type Attachment, checkAttachment } from '../../src/chain/run/runtime.ts';
import { ATTACHMENT } from '../helpers/noop-chain.ts';

const check = (more: Partial<Attachment>, verb: 'ADD' | 'CHECK' | 'DEL' = 'ADD') =>
  checkAttachment({ ...ATTACHMENT, ...more }, verb);

describe('a container id', () => {
  test.each(['a', '0', 'A.b-c_d', 'x'.repeat(5000)])('may be %j', containerId => {
    expect(() => check({ containerId })).not.toThrow();
  });

  test.each([
    ['', 3],
    ['.a', 4],
    ['-a', 4],
    ['_a', 4],
    ['a/b', 4],
    ['a b', 4],
    ['a\n', 4],
    ['é', 4],
  ])('must not be %j: code %d', (containerId, code) => {
    for (const verb of ['ADD', 'CHECK', 'DEL'] as const)
      expect(() => check({ containerId }, verb)).toThrow(expect.objectContaining({ code }));
  });
});

describe('an interface name', () => {
  test.each(['eth0', 'x'.repeat(15), 'a\\b', 'ä', 'a\u200bb'])('may be %j', ifname => {
    expect(() => check({ ifname })).not.toThrow();
  });

  test.each([
    '',
    '.',
    '..',
    'a/b',
    'a:b',
    // The kernel completes a name with %d, and has sysctls of these names for all devices (net/ipv4/conf/all).
    ...['a%d', 'all', 'default'],
    'a b',
    'a\tb',
    'a\u0085b',
    'a\u00a0b',
    'a\u3000b',
    'x'.repeat(16),
    'é'.repeat(8),
  ])('must not be %j', ifname => {
    expect(() => check({ ifname })).toThrow(
      expect.objectContaining({ code: 4, details: ifname || undefined }),
    );
  });
});

describe('a network name', () => {
  const parse = (name: unknown) => parseNetwork(JSON.stringify({ name, plugins: [{ type: 't' }] }));

  test.each(['n', '0', 'a.b-c_d'])('may be %j', name => {
    expect(parse(name).name).toBe(name);
  });

  test.each(['', '../x', '.hidden', 'a b', 'a/b', 'a\n', 5, null, undefined])('must not be %j', name => {
    expect(() => parse(name)).toThrow(expect.objectContaining({ code: 7 }));
  });
});

describe('a namespace', () => {
  test('may be missing on DEL only', () => {
    expect(() => check({ netns: '' }, 'DEL')).not.toThrow();
    for (const verb of ['ADD', 'CHECK'] as const)
      expect(() => check({ netns: '' }, verb)).toThrow(expect.objectContaining({ code: 4 }));
  });
});

describe('CNI_ARGS', () => {
  test('are joined in order', () => {
    const args = [
      ['IgnoreUnknown', '1'],
      ['K', ''],
      ['A', 'b=c'],
    ] as const;
    expect(() => check({ args })).not.toThrow();
    expect(pluginEnv('ADD', { pluginDirs: [] }, { ...ATTACHMENT, args }).CNI_ARGS).toBe(
      'IgnoreUnknown=1;K=;A=b=c',
    );
  });

  test.each<[string, string]>([
    ['', 'v'],
    ['K;', 'v'],
    ['K=', 'v'],
    ['K\0', 'v'],
    ['K', 'v;w'],
    ['K', 'v\0'],
  ])('must not be %j=%j, which would read as something else', (key, value) => {
    expect(() => check({ args: [[key, value]] })).toThrow(expect.objectContaining({ code: 4 }));
  });
});
