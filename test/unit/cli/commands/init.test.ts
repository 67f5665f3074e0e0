// Which list does `catena init` write for which wish?

import { describe, expect, test } from 'bun:test';
import { PLUGIN_NAMES, PLUGINS } from '../../../../plugins/registry.ts';
import { composeList, nameDevice, readOffers, type Wish } from '../../../../src/cli/commands/init.ts';
import type { PluginCatalog } from '../../../../src/cni/plugin-about.ts';
import { parseCidr } from '../../../../src/net/ip.ts';

const catalog: Pick<PluginCatalog, 'types' | 'find'> = {
  types: PLUGIN_NAMES,
  find: async type => PLUGINS[type as keyof typeof PLUGINS]?.about(),
};

async function compose(kind: string, wish: Partial<Wish> = {}) {
  const offers = await readOffers(catalog);
  const found = offers.kinds.find(({ name }) => name === kind);
  if (found === undefined) throw new Error(`no kind ${kind}`);
  const addressing = [parseCidr('10.1.0.0/24'), parseCidr('fd00::/64')];
  const all = { name: 'podnet', kind: found, addressing, device: undefined, ports: true, rates: true };
  return composeList({ ...all, ...wish }, offers, 'cni-podnet');
}

const IPAM = { type: 'host-local', ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00::/64' }]] };

describe('composeList()', () => {
  test('a bridge with everything', async () => {
    expect(await compose('bridge')).toEqual({
      cniVersion: '1.0.0',
      name: 'podnet',
      plugins: [
        {
          type: 'bridge',
          bridge: 'cni-podnet',
          isDefaultGateway: true,
          ipMasq: true,
          hairpinMode: true,
          ipam: IPAM,
        },
        { type: 'portmap', capabilities: { portMappings: true } },
        { type: 'bandwidth', capabilities: { bandwidth: true } },
      ],
    });
  });

  test('ptp has a default route for each family', async () => {
    const { plugins } = await compose('ptp', { ports: false, rates: false });
    const ipam = { ...IPAM, routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }] };
    expect(plugins).toEqual([{ type: 'ptp', ipMasq: true, ipam }]);
  });

  test('a macvlan on a device, with addresses of the LAN', async () => {
    const { plugins } = await compose('macvlan', {
      addressing: 'server',
      device: 'eth1',
      ports: false,
      rates: false,
    });
    expect(plugins).toEqual([{ type: 'macvlan', master: 'eth1', ipam: { type: 'dhcp' } }]);
  });

  test('a bridge without addresses has no gateway', async () => {
    const { plugins } = await compose('internal', { addressing: 'none', ports: false, rates: false });
    expect(plugins).toEqual([{ type: 'bridge', bridge: 'cni-podnet' }]);
  });
});

test('the kinds that can be written', async () => {
  const { kinds } = await readOffers(catalog);
  expect(kinds.map(({ name }) => name)).toEqual(['bridge', 'internal', 'ipvlan', 'macvlan', 'ptp']);
});

test('nameDevice() is a name that no device has and the kernel accepts', () => {
  expect(nameDevice('podnet', new Set())).toBe('cni-podnet');
  expect(nameDevice('podnet', new Set(['cni-podnet', 'cni-podnet2']))).toBe('cni-podnet3');
  expect(nameDevice('a.very_long-network', new Set(['cni-averylong-n']))).toBe('cni-averylong-2');
});
