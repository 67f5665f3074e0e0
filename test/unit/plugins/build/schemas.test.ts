// Do the published schemas take what plugins take, by the word of a validator that is not ours?
import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { renderSchemas } from '../../../../plugins/build/schemas.ts';
import { KNOWN_TYPES, loadAbout } from '../../../../plugins/registry.ts';
import { isObject, type JsonObject } from '../../../../src/cni/json.ts';
import { PLUGIN_KEYWORD } from '../../../../src/cni/plugin-about.ts';
import { ROOT } from '../../../helpers/source-tree.ts';

const SCHEMAS = await renderSchemas();
const ABOUTS = await Promise.all(
  KNOWN_TYPES.map(async type => ({ type, kind: (await loadAbout(type)).kind })),
);
const ajv = new Ajv2020({ allErrors: true, strict: true, strictRequired: false, strictTypes: false });
ajv.addKeyword(PLUGIN_KEYWORD);
const validate = (name: string, value: unknown): string[] => {
  const check = ajv.getSchema(name) ?? ajv.addSchema(SCHEMAS[name] ?? {}, name).getSchema(name);
  check?.(value);
  return check?.errors?.map(({ instancePath, keyword }) => `${instancePath} ${keyword}`) ?? [];
};

const conflists = fs.readdirSync(path.join(ROOT, 'conflists'));
const read = (file: string): JsonObject =>
  JSON.parse(fs.readFileSync(path.join(ROOT, 'conflists', file), 'utf8'));

describe('the schema of lists', () => {
  test.each(conflists)('accepts %s', file => {
    expect(validate('conflist', read(file))).toEqual([]);
  });

  const list = (more: object, ...plugins: unknown[]) => ({
    cniVersion: '1.1.0',
    name: 'a',
    plugins,
    ...more,
  });
  const FULL = list(
    { disableCheck: 'TRUE', disableGC: false, loadOnlyInlinedPlugins: true, $schema: './x.json', own: 1 },
    { type: 'ovs', master: 'eth0', ipam: { type: 'dhcp' }, capabilities: { ips: true } },
    { type: 'bridge', ipam: { type: 'host-local', subnet: '10.0.0.0/8', routes: [{ dst: '0.0.0.0/0' }] } },
  );

  test.each([
    ['all keys', FULL],
    ['plugins in files beside it', { name: 'a' }],
    ['a newer version among others', list({ cniVersion: '2.0.0', cniVersions: ['1.0.0'] }, { type: 'x' })],
  ])('accepts %s', (_, value) => {
    expect(validate('conflist', value)).toEqual([]);
  });

  test.each([
    ['no name', { cniVersion: '1.1.0', plugins: [{ type: 'x' }] }, ' required'],
    ['a name that is none', list({ name: '../x' }, { type: 'x' }), '/name pattern'],
    ['an unknown version', list({ cniVersion: '1.0' }, { type: 'x' }), '/cniVersion enum'],
    ['a switch that is none', list({ disableCheck: 1 }, { type: 'x' }), '/disableCheck anyOf'],
    ['no plugins', list({}), '/plugins minItems'],
    ['a plugin that is a text', list({}, 'bridge'), '/plugins/0 type'],
    ['a plugin without type', list({}, { mtu: 1 }), '/plugins/0 required'],
    ['an empty type', list({}, { type: '' }), '/plugins/0/type minLength'],
    [
      'a capability as text',
      list({}, { type: 'x', capabilities: { a: 'yes' } }),
      '/plugins/0/capabilities/a type',
    ],
    ['IPAM as text', list({}, { type: 'x', ipam: 'dhcp' }), '/plugins/0/ipam type'],
    ['an MTU as text', list({}, { type: 'bridge', mtu: '1400' }), '/plugins/0/mtu anyOf'],
    ['a backend that is none', list({}, { type: 'portmap', backend: 'ipvs' }), '/plugins/0/backend enum'],
    [
      'a rate without unit',
      list({}, { type: 'bandwidth', ingressRate: 'x' }),
      '/plugins/0/ingressRate pattern',
    ],
    ['a rate below zero', list({}, { type: 'bandwidth', egressRate: -1 }), '/plugins/0/egressRate minimum'],
    ['a sysctl as number', list({}, { type: 'tuning', sysctl: { a: 1 } }), '/plugins/0/sysctl/a type'],
    [
      'a range without subnet, under any plugin',
      list({}, { type: 'ovs', ipam: { type: 'host-local', ranges: [[{}]] } }),
      '/plugins/0/ipam/ranges/0/0 required',
    ],
  ])('refuses %s', (_, value, error) => {
    expect(validate('conflist', value)).toContain(error);
  });
});

describe.each(ABOUTS)('the schema of $type', ({ type, kind }) => {
  const schema = SCHEMAS[type] as { properties: Record<string, JsonObject> };

  test('accepts its entries in the examples', () => {
    for (const { plugins } of conflists.map(read)) {
      for (const entry of plugins as JsonObject[]) {
        const uses = kind === 'ipam' ? (entry.ipam as JsonObject)?.type : entry.type;
        if (uses === type) expect(validate(type, entry)).toEqual([]);
      }
    }
  });

  test('is for its type only', () => {
    const other = kind === 'ipam' ? { type: 'x', ipam: { type: 'other' } } : { type: 'other' };
    expect(validate(type, other).join()).toContain('const');
  });

  test('describes every option', () => {
    expect(withoutWords(schema)).toEqual([]);
  });

  test('is self-contained', () => {
    const refs = [...JSON.stringify(schema).matchAll(/"\$ref":"([^"]*)"/g)].map(match => match[1] ?? '');
    expect(refs.filter(ref => !ref.startsWith('#/$defs/'))).toEqual([]);
  });
});

/** Keys of a plugin, and of what it calls, without a description; those of the protocol need none. */
function withoutWords({ properties = {} }: { properties?: Record<string, JsonObject> }): string[] {
  const own = ['type', 'cni', 'cni.dev/valid-attachments', 'args', 'runtimeConfig', 'dns', 'routes'];
  return Object.entries(properties).flatMap(([key, property]) => {
    if (own.includes(key)) return [];
    const inside = isObject(property.properties) ? withoutWords(property as never) : [];
    return property.description === undefined ? [key, ...inside] : inside;
  });
}
