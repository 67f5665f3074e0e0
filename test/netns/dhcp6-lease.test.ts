// Does dhcp obtain and return IPv6 leases of real servers, below bridge?
import { expect, test } from 'bun:test';
import { faultIn } from '../../src/lab/call.ts';
import { deadline } from '../helpers/deadline.ts';
import { add, addressesOf, attachHost, confOf, recordsIn } from '../helpers/dhcp-lab.ts';
import { requiresServer } from '../helpers/dhcp-packages.ts';
import { addServedIpv6, makeServedBridge, SERVED, SERVED6, startDhcpServer } from '../helpers/dhcp-server.ts';
import { serveKea } from '../helpers/kea.ts';
import { withHost } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

const DEADLINE_MS = deadline(60_000);
/** Asks for an IPv6 lease only. */
const IPV6 = { ipv6: 'dhcp', ipv4: false, timeout: 10 };

describeRoot(
  'dhcp for IPv6, with dnsmasq',
  () => {
    test(
      '[1.1.0] obtains leases of both families, with gateways, prefix and resolvers, and DEL returns them',
      async () => {
        await withHost(async lab => {
          await makeServedBridge(lab);
          await addServedIpv6(lab);
          const server = await startDhcpServer(lab, lab.host, SERVED.bridge, {
            args: [
              ...['--dhcp-range=fd77::100,fd77::1ff,64,2m', '--enable-ra'],
              ...[
                '--dhcp-option=option:dns-server,10.77.0.53',
                '--dhcp-option=option:domain-search,a.example',
              ],
              ...[
                '--dhcp-option=option6:dns-server,[fd77::53]',
                '--dhcp-option=option6:domain-search,b.example',
              ],
            ],
          });
          const container = await lab.container();
          const conf = confOf({ ipv6: 'dhcp', timeout: 10 });
          const result = await add(lab, container, conf);
          const [four, six] = result.ips;
          expect(four?.address).toMatch(/^10\.77\.0\.\d+\/24$/);
          expect(six?.address).toMatch(/^fd77::1[0-9a-f]{2}\/64$/);
          expect([four?.gateway, six?.gateway]).toEqual([SERVED.server, SERVED6.router]);
          expect(result).toMatchObject({
            routes: [
              { dst: '0.0.0.0/0', gw: SERVED.server },
              { dst: '::/0', gw: SERVED6.router, priority: 1025 },
            ],
            dns: { nameservers: ['10.77.0.53', 'fd77::53'], search: ['a.example', 'b.example'] },
          });
          expect(await addressesOf(lab, container, 'inet6')).toEqual([six?.address ?? '']);
          expect(await ping(lab, container, SERVED6.server)).toBe(true);
          const call = { conf, container, prevResult: result };
          expect(await lab.plugin('bridge', { command: 'CHECK', ...call })).toMatchObject({ exitCode: 0 });
          expect(recordsIn(lab)).toHaveLength(2);

          expect(await lab.plugin('bridge', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
          await until(() => server.leases().filter(line => !line.startsWith('duid')).length === 0);
          expect(recordsIn(lab)).toEqual([]);
          expect(await lab.plugin('bridge', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
        });
      },
      DEADLINE_MS,
    );
  },
  requires('dnsmasq'),
);

describeRoot(
  'dhcp for IPv6, with kea',
  () => {
    test(
      '[1.1.0] takes a lease in one exchange if both want that, declines an address that another host has, and says why there is none',
      async () => {
        await withHost(async lab => {
          const options = { 'dns-servers': 'fd77::53', 'domain-search': 'lan.example' };
          const { server, neighbour } = await serveKea(lab, 6, {
            pool: 'fd77::100-fd77::101',
            rapid: true,
            options,
          });
          await lab.ip(neighbour, 'addr', 'add', 'fd77::100/64', 'dev', 'eth0', 'nodad');
          const container = await lab.container();
          const conf = confOf({ ...IPV6, rapidCommit: true });
          const result = await add(lab, container, conf);
          // Without a router, no other address is known to be on the link.
          expect(result).toMatchObject({
            ips: [{ address: 'fd77::101/128' }],
            dns: { nameservers: ['fd77::53'], search: ['lan.example'] },
          });
          expect(server.log()).toContain('DHCP6_DECLINE_LEASE');
          expect(server.log()).not.toContain('DHCP6_LEASE_ADVERT');
          expect(server.leases()).toEqual(['fd77::101']);

          const call = { conf: confOf({ ...IPV6, timeout: 4 }), container: await lab.container() };
          const reply = await lab.plugin('bridge', { command: 'ADD', ...call });
          expect(reply.error).toMatchObject({
            code: 11,
            msg: expect.stringContaining(`${SERVED6.router}: it has no free address`),
          });
          expect((await lab.ip(call.container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
          expect(recordsIn(lab)).toHaveLength(1);
          expect(await lab.plugin('bridge', { command: 'DEL', conf, container })).toMatchObject({
            exitCode: 0,
          });
          expect(server.leases()).toEqual([]);
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] only the server named counts; without one, ADD fails in time and leaves nothing',
      async () => {
        await withHost(async lab => {
          const { server } = await serveKea(lab, 6);
          const rogue = await attachHost(lab, 'rogue0');
          await lab.ip(rogue, 'addr', 'add', 'fd77::66/64', 'dev', 'eth0', 'nodad');
          const args = ['--dhcp-range=fd77::600,fd77::6ff,64,2m', '--dhcp-authoritative'];
          const other = await startDhcpServer(lab, rogue, 'eth0', { name: 'rogue', args });
          const conf = confOf({ ...IPV6, servers: [SERVED6.router] });
          const { ips } = await add(lab, await lab.container(), conf);
          expect(ips).toMatchObject([{ address: 'fd77::100/128' }]);
          await server.stop();
          const names = async () => (await lab.ip(lab.host, 'link')).map(({ ifname }) => ifname);
          const [before, records] = [await names(), recordsIn(lab)];
          const call = {
            conf: { ...conf, ipam: { ...(conf.ipam as object), timeout: 4 } },
            container: await lab.container(),
          };
          const reply = await lab.plugin('bridge', { command: 'ADD', ...call });
          expect(reply.error).toMatchObject({
            code: 11,
            msg: expect.stringContaining('no DHCPv6 server answered'),
          });
          expect(other.log()).toContain('DHCPADVERTISE');
          expect(await names()).toEqual(before);
          expect(recordsIn(lab)).toEqual(records);
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] ADD that fails at the nth request to the kernel leaves no interface, no record and no lease',
      async () => {
        await withHost(async lab => {
          const { server } = await serveKea(lab, 6);
          const names = async () => (await lab.ip(lab.host, 'link')).map(({ ifname }) => ifname);
          const before = await names();
          const conf = confOf({ ...IPV6, detectConflicts: false });
          // Polling for the link-local address makes many requests of the same kind.
          for (let request = 20; request < 400; request *= 2) {
            const container = await lab.container();
            const env = { CATENA_FAULT: `kernel:${request}` };
            const reply = await lab.plugin('bridge', { command: 'ADD', conf, container, env });
            const { what } = faultIn(reply.stderr) ?? {};
            if (reply.exitCode === 0) await lab.plugin('bridge', { command: 'DEL', conf, container });
            expect(reply.error?.details ?? '').not.toContain('could not be undone');
            expect({ what, names: await names(), records: recordsIn(lab) }).toEqual({
              what,
              names: before,
              records: [],
            });
            expect(server.leases()).toEqual([]);
          }
        });
      },
      deadline(120_000),
    );
  },
  requires('dnsmasq'),
  requiresServer('kea-dhcp6'),
);
