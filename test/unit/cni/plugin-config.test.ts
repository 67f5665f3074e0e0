import { expect, test } from 'bun:test';
import { decode } from '../../../src/cni/json.ts';
import { ListedPlugin, PluginConfig } from '../../../src/cni/plugin-config.ts';

const read = (value: unknown) => decode(PluginConfig, value, 'it');

test('PluginConfig keeps unknown keys', () => {
  const conf = { type: 't', mine: { a: 1 }, ipam: {}, dns: { domain: 'd' }, prevResult: { x: 1 } };
  expect(read(conf)).toEqual(conf);
});

test('PluginConfig accepts keys in any letter case, and treats null as absent', () => {
  expect(read({ Type: 't', CAPABILITIES: { a: true }, ipam: null })).toEqual({
    type: 't',
    capabilities: { a: true },
  });
});

test.each([
  [{ type: 1 }, '"type"'],
  [{ type: 't', name: 1 }, '"name"'],
  [{ type: 't', cniVersion: 1 }, '"cniVersion"'],
  [{ type: 't', capabilities: [] }, '"capabilities"'],
  [{ type: 't', capabilities: { a: 'true' } }, '"capabilities.a"'],
  [{ type: 't', ipam: 'host-local' }, '"ipam"'],
  [{ type: 't', ipam: { type: 1 } }, '"ipam.type"'],
  [{ type: 't', dns: { nameservers: 'x' } }, '"dns.nameservers"'],
  [{ type: 't', prevResult: [] }, '"prevResult"'],
  [
    { type: 't', 'cni.dev/valid-attachments': [{ containerID: 'c' }] },
    '"cni.dev/valid-attachments[0].ifname"',
  ],
])('PluginConfig refuses %j', (value, where) => {
  expect(() => read(value)).toThrow(where);
});

test('a plugin may be called without its "type", but a list may not omit it', () => {
  for (const value of [{}, { type: '' }, { type: null }]) {
    expect(() => read(value)).not.toThrow();
    expect(() => decode(ListedPlugin, value, 'it')).toThrow('"type"');
  }
});
