// Does Podman's default list run on our executables, and does nothing of a container stay behind?
import { expect, test } from 'bun:test';
import { writeChain } from '../helpers/chain.ts';
import { type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { echo, startServer } from '../helpers/traffic.ts';

/** Fixed skeletons may outlive a container. */
const KEPT = {
  ignoreTables: [
    'inet catena_masquerade',
    'inet catena_portmap',
    'inet catena_firewall',
    'ip filter',
    'ip6 filter',
  ],
};
const PORTS = {
  portMappings: [
    { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
    { hostPort: 5353, containerPort: 53, protocol: 'udp' },
  ],
};

/** What Podman 3 and 4 write as 87-podman.conflist, but for the leases' directory. */
function podmanList(lab: Lab, cniVersion: string): Row {
  return {
    cniVersion,
    name: 'podman',
    plugins: [
      {
        type: 'bridge',
        bridge: 'cni-podman0',
        isGateway: true,
        ipMasq: true,
        hairpinMode: true,
        ipam: {
          type: 'host-local',
          routes: [{ dst: '0.0.0.0/0' }],
          ranges: [[{ subnet: '10.88.0.0/16', gateway: '10.88.0.1' }]],
          dataDir: `${lab.tmp}/leases`,
        },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'firewall', backend: '' },
      { type: 'tuning' },
    ],
  };
}

describeRoot(
  'Podman’s default list',
  () => {
    test.each(['0.4.0', '1.0.0'])(
      '[%s] attaches, publishes a TCP and a UDP port, and is removed completely',
      async cniVersion => {
        await withHost(async lab => {
          const outside = await lab.outside();
          const container = await lab.container();
          const chain = writeChain(lab, podmanList(lab, cniVersion));
          const { ips } = await chain.add(container, { cap: PORTS, binDir: BIN_DIR });
          expect(ips[0].address).toBe('10.88.0.2/16');
          await startServer(lab, container, { protocol: 'tcp', port: 80 });
          await startServer(lab, container, { protocol: 'udp', port: 53 });
          const ask = (protocol: 'tcp' | 'udp', port: number, timeoutMs = 5_000) =>
            echo(lab, outside, { protocol, address: outside.hostAddress.v4, port, timeoutMs });
          expect((await ask('tcp', 8080))?.peer).toBe(outside.address.v4);
          expect((await ask('udp', 5353))?.peer).toBe(outside.address.v4);
          const beyond = await startServer(lab, outside, { protocol: 'tcp', port: 9999 });
          const to = { protocol: 'tcp', address: outside.address.v4, port: 9999 } as const;
          expect((await echo(lab, container, to))?.peer).toBe(outside.hostAddress.v4);
          await beyond.stop();
          const checked = await chain.run('check', container, { cap: PORTS });
          expect({ checked, exitCode: checked.exitCode }).toMatchObject({ exitCode: 0 });
          const removed = await chain.run('del', container, { cap: PORTS });
          expect({ removed, exitCode: removed.exitCode }).toMatchObject({ exitCode: 0 });
          expect(await ask('tcp', 8080, 700)).toBeUndefined();
          expect(await chain.leases()).toEqual([]);
          const { stdout } = await lab.run(lab.host, ['nft', 'list', 'ruleset']);
          expect(stdout).not.toContain(container.id);
          expect(stdout).not.toContain('10.88.0.2');
          expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toHaveLength(1);
        });
      },
    );

    test('lets containers out where iptables drops, as the reference does', async () => {
      await withHost(async lab => {
        const outside = await lab.outside();
        await lab.run(lab.host, ['iptables', '-P', 'FORWARD', 'DROP']);
        const [container, other] = [await lab.container(), await lab.container()];
        const chain = writeChain(lab, podmanList(lab, '0.4.0'));
        await chain.add(container);
        await chain.add(other);
        await startServer(lab, outside, { protocol: 'tcp', port: 9999 });
        const to = { protocol: 'tcp', address: outside.address.v4, port: 9999 } as const;
        for (const from of [container, other]) {
          expect((await echo(lab, from, to))?.peer).toBe(outside.hostAddress.v4);
        }
        for (const one of [container, other]) await chain.run('del', one);
        const { stdout } = await lab.run(lab.host, ['iptables', '-S']);
        expect(stdout).not.toContain('10.88');
        expect(await lab.dump(lab.host, KEPT)).toMatchObject({ nft: [] });
      });
    });
  },
  requires('ip', 'nft', 'iptables'),
);
