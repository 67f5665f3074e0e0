// Does an interface follow what a DHCP server says later than at ADD, and does the plugin find the server again?
import { expect, test } from 'bun:test';
import { readFileSync, writeFileSync } from 'node:fs';
import { startDaemon } from '../helpers/daemon.ts';
import { deadline } from '../helpers/deadline.ts';
import { add, addressesOf, confOf, recordsIn, SHORT, serve, startRogue } from '../helpers/dhcp-lab.ts';
import { addServedIpv6, SERVED, startDhcpServer } from '../helpers/dhcp-server.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

const DEADLINE_MS = deadline(90_000);

/** The gateways of the container's routes, by destination. */
async function gatewaysOf(lab: Lab, container: Container, device = 'eth0'): Promise<Record<string, string>> {
  const routes = await lab.ip(container, 'route', 'show', 'dev', device);
  return Object.fromEntries(routes.flatMap(({ dst, gateway }) => (gateway ? [[dst, gateway]] : [])));
}

async function mtuOf(lab: Lab, container: Container): Promise<number> {
  const [link] = await lab.ip(container, 'link', 'show', 'eth0');
  return link?.mtu;
}

/** Starts a server in place of another one: it has the other's address, and grants what its clients have. */
async function serveInstead(lab: Lab, name: string, args: readonly string[], range?: [string, string]) {
  const options = { name, args: [...SHORT, '--dhcp-authoritative', ...args] };
  return startDhcpServer(lab, lab.host, SERVED.bridge, range ? { ...options, range } : options);
}

