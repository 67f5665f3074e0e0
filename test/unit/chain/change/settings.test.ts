import { describe, expect, test } from 'bun:test';
import type { AttachmentRecord } from '../../../../src/attachments/notes.ts';
import { applyChange, type Change } from '../../../../src/chain/change/settings.ts';
import { isChangedSince } from '../../../../src/chain/records/known-add.ts';

const LIST = {
  cniVersion: '1.1.0',
  name: 'podnet',
  plugins: [
    { type: 'bridge', bridge: 'br0' },
    { type: 'portmap', capabilities: { portMappings: true, ips: false } },
    { type: 'tuning', MTU: 1400, sysctl: { a: '1' } },
    { type: 'tuning', dataDir: '/x' },
  ],
};
const BEFORE = { capabilityArgs: { portMappings: [1], mac: 'x' }, source: JSON.stringify(LIST) };

const after = (change: Change) => {
  const { capabilityArgs, source } = applyChange(BEFORE, change);
  return { capabilityArgs, plugins: JSON.parse(source).plugins };
};

describe('applyChange()', () => {
  test('replaces what is given, and keeps the rest', () => {
    expect(after({ capabilityArgs: { portMappings: [2] } })).toEqual({
      capabilityArgs: { mac: 'x', portMappings: [2] },
      plugins: LIST.plugins,
    });
    expect(after({ capabilityArgs: { portMappings: null } }).capabilityArgs).toEqual({ mac: 'x' });
    expect(after({ options: { bridge: { mtu: 9000 } } }).plugins[0]).toEqual({
      type: 'bridge',
      bridge: 'br0',
      mtu: 9000,
    });
  });

  test('names plugins by index, reads keys in any case, and takes options away', () => {
    const { plugins } = after({ options: { 2: { mtu: 1300, sysctl: null }, 3: { mtu: 1200 } } });
    expect(plugins.slice(2)).toEqual([
      { type: 'tuning', mtu: 1300 },
      { type: 'tuning', dataDir: '/x', mtu: 1200 },
    ]);
  });

  test('keeps the text of the list if no option changes, and the form of a single plugin', () => {
    expect(applyChange(BEFORE, { capabilityArgs: { portMappings: [] } }).source).toBe(BEFORE.source);
    const source = '{"cniVersion":"0.4.0","name":"one","type":"bridge"}';
    const changed = applyChange({ capabilityArgs: {}, source }, { options: { bridge: { mtu: 1 } } });
    expect(JSON.parse(changed.source)).toMatchObject({ name: 'one', type: 'bridge', mtu: 1 });
  });

  test.each([
    ['a capability that is not declared', { capabilityArgs: { ips: [] } }, 'declared are "portMappings"'],
    ['a plugin that is not there', { options: { vlan: {} } }, 'has no plugin "vlan"'],
    ['an index that is not there', { options: { 4: {} } }, 'has no plugin "4"'],
    ['a type that occurs twice', { options: { tuning: {} } }, 'by its index: 2, 3'],
  ])('refuses %s', (_what, change, message) => {
    expect(() => applyChange(BEFORE, change)).toThrow(message);
  });
});

describe('a record', () => {
  const record = (more: object) =>
    ({ phase: 'attached', runners: [], ...BEFORE, ...more }) as unknown as AttachmentRecord;

  test('has been changed if its settings differ, or are about to', () => {
    expect(isChangedSince(record({}), record({}))).toBe(false);
    expect(isChangedSince(record({}), record({ capabilityArgs: {} }))).toBe(true);
    expect(isChangedSince(record({}), record({ change: { to: BEFORE, plugins: [] } }))).toBe(true);
    expect(isChangedSince(undefined, record({}))).toBe(false);
  });
});
