// Does a living pod keep what it has when another network, or a second container, asks for its address?

import { describe, expect, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { type Container, type Lab, useLabs } from '../helpers/netns.ts';
import { type PluginReply, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresReference, testNeeding } from '../helpers/skip.ts';
import { echo, ping, startServer } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

const BACKENDS = ['nftables', 'iptables'] as const;
type Backend = (typeof BACKENDS)[number];
type Verb = 'ADD' | 'CHECK' | 'DEL';

const ADDRESSES = [{ address: '10.9.0.2/24' }, { address: 'fd00:9::2/64' }];
const DEADLINE_MS = deadline(60_000);

/** What the tests' two attachments are: the first one's unless the second is given. */
interface Attached {
  readonly container: Container;
  readonly network: string;
  readonly result: object;
}

describeRoot(
  'an address that a living pod has',
  () => {
    const createLab = useLabs();

    describe.each(BACKENDS)('backend %s', backend => {
      test(
        'is refused to another network by every plugin that goes by addresses, with both names, and nothing of the pod goes',
        async () => {
          const { lab, first } = await firstPod(backend);
          const before = await stateOf(lab);
          const second = await lab.container();
          const masquerading = await bridge(lab, 'ADD', second, 'other', { backend, ipMasq: true });
          expectRefusal(masquerading, first, { container: second, network: 'other' });
          expect(await stateOf(lab)).toEqual(before);
          const added = await bridge(lab, 'ADD', second, 'other', { backend });
          expect(added.exitCode).toBe(0);
          const rival = { container: second, network: 'other', result: added.result };
          for (const plugin of ['portmap', 'firewall'] as const) {
            expectRefusal(await chained(lab, plugin, 'ADD', rival, backend, 9090), first, rival);
            expect(await stateOf(lab)).toEqual(before);
          }
          for (const plugin of ['portmap', 'firewall'] as const)
            expect((await chained(lab, plugin, 'DEL', rival, backend, 9090)).exitCode).toBe(0);
          expect((await bridge(lab, 'DEL', second, 'other', { backend, ipMasq: true })).exitCode).toBe(0);
          expect(await stateOf(lab)).toEqual(before);
          for (const plugin of ['portmap', 'firewall'] as const)
            expect((await chained(lab, plugin, 'CHECK', first, backend)).stdout).toBe('');
          expect(await answer(lab)).toBe('hello');
        },
        DEADLINE_MS,
      );

      test(
        'a second container of the same network is refused the address',
        async () => {
          const { lab, first } = await firstPod(backend);
          const before = await stateOf(lab);
          const second = await lab.container();
          const options = { backend, ipMasq: true };
          const asking = { container: second, network: 'podnet' };
          expectRefusal(await bridge(lab, 'ADD', second, 'podnet', options), first, asking);
          expect(await stateOf(lab)).toEqual(before);
        },
        DEADLINE_MS,
      );

      test(
        'the address is free once its pod is gone, even without DEL',
        async () => {
          const { lab, first, server } = await firstPod(backend);
          await server.stop();
          await lab.ip(lab.host, 'netns', 'delete', first.container.name);
          await until(async () => !(await aliases(lab)).includes(`catena:podnet/${first.container.id}/eth0`));
          const second = await lab.container();
          const added = await bridge(lab, 'ADD', second, 'other', { backend, ipMasq: true });
          expect(added.exitCode).toBe(0);
          const heir = { container: second, network: 'other', result: added.result };
          for (const plugin of ['portmap', 'firewall'] as const) {
            expect(await chained(lab, plugin, 'ADD', heir, backend)).toMatchObject({ exitCode: 0 });
            expect((await chained(lab, plugin, 'CHECK', heir, backend)).stdout).toBe('');
          }
          await startServer(lab, second, { protocol: 'tcp', port: 80 });
          expect(await answer(lab)).toBe('hello');
        },
        DEADLINE_MS,
      );

      testNeeding(
        'the address of a pod that the reference bridge connected, without an alias, is refused',
        async () => {
          const { lab, first } = await firstPod(backend, REFERENCE_BIN_DIR);
          expect(await aliases(lab)).toEqual([]);
          const before = await stateOf(lab);
          const second = await lab.container();
          const added = await bridge(lab, 'ADD', second, 'other', { backend });
          const rival = { container: second, network: 'other', result: added.result };
          for (const plugin of ['portmap', 'firewall'] as const) {
            expectRefusal(await chained(lab, plugin, 'ADD', rival, backend, 9090), first, rival);
            expect((await chained(lab, plugin, 'DEL', rival, backend, 9090)).exitCode).toBe(0);
          }
          expect(await stateOf(lab)).toEqual(before);
        },
        requiresReference('bridge', 'static'),
      );
    });

    testNeeding(
      'a port that the reference portmap forwards to a living pod is refused',
      async () => {
        const { lab, first } = await firstPod('iptables', REFERENCE_BIN_DIR, REFERENCE_BIN_DIR);
        const second = await lab.container();
        const added = await bridge(lab, 'ADD', second, 'other', { backend: 'nftables' });
        const rival = { container: second, network: 'other', result: added.result };
        const refused = await chained(lab, 'portmap', 'ADD', rival, 'nftables');
        expect(refused.error).toMatchObject({ code: 101 });
        expect(refused.error?.msg).toContain(`container "${first.container.id}" on network "podnet" has it`);
      },
      requiresReference('bridge', 'static', 'portmap'),
    );

    test(
      'is refused by ptp without masquerading, too: the host routes it to the pod, until that is gone',
      async () => {
        const lab = await createLab();
        const [first, second] = [await lab.container(), await lab.container()];
        const ips = [
          { address: '10.9.0.2/24', gateway: '10.9.0.1' },
          { address: 'fd00:9::2/64', gateway: 'fd00:9::1' },
        ];
        const call = (command: Verb, container: Container, name: string, addresses = ips) => {
          const conf = { cniVersion: '1.0.0', name, type: 'ptp', ipam: { type: 'static', addresses } };
          return lab.plugin('ptp', { command, conf, container });
        };
        const routes = async () =>
          (await lab.run(lab.host, ['sh', '-c', 'ip route; ip -6 route show root fd00::/8'])).stdout;
        const added = await call('ADD', first, 'podnet');
        expect(added).toMatchObject({ exitCode: 0 });
        const before = await routes();
        for (const addresses of [ips, ips.slice(1)]) {
          const { error } = await call('ADD', second, 'other', addresses);
          expect(error).toMatchObject({ code: 101 });
          expect(error?.msg).toContain(
            `container "${first.id}" on network "podnet", interface "eth0" has it`,
          );
          expect(await routes()).toBe(before);
        }
        expect((await call('DEL', second, 'other')).exitCode).toBe(0);
        for (const { gateway } of ips) expect(await ping(lab, first, gateway)).toBe(true);
        await lab.remove(first);
        await until(async () => !(await aliases(lab)).includes(`catena:podnet/${first.id}/eth0`));
        expect(await call('ADD', second, 'other')).toMatchObject({ exitCode: 0 });
        for (const { gateway } of ips) expect(await ping(lab, second, gateway)).toBe(true);
      },
      DEADLINE_MS,
    );

    test(
      'is refused, though the note of its pod has no room for its id, and the device of another network has',
      async () => {
        const lab = await createLab();
        const [one, two] = [await lab.container(), await lab.container()];
        const [first, second] = [
          { ...one, id: 'a'.repeat(64) },
          { ...two, id: 'b'.repeat(64) },
        ];
        const network = 'n'.repeat(60);
        expect(await bridge(lab, 'ADD', first, 'podnet', { backend: 'nftables' })).toMatchObject({
          exitCode: 0,
        });
        const add = async (container: Container) => {
          // As of macvlan: no device of the host belongs to it.
          await lab.ip(container, 'link', 'add', 'net1', 'type', 'veth', 'peer', 'name', 'far1');
          await lab.ip(container, 'addr', 'add', '10.8.0.2/24', 'dev', 'net1');
          const interfaces = [{ name: 'net1', sandbox: container.path }];
          const ips = [{ address: '10.8.0.2/24', interface: 0 }];
          const conf = { cniVersion: '1.0.0', name: network, type: 'firewall' };
          const prevResult = { cniVersion: '1.0.0', interfaces, ips };
          return lab.plugin('firewall', { command: 'ADD', conf, container, ifname: 'net1', prevResult });
        };
        expect(await add(first)).toMatchObject({ exitCode: 0 });
        expect((await add(second)).error).toMatchObject({ code: 101 });
      },
      DEADLINE_MS,
    );

    /** A pod with masquerading, a host port and isolation, and a server in it. */
    async function firstPod(backend: Backend, mainDir?: string, portmapDir?: string) {
      const lab = await createLab();
      await lab.sysctl(lab.host, 'net/ipv6/conf/default/accept_dad', 0);
      const container = await lab.container();
      const added = await bridge(lab, 'ADD', container, 'podnet', { backend, ipMasq: true, binDir: mainDir });
      expect(added).toMatchObject({ exitCode: 0 });
      const first: Attached = { container, network: 'podnet', result: added.result };
      for (const plugin of ['portmap', 'firewall'] as const) {
        const binDir = plugin === 'portmap' ? portmapDir : undefined;
        const done = await chained(lab, plugin, 'ADD', first, backend, 8080, binDir);
        expect(done).toMatchObject({ exitCode: 0 });
      }
      const server = await startServer(lab, container, { protocol: 'tcp', port: 80 });
      expect(await answer(lab)).toBe('hello');
      return { lab, first, server };
    }
  },
  requires('nft', 'iptables'),
);

interface BridgeOptions {
  readonly backend: Backend;
  readonly ipMasq?: boolean;
  readonly binDir?: string | undefined;
}

function bridge(
  lab: Lab,
  command: Verb,
  container: Container,
  network: string,
  { backend, ipMasq = false, binDir }: BridgeOptions,
): Promise<PluginReply> {
  const ipam = { type: 'static', addresses: ADDRESSES };
  const conf = {
    cniVersion: '1.0.0',
    name: network,
    type: 'bridge',
    bridge: 'br0',
    isGateway: true,
    ipMasq,
    ipam,
    ...(binDir ? {} : { ipMasqBackend: backend }),
  };
  return lab.plugin('bridge', { command, conf, container, ...(binDir ? { binDir } : {}) });
}

function chained(
  lab: Lab,
  plugin: 'portmap' | 'firewall',
  command: Verb,
  { container, network, result }: Attached,
  backend: Backend,
  hostPort = 8080,
  binDir?: string,
): Promise<PluginReply> {
  const runtimeConfig = { portMappings: [{ hostPort, containerPort: 80, protocol: 'tcp' }] };
  const own = plugin === 'portmap' ? { runtimeConfig, snat: true } : { ingressPolicy: 'isolated' };
  const conf = { cniVersion: '1.0.0', name: network, type: plugin, ...own, ...(binDir ? {} : { backend }) };
  const env = { DBUS_SYSTEM_BUS_ADDRESS: 'unix:path=/nonexistent/bus' };
  const prevResult = command === 'DEL' ? undefined : result;
  return lab.plugin(plugin, { command, conf, container, env, prevResult, ...(binDir ? { binDir } : {}) });
}

function expectRefusal(
  reply: PluginReply,
  first: Attached,
  asking: Pick<Attached, 'container' | 'network'>,
): void {
  const name = ({ container, network }: Pick<Attached, 'container' | 'network'>) =>
    `container "${container.id}" on network "${network}"`;
  expect(reply.error).toMatchObject({ code: 101 });
  expect(reply.error?.msg).toStartWith(
    `Cannot use 10.9.0.2 for ${name(asking)}, interface "eth0": ${name(first)}`,
  );
  expect(reply.error?.msg).toContain('has it and still exists');
}

/** All rules and elements without handles and counters. */
async function stateOf(lab: Lab): Promise<string> {
  const { stdout } = await lab.run(lab.host, ['nft', '-s', 'list', 'ruleset']);
  return stdout;
}

async function aliases(lab: Lab): Promise<string[]> {
  const { stdout } = await lab.run(lab.host, ['ip', '-j', 'link', 'show']);
  const links: { ifalias?: string }[] = JSON.parse(stdout);
  return links.flatMap(({ ifalias }) => ifalias ?? []);
}

async function answer(lab: Lab): Promise<string | undefined> {
  return (await echo(lab, lab.host, { protocol: 'tcp', address: '127.0.0.1', port: 8080 }))?.text;
}