describeRoot(
  'dhcp when the server changes its mind',
  () => {
    test(
      '[1.1.0] other routes, MTU and resolvers come with a renewal: the interface follows, CHECK says so, repair leaves it',
      async () => {
        await withHost(async lab => {
          const routes = 'option:classless-static-route,192.0.2.0/24,10.77.0.9,0.0.0.0/0,10.77.0.1';
          const first = ['option:mtu,1400', 'option:dns-server,10.77.0.1', routes];
          const server = await serve(lab, { args: [...SHORT, ...first.map(one => `--dhcp-option=${one}`)] });
          const container = await lab.container();
          const prevResult = await add(lab, container);
          expect(await gatewaysOf(lab, container)).toEqual({
            default: '10.77.0.1',
            '192.0.2.0/24': '10.77.0.9',
          });
          const daemon = await startDaemon(lab);
          await until(() => server.log().split('DHCPACK').length > 3);
          await server.stop();
          const then = ['option:mtu,1450', 'option:dns-server,10.77.0.2', 'option:router,10.77.0.254'];
          await serveInstead(
            lab,
            'next',
            then.map(one => `--dhcp-option=${one}`),
          );
          await until(async () => (await gatewaysOf(lab, container)).default === '10.77.0.254');
          expect(await gatewaysOf(lab, container)).toEqual({ default: '10.77.0.254' });
          expect(await addressesOf(lab, container)).toEqual([prevResult.ips[0]?.address ?? '']);
          await until(async () => (await mtuOf(lab, container)) === 1450);
          for (const said of ['now has the routes 0.0.0.0/0 via 10.77.0.254', 'other resolvers'])
            await until(() => daemon.said().includes(said));
          const call = { conf: confOf(), container, prevResult };
          const check = await lab.plugin('bridge', { command: 'CHECK', ...call });
          expect(check.error?.msg).toMatch(
            /has replaced 0\.0\.0\.0\/0 via 10\.77\.0\.1, 192\.0\.2\.0\/24 via 10\.77\.0\.9 by/,
          );
          await lab.plugin('bridge', { command: 'CHECK', ...call, env: { CATENA_REPAIR: '1' } });
          expect((await gatewaysOf(lab, container)).default).toBe('10.77.0.254');
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] an interface whose default route another plugin took away gets none with a new address or gateway',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, { args: SHORT });
          const container = await lab.container();
          await add(lab, container);
          await lab.batch(
            container,
            'route del default',
            'link add main0 type bridge',
            'link set main0 up',
            'addr add 192.0.2.2/24 dev main0',
            'route add default via 192.0.2.1 dev main0',
          );
          await startDaemon(lab);
          await until(() => server.log().split('DHCPACK').length > 3);
          await server.stop();
          const other = await serveInstead(lab, 'other', ['--dhcp-option=option:router,10.77.0.254']);
          await until(() => other.log().split('DHCPACK').length > 2);
          expect(await gatewaysOf(lab, container)).toEqual({});
          await other.stop();
          await serveInstead(lab, 'moved', [], ['10.77.0.150', '10.77.0.199']);
          await until(async () => /^10\.77\.0\.1\d\d/.test((await addressesOf(lab, container))[0] ?? ''), {
            everyMs: 200,
          });
          expect(await gatewaysOf(lab, container)).toEqual({});
          expect(await gatewaysOf(lab, container, 'main0')).toEqual({ default: '192.0.2.1' });
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] a daemon that starts while the server is away takes no address away because another server refuses it',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, { args: [SHORT[0] ?? ''] });
          const container = await lab.container();
          const { ips } = await add(lab, container);
          await server.stop();
          const rogue = await startRogue(lab, ['--dhcp-authoritative']);
          const daemon = await startDaemon(lab);
          await until(() => rogue.log().includes('DHCPNAK'));
          // The question ends after four seconds.
          await until(() => daemon.said().includes('plugin finished'));
          expect(await addressesOf(lab, container)).toEqual([ips[0]?.address ?? '']);
          expect(rogue.log()).not.toContain('DHCPDISCOVER');
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] a server whose hardware address has changed is found for renewal and release',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, { args: [SHORT[0] ?? ''] });
          const container = await lab.container();
          await add(lab, container);
          const count = (word: string) => server.log().split(word).length - 1;
          const daemon = await startDaemon(lab);
          await until(() => count('DHCPACK') > 1);
          await lab.ip(lab.host, 'link', 'set', SERVED.bridge, 'address', '02:00:00:00:00:78');
          const before = count('DHCPACK');
          // Not by asking any server, which begins 105 seconds after ADD.
          await until(() => count('DHCPACK') > before, { withinMs: 20_000 });
          await daemon.stop();
          await lab.ip(lab.host, 'link', 'set', SERVED.bridge, 'address', '02:00:00:00:00:79');
          await lab.plugin('bridge', { command: 'DEL', conf: confOf(), container });
          await until(() => server.leases().length === 0);
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] a process that died after it had noted another lease leaves no second address on the interface',
      async () => {
        await withHost(async lab => {
          await serve(lab);
          const container = await lab.container();
          const { ips } = await add(lab, container);
          expect(await addressesOf(lab, container)).toEqual([ips[0]?.address ?? '']);
          const dir = `${lab.tmp}/state/upkeep/dhcp/lan`;
          const [name = ''] = recordsIn(lab);
          const note = JSON.parse(readFileSync(`${dir}/${name}`, 'utf8'));
          const unapplied = note.state.lease;
          const routes = [{ dst: '0.0.0.0/0', gw: '10.77.0.254' }];
          const lease = { ...unapplied, address: '10.77.0.88/24', gateway: '10.77.0.254', routes };
          const state = { ...note.state, lease, unapplied, unseen: undefined };
          writeFileSync(`${dir}/${name}`, JSON.stringify({ ...note, dueAt: 0, state }));
          const daemon = await startDaemon(lab);
          await until(() => daemon.said().includes('the process that was giving it that had died'));
          expect(await addressesOf(lab, container)).toEqual(['10.77.0.88/24']);
          expect(await gatewaysOf(lab, container)).toEqual({ default: '10.77.0.254' });
          expect(JSON.parse(readFileSync(`${dir}/${name}`, 'utf8')).state.unapplied).toBeUndefined();
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] an MTU that is too small for IPv6 does not take IPv6 from the interface',
      async () => {
        await withHost(async lab => {
          const range6 = '--dhcp-range=fd77::100,fd77::1ff,64,2m';
          await serve(lab, { args: [range6, '--enable-ra', '--dhcp-option=option:mtu,1000'] });
          await addServedIpv6(lab);
          const [dual, single] = [await lab.container(), await lab.container()];
          const { ips } = await add(lab, dual, confOf({ ipv6: 'dhcp', timeout: 15 }));
          expect(await addressesOf(lab, dual, 'inet6')).toEqual([ips[1]?.address ?? '']);
          expect(await mtuOf(lab, dual)).toBe(1280);
          await add(lab, single);
          expect(await mtuOf(lab, single)).toBe(1000);
        });
      },
      DEADLINE_MS,
    );
  },
  requires('dnsmasq'),
);
