// How is what a plugin prints on ADD read? (reference notes "Result decoding" and "Layouts")

import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { addNetwork, deleteNetwork } from '../../src/chain/run/run.ts';
import type { Runtime } from '../../src/chain/run/runtime.ts';
import type { JsonObject } from '../../src/cni/json.ts';
import { parseResult, SPEC_VERSIONS, type SpecVersion } from '../../src/cni/result.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../helpers/noop-chain.ts';

let chain: NoopChain;
beforeAll(() => {
  chain = makeNoopChain();
});
afterAll(() => chain.dispose());

/** ADD, through the seam for tests, of one plugin that prints this. */
async function add(stdout: string, cniVersion: string): Promise<JsonObject> {
  const runtime: Runtime = { ...chain.runtime, exec: () => ({ stdout }) };
  const list = listOf(cniVersion, [{ type: 'noop' }]);
  const result = await addNetwork(list, ATTACHMENT, runtime);
  await deleteNetwork(list, ATTACHMENT, runtime);
  return result;
}
const LAYOUTS: Readonly<Record<SpecVersion, JsonObject>> = {
  '0.1.0': { ip4: { ip: '10.0.0.2/24' } },
  '0.2.0': { ip4: { ip: '10.0.0.2/24' } },
  '0.3.0': { ips: [{ version: '4', address: '10.0.0.2/24' }] },
  '0.3.1': { ips: [{ version: '4', address: '10.0.0.2/24' }] },
  '0.4.0': { ips: [{ version: '4', address: '10.0.0.2/24' }] },
  '1.0.0': { ips: [{ address: '10.0.0.2/24' }] },
  '1.1.0': { ips: [{ address: '10.0.0.2/24' }] },
};

describe('standard output', () => {
  test.each([
    ['nothing', '', 'it printed no result'],
    ['white space', ' \n', 'it printed no result'],
    ['words', 'interface is up', 'Cannot decode output of plugin "noop"'],
    ['an array', '[{}]', 'expected a JSON object, found an array'],
    ['a scalar', '5', 'expected a JSON object, found a number'],
    ['a second document', '{} {}', 'Cannot decode output of plugin "noop"'],
    ['a byte order mark', '\uFEFF{}', 'Cannot decode output of plugin "noop"'],
    ['a comment', '{} // done', 'Cannot decode output of plugin "noop"'],
  ])('is refused when it is %s', async (_, stdout, message) => {
    await expect(add(stdout, '1.1.0')).rejects.toMatchObject({
      code: 6,
      message: expect.stringContaining(message),
      plugin: { type: 'noop', index: 0, exitCode: 0 },
    });
  });

  test('is an empty result when it is null, as in the reference', async () => {
    expect(await add('null', '1.0.0')).toEqual({ cniVersion: '1.0.0' });
  });
});

describe('the version of a result', () => {
  test.each([...SPEC_VERSIONS])(
    '[%s] is that of the configuration when the result has none',
    async version => {
      const layout = LAYOUTS[version];
      for (const more of [{}, { cniVersion: '' }, { cniVersion: null }, { cniVersion: 1 }]) {
        expect(await add(JSON.stringify({ ...layout, ...more }), version)).toEqual({
          ...layout,
          cniVersion: version,
        });
      }
    },
  );

  test('is 0.1.0 when the configuration has none either', async () => {
    expect(await add(JSON.stringify(LAYOUTS['0.1.0']), '')).toEqual({
      ...LAYOUTS['0.1.0'],
      cniVersion: '0.1.0',
    });
  });

  test.each(SPEC_VERSIONS.flatMap(from => SPEC_VERSIONS.map(to => [from, to] as const)))(
    '%s is converted to %s of the configuration',
    async (from, to) => {
      expect(await add(JSON.stringify({ cniVersion: from, ...LAYOUTS[from] }), to)).toMatchObject({
        cniVersion: to,
        ...LAYOUTS[to],
      });
    },
  );

  test.each(['2.0.0', '1.0', 'v1.0.0', '0.3.2', ' 1.0.0'])(
    '%j is refused: it must be a version as text',
    async cniVersion => {
      await expect(add(JSON.stringify({ cniVersion }), '1.0.0')).rejects.toMatchObject({
        code: 1,
        message: `Cannot use result of plugin "noop": unsupported CNI result version ${JSON.stringify(cniVersion)}`,
      });
    },
  );
});

describe('values of a result', () => {
  const ip = (address: unknown, more: JsonObject = {}) => ({ ips: [{ address, ...more }] });

  test.each<[string, JsonObject]>([
    ['host bits', ip('10.1.2.3/8')],
    ['an IPv4 address in IPv6 notation', ip('::ffff:1.2.3.4/120')],
    ['an empty gateway', ip('10.1.2.3/8', { gateway: '' })],
    ['the interface -1, which means unknown', ip('10.1.2.3/8', { interface: -1 })],
    ['the interface 0', ip('10.1.2.3/8', { interface: 0 })],
    ['an interface that is not there', ip('10.1.2.3/8', { interface: 99 })],
    ['a family that is not asked for', ip('10.1.2.3/8', { version: 'x' })],
    [
      'free text where nothing is checked',
      { interfaces: [{ name: '', mac: 'x', sandbox: 'y', socketPath: 'z', pciID: 'p' }] },
    ],
    ['numbers below zero', { routes: [{ dst: '::/0', mtu: -1, table: 0, scope: 0, priority: -5 }] }],
    ['null for what is absent', { ips: null, routes: null, dns: null, interfaces: null }],
    [
      'resolver settings that are no addresses',
      { dns: { nameservers: ['x'], search: [''], options: ['y'], domain: '!' } },
    ],
  ])('may be %s', (_, object) => {
    expect(() => parseResult(object, '1.1.0')).not.toThrow();
  });

  test.each<[string, JsonObject, string]>([
    ['a bare address', ip('10.1.2.3'), '"ips[0].address"'],
    ['a prefix that is too long', ip('10.1.2.3/99'), '"ips[0].address"'],
    ['octets with leading zeros', ip('010.1.2.3/8'), '"ips[0].address"'],
    ['no address', { ips: [{ gateway: '10.0.0.1' }] }, '"ips[0].address"'],
    ['what the reference prints for none', ip('<nil>'), '"ips[0].address"'],
    ['a gateway that is no address', ip('10.1.2.3/8', { gateway: 'gw' }), '"ips[0].gateway"'],
    ['an interface that is no integer', ip('10.1.2.3/8', { interface: 1.5 }), '"ips[0].interface"'],
    ['null among addresses', { ips: [null] }, '"ips[0]"'],
    ['null among interfaces', { interfaces: [{ name: 'a' }, null] }, '"interfaces[1]"'],
    ['a route without destination', { routes: [{ gw: '10.0.0.1' }] }, '"routes[0].dst"'],
    ['a bare destination', { routes: [{ dst: '10.0.0.1' }] }, '"routes[0].dst"'],
    ['a number as text', { routes: [{ dst: '::/0', mtu: '1400' }] }, '"routes[0].mtu"'],
    ['an interface without name', { interfaces: [{ mac: 'x' }] }, '"interfaces[0].name"'],
    ['settings that are no text', { dns: { nameservers: [1] } }, '"dns.nameservers[0]"'],
    ['an object in place of an array', { ips: {} }, '"ips"'],
  ])('must not be %s', (_, object, place) => {
    expect(() => parseResult(object, '1.1.0')).toThrow(
      expect.objectContaining({ code: 6, message: expect.stringContaining(place) }),
    );
  });
});
