// Does dhcp obtain, keep and return IPv4 leases of kea, as it does with dnsmasq?
import { expect, test } from 'bun:test';
import { startDaemon } from '../helpers/daemon.ts';
import { deadline } from '../helpers/deadline.ts';
import { add, addressesOf, confOf, recordsIn } from '../helpers/dhcp-lab.ts';
import { requiresServer } from '../helpers/dhcp-packages.ts';
import { SERVED } from '../helpers/dhcp-server.ts';
import { SHORT_TIMES, serveKea, startKea } from '../helpers/kea.ts';
import { withHost } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

describeRoot(
  'dhcp with kea',
  () => {
    test(
      '[1.1.0] one address for two containers; a lease is renewed, confirmed to a new daemon, kept over a new server, and returned',
      async () => {
        await withHost(async lab => {
          const options = {
            pool: '10.77.0.50-10.77.0.50',
            more: SHORT_TIMES,
            options: {
              routers: SERVED.server,
              'domain-name-servers': '10.77.0.53',
              'domain-search': 'a.example',
            },
          };
          const { server } = await serveKea(lab, 4, options);
          const container = await lab.container();
          const result = await add(lab, container);
          expect(result).toMatchObject({
            ips: [{ address: '10.77.0.50/24', gateway: SERVED.server }],
            routes: [{ dst: '0.0.0.0/0', gw: SERVED.server }],
            dns: { nameservers: ['10.77.0.53'], search: ['a.example'] },
          });
          expect(await ping(lab, container, SERVED.server)).toBe(true);
          expect(server.leases()).toEqual(['10.77.0.50']);
          const second = { conf: confOf({ timeout: 3 }), container: await lab.container() };
          const reply = await lab.plugin('bridge', { command: 'ADD', ...second });
          expect(reply.error).toMatchObject({ code: 11 });

          const acks = (log: string) => log.split('DHCP4_LEASE_ALLOC').length - 1;
          const daemon = await startDaemon(lab);
          // The confirmation to a new daemon, and a renewal.
          const before = acks(server.log());
          await until(() => acks(server.log()) >= before + 2, { withinMs: 25_000 });
          process.kill(daemon.pid, 'SIGKILL');
          await daemon.exited;
          await server.stop();
          const again = await startKea(lab, lab.host, 4, { subnet: SERVED.subnet, ...options });
          const killed = acks(again.log());
          await startDaemon(lab);
          await until(() => acks(again.log()) >= killed + 2, { withinMs: 25_000 });
          expect(await addressesOf(lab, container)).toEqual(['10.77.0.50/24']);
          const call = { conf: confOf(), container, prevResult: result };
          expect(await lab.plugin('bridge', { command: 'CHECK', ...call })).toMatchObject({ exitCode: 0 });
          expect(await lab.plugin('bridge', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
          await until(() => again.leases().length === 0);
          expect(recordsIn(lab)).toEqual([]);
        });
      },
      deadline(120_000),
    );
  },
  requiresServer('kea-dhcp4'),
);
