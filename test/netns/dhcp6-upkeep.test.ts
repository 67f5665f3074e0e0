// Does the daemon keep IPv6 leases of a real server?
import { expect, test } from 'bun:test';
import { startDaemon } from '../helpers/daemon.ts';
import { deadline } from '../helpers/deadline.ts';
import { add, confOf, recordsIn } from '../helpers/dhcp-lab.ts';
import { requiresServer } from '../helpers/dhcp-packages.ts';
import { SERVED6 } from '../helpers/dhcp-server.ts';
import { SHORT_TIMES6, serveKea, startKea } from '../helpers/kea.ts';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

const CONF = confOf({ ipv6: 'dhcp', ipv4: false, timeout: 10 });
const BEGINNING = { pool: 'fd77::100-fd77::1ff', subnet: SERVED6.subnet, more: SHORT_TIMES6 };

/** The leased addresses of the interface, and for how many seconds each is valid. */
async function validOf(lab: Lab, container: Container): Promise<Record<string, number>> {
  const [link] = await lab.ip(container, '-6', 'addr', 'show', 'eth0', 'scope', 'global');
  return Object.fromEntries(
    (link?.addr_info ?? [])
      .filter((one: Row) => one.local)
      .map((one: Row) => [one.local, one.valid_life_time] as const),
  );
}

const count = (log: string, what: string) => log.split(what).length - 1;

describeRoot(
  'dhcp for IPv6, kept by the daemon',
  () => {
    test(
      '[1.1.0] a lease gets its lifetimes, is renewed, survives a new daemon, a rogue server and a new server, and ends without one',
      async () => {
        await withHost(async lab => {
          const { server, neighbour } = await serveKea(lab, 6, { more: SHORT_TIMES6 });
          const container = await lab.container();
          const result = await add(lab, container, CONF);
          const address = result.ips[0]?.address.split('/')[0] ?? '';
          const daemon = await startDaemon(lab);
          // Added for ever by bridge; the daemon limits it, and the renewals extend that.
          await until(async () => ((await validOf(lab, container))[address] ?? 99) <= 16);
          await until(() => count(server.log(), 'DHCP6_LEASE_RENEW') >= 1, { withinMs: 20_000 });

          // It hears what is asked of every server, and does not know the lease.
          const other = { ...BEGINNING, name: 'rogue', device: 'eth0', pool: 'fd77::300-fd77::3ff' };
          const rogue = await startKea(lab, neighbour, 6, other);
          process.kill(daemon.pid, 'SIGKILL');
          await daemon.exited;
          const next = await startDaemon(lab);
          await until(() => count(server.log(), 'REBIND (type 6)') >= 1, { withinMs: 20_000 });
          await until(() => count(rogue.log(), 'REBIND (type 6)') >= 1);
          const renewed = count(server.log(), 'DHCP6_LEASE_RENEW');
          await until(() => count(server.log(), 'DHCP6_LEASE_RENEW') > renewed);
          expect(Object.keys(await validOf(lab, container))).toEqual([address]);
          await rogue.stop();

          await server.stop();
          const again = await startKea(lab, lab.host, 6, BEGINNING);
          const renewals = count(again.log(), 'DHCP6_LEASE_RE');
          await until(() => count(again.log(), 'DHCP6_LEASE_RE') > renewals, { withinMs: 25_000 });
          expect(again.leases()).toEqual([address]);

          await again.stop();
          await until(async () => (await validOf(lab, container))[address] === undefined, {
            withinMs: 40_000,
          });
          await until(() => next.said().includes('has no IPv6 address'), { withinMs: 40_000 });
          const call = { conf: CONF, container, prevResult: result };
          const check = await lab.plugin('dhcp', { command: 'CHECK', ...call });
          expect(check.error?.msg).toContain('it has ended');
          expect(await lab.plugin('bridge', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
          expect(recordsIn(lab)).toEqual([]);
        });
      },
      deadline(120_000),
    );

    test(
      '[1.1.0] a server that lost its leases grants the same address again; one of another pool replaces it, and CHECK says so',
      async () => {
        await withHost(async lab => {
          const { server } = await serveKea(lab, 6, { more: SHORT_TIMES6 });
          const container = await lab.container();
          const result = await add(lab, container, CONF);
          const address = result.ips[0]?.address.split('/')[0] ?? '';
          const daemon = await startDaemon(lab);
          await until(() => count(server.log(), 'DHCP6_LEASE_RENEW') >= 1, { withinMs: 20_000 });
          await server.stop();
          await lab.run(lab.host, ['rm', `${lab.tmp}/kea6.leases`]);
          const forgetful = await startKea(lab, lab.host, 6, BEGINNING);
          await until(() => forgetful.leases().includes(address), { withinMs: 30_000 });
          expect(Object.keys(await validOf(lab, container))).toEqual([address]);
          expect(daemon.said()).not.toContain('ADD reported');

          await forgetful.stop();
          const pool = 'fd77::200-fd77::2ff';
          const moved = await startKea(lab, lab.host, 6, { ...BEGINNING, pool });
          await until(
            async () =>
              Object.keys(await validOf(lab, container))
                .join()
                .startsWith('fd77::2'),
            {
              withinMs: 40_000,
            },
          );
          expect(Object.keys(await validOf(lab, container))).toEqual(
            moved.leases().filter(one => one !== address),
          );
          await until(() => daemon.said().includes(`ADD reported ${address}`));
          const call = { conf: CONF, container, prevResult: result };
          const check = await lab.plugin('dhcp', { command: 'CHECK', ...call });
          expect(check.error?.msg).toContain('the server has replaced it by fd77::2');
          expect(await lab.plugin('bridge', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
        });
      },
      deadline(120_000),
    );
  },
  requiresServer('kea-dhcp6'),
);
