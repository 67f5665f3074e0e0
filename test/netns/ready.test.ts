// When ADD returns, do packets flow?
import { expect, test } from 'bun:test';
import { plugin as bridge } from '../../plugins/bridge/plugin.ts';
import { plugin as ptp } from '../../plugins/ptp/plugin.ts';
import { withHost } from '../../src/lab/testing/index.ts';
import { openPeer } from '../helpers/datagram.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';

const RANGES = [[{ subnet: '10.77.0.0/16' }], [{ subnet: 'fd77::/64' }]];
/** One in four first packets was lost while ADD did not wait; a neighbour is then asked for again after a second. */
const ROUNDS = 12;

describeRoot('awaitTraffic()', () => {
  test.each([
    ['bridge', bridge, { isGateway: true }],
    ['ptp', ptp, {}],
  ] as const)('[1.1.0] the first packet after ADD of %s arrives, either way', async (type, link, options) => {
    await withHost(async host => {
      const ipam = { type: 'host-local', dataDir: `${host.dir}/leases`, ranges: RANGES };
      for (let round = 0; round < ROUNDS; round++) {
        const container = host.container();
        const [inside, outside] = [openPeer(container.path), openPeer(host.namespace.path)];
        // Another bridge each time: its first port gives it its carrier.
        const own = type === 'bridge' ? { bridge: `br${round}` } : {};
        const conf = { cniVersion: '1.1.0', name: 'podnet', type, ...options, ...own, ipam };
        const { result } = await host.call(link, 'ADD', { conf, container, pluginDirs: [BIN_DIR] });
        const [first] = (result?.interfaces ?? []) as { name: string }[];
        const gateway = first?.name ?? '';
        const groups = [...outside.groups(gateway), '', ...inside.groups('eth0')];
        if (round % 2) inside.sendToAll('eth0');
        else outside.sendToAll(gateway);
        expect(await (round % 2 ? outside : inside).receives()).toBe(true);
        // Who asks for the neighbours fd77::1 and fd77::2, and so on, is heard: RFC 4291, 2.7.1.
        const pod = ((result?.ips ?? []) as { address: string }[])[1]?.address.match(/::(.*)\//)?.[1] ?? '';
        expect(groups.slice(0, groups.indexOf(''))).toContain('ff0200000000000000000001ff000001');
        expect(groups.slice(groups.indexOf(''))).toContain(
          `ff0200000000000000000001ff${pod.padStart(6, '0')}`,
        );
        for (const peer of [inside, outside]) peer.close();
        host.remove(container);
      }
    });
  });
});
