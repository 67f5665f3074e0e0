// Does ADD wait for addresses that the kernel forms from advertisements of a real router, and report them with resolvers?
import { expect, test } from 'bun:test';
import { bindSocket, closeSocket, openSocket } from '../../src/sys/inet-socket.ts';
import { libc, ptr } from '../../src/sys/libc.ts';
import { deadline } from '../helpers/deadline.ts';
import { add, addressesOf, attachHost, confOf, recordsIn } from '../helpers/dhcp-lab.ts';
import { requiresServer } from '../helpers/dhcp-packages.ts';
import { addServedIpv6, makeServedBridge, SERVED, SERVED6 } from '../helpers/dhcp-server.ts';
import { serveKea } from '../helpers/kea.ts';
import { visit } from '../helpers/namespace.ts';
import { withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { startRadvd } from '../helpers/radvd.ts';
import { describeRoot, requiresReference, testNeeding } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

const DEADLINE_MS = deadline(60_000);
const RESOLVERS = ['RDNSS fd77::99 { };', 'DNSSL lan.example { };'];
const SLAAC = { ipv6: 'slaac', ipv4: false, timeout: 15 };

describeRoot(
  'dhcp with addresses formed from advertisements',
  () => {
    test(
      '[1.1.0] reports address, router and resolvers; the kernel keeps the address, and CHECK sees a renumbered network',
      async () => {
        await withHost(async lab => {
          await makeServedBridge(lab);
          await addServedIpv6(lab);
          const stop = startRadvd(lab, lab.host, SERVED.bridge, { lines: RESOLVERS });
          const container = await lab.container();
          // As where pods forward packets, and a runtime turned IPv6 off.
          for (const scope of ['all', 'default'])
            await lab.sysctl(container, `net/ipv6/conf/${scope}/forwarding`, 1);
          await lab.sysctl(container, 'net/ipv6/conf/default/disable_ipv6', 1);
          const conf = confOf(SLAAC);
          const result = await add(lab, container, conf);
          const address = result.ips[0]?.address ?? '';
          expect(address).toMatch(/^fd77::.*ff:fe.*\/64$/);
          expect(result).toMatchObject({
            ips: [{ gateway: SERVED6.router }],
            routes: [{ dst: '::/0', gw: SERVED6.router, priority: 1025 }],
            dns: { nameservers: ['fd77::99'], search: ['lan.example'] },
          });
          expect(await addressesOf(lab, container, 'inet6')).toEqual([address]);
          expect(await ping(lab, container, SERVED6.server)).toBe(true);
          // The next advertisement limits the address, and brings the kernel's own route.
          await until(async () => {
            const [link] = await lab.ip(container, '-6', 'addr', 'show', 'eth0', 'scope', 'global');
            return link?.addr_info[0]?.valid_life_time <= 86_400;
          });
          const routes = await lab.ip(container, '-6', 'route', 'show', 'default');
          expect(routes.map(({ protocol, metric }) => [protocol, metric])).toEqual([
            ['ra', 1024],
            ['boot', 1025],
          ]);
          expect(recordsIn(lab)).toEqual([]);
          const call = { conf, container, prevResult: result };
          expect(await lab.plugin('bridge', { command: 'STATUS', conf })).toMatchObject({ exitCode: 0 });
          expect(await lab.plugin('bridge', { command: 'CHECK', ...call })).toMatchObject({ exitCode: 0 });

          await stop();
          const times = ['AdvValidLifetime 60;', 'AdvPreferredLifetime 0;'];
          startRadvd(lab, lab.host, SERVED.bridge, { prefixLines: times, lines: ['prefix fd78::/64 { };'] });
          const check = async () => lab.plugin('dhcp', { command: 'CHECK', ...call });
          await until(async () => (await check()).exitCode !== 0);
          expect((await check()).error?.msg).toContain(
            `Cannot confirm ${address} of "eth0": the interface has fd78::`,
          );
          expect(await lab.plugin('bridge', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] stateless: the address is formed, a DHCPv6 server names resolvers, and the router does without one',
      async () => {
        await withHost(async lab => {
          const options = { 'dns-servers': 'fd77::53', 'domain-search': 'kea.example' };
          const { server } = await serveKea(lab, 6, { options });
          startRadvd(lab, lab.host, SERVED.bridge, { lines: [...RESOLVERS, 'AdvOtherConfigFlag on;'] });
          const conf = confOf({ ...SLAAC, ipv6: 'stateless' });
          const told = await add(lab, await lab.container(), conf);
          expect(told.ips[0]?.address).toMatch(/^fd77::.*ff:fe.*\/64$/);
          expect(told.dns).toEqual({ nameservers: ['fd77::53'], search: ['kea.example'] });
          expect(server.leases()).toEqual([]);
          await server.stop();
          const alone = await add(lab, await lab.container(), conf);
          expect(alone.dns).toEqual({ nameservers: ['fd77::99'], search: ['lan.example'] });
          const withClient = await lab.container();
          const socket = visit(withClient, () => openSocket('udp', 6));
          bindSocket(socket, 'udp', 546);
          // To itself: SO_REUSEADDR of SOL_SOCKET (asm-generic/socket.h).
          libc().setsockopt(socket.fd, 1, 2, ptr(new Int32Array(1)), 4);
          const unasked = await add(lab, withClient, conf);
          closeSocket(socket);
          expect(unasked.dns).toEqual(alone.dns);
          expect(recordsIn(lab)).toEqual([]);
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] without a router, or a prefix to form addresses in, ADD fails in time and says so',
      async () => {
        await withHost(async lab => {
          await makeServedBridge(lab);
          await attachHost(lab, 'other0');
          const names = async () => (await lab.ip(lab.host, 'link')).map(({ ifname }) => ifname);
          const before = await names();
          const call = { conf: confOf({ ...SLAAC, timeout: 4 }), container: await lab.container() };
          const silent = await lab.plugin('bridge', { command: 'ADD', ...call });
          expect(silent.error).toMatchObject({
            code: 11,
            msg: expect.stringContaining('no router advertised itself'),
          });
          startRadvd(lab, lab.host, SERVED.bridge, {
            lines: ['AdvManagedFlag on;'],
            prefixLines: ['AdvAutonomous off;'],
          });
          const managed = await lab.plugin('bridge', { command: 'ADD', ...call });
          expect(managed.error?.msg).toContain('they refer to DHCPv6: use "ipv6": "dhcp"');
          expect(await names()).toEqual(before);
        });
      },
      DEADLINE_MS,
    );

    testNeeding(
      "[1.0.0] works below the reference's bridge",
      async () => {
        await withHost(async lab => {
          await makeServedBridge(lab);
          await addServedIpv6(lab);
          startRadvd(lab, lab.host, SERVED.bridge);
          const container = await lab.container();
          const conf = { ...confOf(SLAAC), cniVersion: '1.0.0' };
          const call = { conf, container, cniPath: BIN_DIR, binDir: REFERENCE_BIN_DIR };
          const add = () => lab.plugin('bridge', { command: 'ADD', ...call });
          let added = await add();
          // The router may advertise between the two plugins: the kernel forms the address again, which the reference then cannot add.
          for (let left = 3; left > 0 && /file exists/.test(added.stdout); left--) {
            expect(await lab.plugin('bridge', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
            added = await add();
          }
          expect(added).toMatchObject({ exitCode: 0 });
          expect(await addressesOf(lab, container, 'inet6')).toEqual([added.result.ips[0].address]);
          expect(await ping(lab, container, SERVED6.server)).toBe(true);
        });
      },
      requiresReference('bridge'),
    );
  },
  requiresServer('kea-dhcp6', 'radvd'),
);
