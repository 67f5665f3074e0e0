// Does dhcp serve interfaces that share a device of the host: several with one hardware address, and one in a VLAN?
import { expect, setDefaultTimeout } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { addressesOf, confOf, recordsIn, serve } from '../helpers/dhcp-lab.ts';
import { type DhcpServer, SERVED } from '../helpers/dhcp-server.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import {
  describeRoot,
  requires,
  requiresUpperKind,
  requiresVlanDevices,
  testNeeding,
} from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

setDefaultTimeout(deadline(60_000));

/** A server on a bridge, and the device `up0` of the host that leads to it, through a VLAN if given. */
async function serveThroughDevice(lab: Lab, vlan?: number): Promise<DhcpServer> {
  const server = await serve(lab);
  await lab.ip(lab.host, 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'far0');
  const port = vlan ? `far0.${vlan}` : 'far0';
  if (vlan)
    await lab.ip(lab.host, 'link', 'add', 'link', 'far0', 'name', port, 'type', 'vlan', 'id', `${vlan}`);
  await lab.ip(lab.host, 'link', 'set', port, 'master', SERVED.bridge);
  for (const device of new Set(['up0', 'far0', port])) await lab.ip(lab.host, 'link', 'set', device, 'up');
  return server;
}

/** Attaches the containers at the same time, and checks, uses and ends their leases. */
async function live(
  lab: Lab,
  server: DhcpServer,
  conf: Record<string, unknown>,
  containers: readonly Container[],
): Promise<void> {
  const type = String(conf.type);
  const added = await Promise.all(
    containers.map(container => lab.plugin(type, { command: 'ADD', conf, container })),
  );
  expect(added).toMatchObject(added.map(() => ({ exitCode: 0 })));
  const addresses = added.map(({ result }) => result.ips[0].address);
  expect(new Set(addresses).size).toBe(containers.length);
  for (const [i, container] of containers.entries()) {
    expect(await addressesOf(lab, container)).toEqual([addresses[i]]);
    expect(await ping(lab, container, SERVED.server)).toBe(true);
    const call = { conf, container, prevResult: added[i]?.result };
    for (const command of ['CHECK', 'DEL'] as const)
      expect(await lab.plugin(type, { command, ...call })).toMatchObject({ exitCode: 0 });
    expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
  }
  await until(() => server.leases().length === 0);
  expect(recordsIn(lab)).toEqual([]);
}

describeRoot(
  'dhcp on devices that share one of the host',
  () => {
    testNeeding(
      '[1.1.0] containers of ipvlan have one hardware address, and a lease each',
      async () => {
        await withHost(async lab => {
          const server = await serveThroughDevice(lab);
          const containers = [await lab.container(), await lab.container(), await lab.container()];
          await live(lab, server, { ...confOf(), type: 'ipvlan', master: 'up0' }, containers);
          const macs = server.log().match(/DHCPACK\(br0\) \S+ (\S+)/g) ?? [];
          expect(new Set(macs.map(line => line.split(' ').at(-1))).size).toBe(1);
        });
      },
      requiresUpperKind('ipvlan'),
    );

    testNeeding(
      '[1.1.0] a container of vlan is served in its VLAN',
      async () => {
        await withHost(async lab => {
          const server = await serveThroughDevice(lab, 5);
          const conf = { ...confOf(), type: 'vlan', master: 'up0', vlanId: 5 };
          await live(lab, server, conf, [await lab.container()]);
        });
      },
      requiresVlanDevices(),
    );
  },
  requires('dnsmasq'),
);
