// Does dhcp obtain, keep and return leases of a real server, below bridge?
import { expect, test } from 'bun:test';
import { mkdirSync, writeFileSync } from 'node:fs';
import { faultIn } from '../../src/lab/call.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { deadline } from '../helpers/deadline.ts';
import {
  add,
  addressesOf,
  attachHost,
  confOf,
  recordsIn,
  SHORT,
  serve,
  startRogue,
} from '../helpers/dhcp-lab.ts';
import { addServedIpv6, makeServedBridge, SERVED, startDhcpServer } from '../helpers/dhcp-server.ts';
import { failInTurn } from '../helpers/fail-in-turn.ts';
import { type Container, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresReference, testNeeding } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

const DEADLINE_MS = deadline(60_000);

describeRoot(
  'dhcp below bridge',
  () => {
    test.each([
      ['macvlan', { master: 'up0' }],
      ['host-device', { device: 'up0' }],
    ])(
      '[1.1.0] serves %s: CHECK confirms the lease, DEL releases it before the interface goes',
      async (type, device) => {
        await withHost(async lab => {
          const server = await serve(lab);
          await lab.run(lab.host, ['ip', 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'port0']);
          await lab.run(lab.host, ['ip', 'link', 'set', 'port0', 'master', SERVED.bridge, 'up']);
          await lab.run(lab.host, ['ip', 'link', 'set', 'up0', 'up']);
          const container = await lab.container();
          const conf = { ...confOf(), type, ...device };
          const added = await lab.plugin(type, { command: 'ADD', conf, container });
          expect(added).toMatchObject({ exitCode: 0 });
          expect(await addressesOf(lab, container)).toEqual([added.result.ips[0].address]);
          expect(await ping(lab, container, SERVED.server)).toBe(true);
          const call = { conf, container, prevResult: added.result };
          for (const command of ['CHECK', 'DEL'] as const)
            expect(await lab.plugin(type, { command, ...call })).toMatchObject({ exitCode: 0 });
          await until(() => server.log().includes('DHCPRELEASE'));
          expect(server.leases()).toEqual([]);
          expect(recordsIn(lab)).toEqual([]);
          expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
          expect((await lab.ip(lab.host, 'link', 'show', 'up0'))[0]).toMatchObject({ ifname: 'up0' });
        });
      },
      DEADLINE_MS,
    );

    testNeeding(
      '[1.1.0] containers of one id on two machines get two addresses, and the DEL of one leaves the other its lease',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab);
          const conf = confOf({ detectConflicts: false });
          const attach = async (machine: string) => {
            const [dir, container] = [`${lab.tmp}/${machine}`, await lab.container()];
            const program = `#!/bin/sh\nhostname ${machine}\nexec ${BIN_DIR}/bridge\n`;
            mkdirSync(dir);
            writeFileSync(`${dir}/program`, program, { mode: 0o755 });
            writeFileSync(`${dir}/bridge`, `#!/bin/sh\nexec unshare --uts ${dir}/program\n`, { mode: 0o755 });
            const names = { CNI_CONTAINERID: 'web', CATENA_STATE_DIR: dir, CATENA_RUN_DIR: dir };
            const call = { conf, container, env: names, binDir: dir, cniPath: BIN_DIR };
            expect(await lab.plugin('bridge', { command: 'ADD', ...call })).toMatchObject({ exitCode: 0 });
            return { call, addresses: await addressesOf(lab, container) };
          };
          const [one, other] = [await attach('one'), await attach('other')];
          expect(one.addresses).not.toEqual(other.addresses);
          expect(server.leases()).toHaveLength(2);
          await lab.plugin('bridge', { command: 'DEL', ...one.call });
          await until(() => server.leases().length === 1);
          expect(other.addresses).toEqual([expect.stringContaining(server.leases()[0]?.split(' ')[2] ?? '')]);
        });
      },
      requires('unshare', 'hostname'),
    );

    test(
      '[1.1.0] outlasts the two forward delays of a bridge with spanning tree, by default',
      async () => {
        await withHost(async lab => {
          await serve(lab);
          // Without a program of the host, so the kernel's own spanning tree: listening and learning for 15 seconds each.
          const args = [
            'ip',
            'link',
            'set',
            SERVED.bridge,
            'type',
            'bridge',
            'stp_state',
            '1',
            'forward_delay',
            '1500',
          ];
          expect(await lab.run(lab.host, args)).toMatchObject({ exitCode: 0 });
          const container = await lab.container();
          const { ipam, ...conf } = confOf();
          const call = { conf: { ...conf, ipam: { type: 'dhcp' } }, container, timeoutMs: 100_000 };
          const adding = lab.plugin('bridge', { command: 'ADD', ...call });
          const states = new Set<string>();
          let isOver = false;
          void adding.then(() => {
            isOver = true;
          });
          await until(
            async () => {
              const ports = await lab.ip(lab.host, '-d', 'link', 'show', 'master', SERVED.bridge);
              for (const { linkinfo } of ports) states.add(String(linkinfo?.info_slave_data?.state));
              return isOver;
            },
            { withinMs: 100_000, everyMs: 200 },
          );
          expect([...states]).toEqual(expect.arrayContaining(['listening', 'learning']));
          const added = await adding;
          expect(added).toMatchObject({ exitCode: 0 });
          expect(await addressesOf(lab, container)).toEqual([added.result.ips[0].address]);
          expect(await lab.plugin('bridge', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
        });
      },
      deadline(110_000),
    );

    test(
      '[1.1.0] datagrams without end, one by one or many in one send, delay no lease and no call of another network',
      async () => {
        await withHost(async lab => {
          await serve(lab);
          const daemon = await startDaemon(lab);
          const hostile = await attachHost(lab, 'hostile0');
          await lab.ip(hostile, 'addr', 'add', '10.77.0.3/24', 'dev', 'eth0');
          // linux/udp.h: UDP_SEGMENT. Neighbours of one host get such a send in one piece, through a packet socket.
          const flood = (segment: number) => `
import socket,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET,socket.SO_BROADCAST,1)
s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)
if ${segment}: s.setsockopt(17,103,${segment})
s.bind(("10.77.0.3",67))
head=bytes([2,1,6,0])+bytes(232)+bytes([99,130,83,99])
one=(head+bytes([43,255])+bytes(255))*200
print("ready",flush=True)
while True:
  s.sendto(one[:${segment ? 60_000 : 1_400}],("255.255.255.255",68))
  time.sleep(.0005)
`;
          const floods = [0, 1_400, 1_000].map(segment =>
            lab.start(hostile, ['python3', '-c', flood(segment)]),
          );
          for (const { stdout } of floods) await stdout.getReader().read();
          const containers = await Promise.all([1, 2].map(() => lab.container()));
          const results = await Promise.all(containers.map(one => add(lab, one, confOf({ timeout: 20 }))));
          for (const [i, { ips }] of results.entries())
            expect(await addressesOf(lab, containers[i] as Container)).toEqual([ips[0]?.address ?? '']);
          // The daemon asked for them, and has workers for other networks.
          const state = (await (await daemon.fetch('/v1/state')).json()) as {
            served: number;
            declined: object;
          };
          expect(state).toMatchObject({ served: 2, declined: {} });
          const other = { cniVersion: '1.1.0', name: 'other', type: 'loopback' };
          const container = await lab.container();
          expect(
            await lab.plugin('loopback', { command: 'ADD', conf: other, container, ifname: 'lo' }),
          ).toMatchObject({ exitCode: 0 });
          expect(floods.map(({ exitCode }) => exitCode)).toEqual([null, null, null]);
          for (const child of floods) child.kill('SIGKILL');
        });
      },
      DEADLINE_MS,
    );

    test('[1.1.0] without "ipam", ADD and CHECK say what is missing, and DEL succeeds', async () => {
      await withHost(async lab => {
        const call = {
          conf: { cniVersion: '1.1.0', name: 'lan', type: 'dhcp' },
          container: await lab.container(),
        };
        for (const command of ['ADD', 'CHECK']) {
          const { error } = await lab.plugin('dhcp', { command, ...call });
          expect(error).toMatchObject({ code: 7, msg: expect.stringContaining('"ipam" must be') });
        }
        expect(await lab.plugin('dhcp', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
      });
    });

    test(
      '[1.1.0] obtains a lease that CHECK confirms and DEL returns',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, {
            args: [
              ...[
                '--dhcp-option=option:dns-server,10.77.0.53',
                '--dhcp-option=option:domain-name,lan.example',
              ],
              ...['--dhcp-option=option:domain-search,a.example,b.example', '--dhcp-option=option:mtu,1400'],
            ],
          });
          const container = await lab.container();
          const result = await add(lab, container);
          const [ip] = result.ips;
          expect(ip?.address).toMatch(/^10\.77\.0\.\d+\/24$/);
          expect(ip?.gateway).toBe(SERVED.server);
          expect(result).toMatchObject({
            routes: [{ dst: '0.0.0.0/0', gw: SERVED.server }],
            dns: { nameservers: ['10.77.0.53'], domain: 'lan.example', search: ['a.example', 'b.example'] },
          });
          expect(await addressesOf(lab, container)).toEqual([ip?.address ?? '']);
          const [link] = await lab.ip(container, 'link', 'show', 'eth0');
          expect(link).toMatchObject({ mtu: 1400, operstate: 'UP' });
          const [route] = await lab.ip(container, 'route', 'show', 'default');
          expect(route).toMatchObject({ gateway: SERVED.server, dev: 'eth0' });
          expect(await ping(lab, container, SERVED.server)).toBe(true);
          expect(server.leases()).toEqual([expect.stringContaining('ff:')]);
          const call = { conf: confOf(), container, prevResult: result };
          expect(await lab.plugin('bridge', { command: 'CHECK', ...call })).toMatchObject({ exitCode: 0 });

          expect(await lab.plugin('bridge', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
          await until(() => server.log().includes('DHCPRELEASE'));
          expect(server.leases()).toEqual([]);
          expect(recordsIn(lab)).toEqual([]);
          expect(await lab.plugin('bridge', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
        });
      },
      DEADLINE_MS,
    );

    test('[1.1.0] CHECK of an attachment that has no lease says so at once, and asks no server for one', async () => {
      await withHost(async lab => {
        const server = await serve(lab);
        const container = await attachHost(lab, 'other0');
        const { error } = await lab.plugin('dhcp', { command: 'CHECK', conf: confOf(), container });
        expect(error?.msg).toContain('Cannot find a lease of "eth0"');
        expect(server.log()).not.toContain('DHCPDISCOVER');
        expect(server.leases()).toEqual([]);
      });
    });

    test('[1.1.0] ADD that cannot note its lease gives it back to the server', async () => {
      await withHost(async lab => {
        const server = await serve(lab);
        const container = await attachHost(lab, 'other0');
        const env = { CATENA_STATE_DIR: '/dev/null/state' };
        const { error } = await lab.plugin('dhcp', { command: 'ADD', conf: confOf(), container, env });
        expect(error).toMatchObject({ code: 5 });
        expect(server.log()).toContain('DHCPACK');
        await until(() => server.leases().length === 0);
      });
    });

    test('[1.1.0] the client identifier has 23 bytes, however long the names are', async () => {
      await withHost(async lab => {
        const server = await serve(lab);
        const container = { ...(await lab.container()), id: 'c'.repeat(150) };
        const conf = { ...confOf(), name: 'n'.repeat(50) };
        const { ips } = await add(lab, container, conf);
        const [, , address, , clientId] = server.leases()[0]?.split(' ') ?? [];
        expect([`${address}/24`, clientId?.split(':').length]).toEqual([ips[0]?.address, 23]);
        expect(await lab.plugin('bridge', { command: 'DEL', conf, container })).toMatchObject({
          exitCode: 0,
        });
      });
    });

    test(
      '[1.1.0] installs classless routes and the metric, and sends what is to be provided',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, {
            args: [`--dhcp-option=option:classless-static-route,192.0.2.0/24,10.77.0.9,0.0.0.0/0,10.77.0.1`],
          });
          const container = await lab.container();
          const provide = [{ option: 'host-name', value: 'fallback', fromArg: 'K8S_POD_NAME' }];
          const conf = confOf({ priority: 77, provide });
          const args = 'IgnoreUnknown=1;K8S_POD_NAME=web';
          expect(await lab.plugin('bridge', { command: 'ADD', conf, container, args })).toMatchObject({
            exitCode: 0,
          });
          const routes = await lab.ip(container, 'route', 'show');
          expect(routes).toContainEqual(
            expect.objectContaining({ dst: '192.0.2.0/24', gateway: '10.77.0.9', metric: 77 }),
          );
          expect(routes).toContainEqual(
            expect.objectContaining({ dst: 'default', gateway: '10.77.0.1', metric: 77 }),
          );
          expect(server.leases()[0]).toContain(' web ');
        });
      },
      DEADLINE_MS,
    );

    test.each([
      ['no server', undefined],
      ['no free address', ['10.77.0.50', '10.77.0.50']],
    ] as const)(
      '[1.1.0] %s: ADD fails in time and leaves nothing',
      async (_, range) => {
        await withHost(async lab => {
          if (range) {
            await serve(lab, { range });
            await add(lab, await lab.container());
          } else await makeServedBridge(lab);
          const container = await lab.container();
          const before = await lab.ip(lab.host, 'link');
          const records = recordsIn(lab);
          const conf = confOf({ timeout: 2 });
          const reply = await lab.plugin('bridge', { command: 'ADD', conf, container });
          expect(reply).toMatchObject({
            exitCode: 1,
            error: {
              code: 11,
              msg: expect.stringContaining('Cannot obtain an address for "eth0" within 2 s'),
            },
          });
          const names = (rows: { ifname?: string }[]) => rows.map(({ ifname }) => ifname);
          expect(names(await lab.ip(lab.host, 'link'))).toEqual(names(before));
          expect(names(await lab.ip(container, 'link'))).toEqual(['lo']);
          expect(recordsIn(lab)).toEqual(records);
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] an address that another host has is declined, and the next one is taken',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, { range: ['10.77.0.50', '10.77.0.53'] });
          const other = await attachHost(lab, 'other0');
          for (const taken of ['10.77.0.50', '10.77.0.51', '10.77.0.52'])
            await lab.ip(other, 'addr', 'add', `${taken}/24`, 'dev', 'eth0');
          const [{ address: mac } = {}] = await lab.ip(other, 'link', 'show', 'eth0');
          const first = await lab.container();
          const { ips } = await add(lab, first, confOf({ timeout: 20 }));
          expect(ips[0]?.address).toBe('10.77.0.53/24');
          const second = await lab.container();
          const call = { command: 'ADD', conf: confOf({ timeout: 3 }), container: second } as const;
          const reply = await lab.plugin('bridge', call);
          const holder = `the host with hardware address ${mac} has it`;
          expect(reply.error).toMatchObject({ code: 11, msg: expect.stringContaining(holder) });
          expect(server.log()).toContain('DHCPDECLINE');
          expect(server.leases()).toHaveLength(1);
          expect(recordsIn(lab)).toHaveLength(1);
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] a rogue server is not believed if the configuration names the servers',
      async () => {
        await withHost(async lab => {
          await serve(lab);
          await startRogue(lab, []);
          for (let round = 0; round < 3; round++) {
            const result = await add(lab, await lab.container(), confOf({ servers: [SERVED.server] }));
            expect(result.ips[0]?.gateway).toBe(SERVED.server);
          }
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] ADD that fails at the nth request to the kernel leaves no interface, no record and no lease',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab);
          const names = async () => (await lab.ip(lab.host, 'link')).map(({ ifname }) => ifname);
          const before = await names();
          const failed = await failInTurn(async request => {
            const container = await lab.container();
            const env = { CATENA_FAULT: `kernel:${request}` };
            const reply = await lab.plugin('bridge', { command: 'ADD', conf: confOf(), container, env });
            const what = faultIn(reply.stderr)?.what;
            if (reply.exitCode === 0) {
              await lab.plugin('bridge', { command: 'DEL', conf: confOf(), container });
            } else {
              expect(reply.error?.details ?? '').not.toContain('could not be undone');
              expect({ what, names: await names(), records: recordsIn(lab) }).toEqual({
                what,
                names: before,
                records: [],
              });
              expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
            }
            await until(() => server.leases().length === 0);
            return what;
          });
          expect(failed.length).toBeGreaterThan(7);
        });
      },
      deadline(120_000),
    );

    test(
      '[1.1.0] GC returns the leases of attachments that are not in the list',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab);
          const [kept, stale] = [await lab.container(), await lab.container()];
          await add(lab, kept);
          await add(lab, stale);
          const valid = [{ containerID: kept.id, ifname: 'eth0' }];
          const conf = { ...confOf(), 'cni.dev/valid-attachments': valid };
          expect(await lab.plugin('bridge', { command: 'GC', conf })).toMatchObject({ exitCode: 0 });
          await until(() => server.leases().length === 1);
          expect(recordsIn(lab)).toEqual([expect.stringContaining(kept.id)]);
        });
      },
      DEADLINE_MS,
    );
  },
  requires('dnsmasq'),
);

describeRoot(
  'dhcp with the daemon',
  () => {
    test(
      '[1.1.0] STATUS says whether leases are kept, and those of before are taken up',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, { args: SHORT });
          const status = () => lab.plugin('bridge', { command: 'STATUS', conf: confOf() });
          expect(await status()).toMatchObject({
            error: { code: 51, msg: expect.stringContaining('no daemon') },
          });
          const container = await lab.container();
          const { ips } = await add(lab, container);
          const address = ips[0]?.address.split('/')[0] ?? '';
          const acks = () => server.log().split(`DHCPACK(br0) ${address}`).length - 1;
          expect(acks()).toBe(1);
          const daemon = await startDaemon(lab);
          // INIT-REBOOT at once, then renewals.
          await until(() => acks() >= 4);
          expect(await status()).toMatchObject({ exitCode: 0 });
          await daemon.stop();
          const before = acks();
          await startDaemon(lab);
          await until(() => acks() > before);
          expect(await addressesOf(lab, container)).toEqual([ips[0]?.address ?? '']);
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] an ADD that asks for both families is not disturbed: its lease is noted before the interface has the address',
      async () => {
        await withHost(async lab => {
          await serve(lab, { args: ['--dhcp-range=fd77::100,fd77::1ff,64,2m', '--enable-ra'] });
          await addServedIpv6(lab);
          await startDaemon(lab);
          // The kernel probes for the IPv6 address for up to two seconds; the daemon looks at the notes every three.
          for (let left = 3; left > 0; left--) {
            const container = await lab.container();
            const { ips } = await add(lab, container, confOf({ ipv6: 'dhcp', timeout: 15 }));
            expect(ips).toHaveLength(2);
            expect(await addressesOf(lab, container)).toEqual([ips[0]?.address ?? '']);
          }
        });
      },
      deadline(90_000),
    );

    test(
      '[1.1.0] a refusal by another server takes no address away while the own one answers',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, { args: SHORT });
          const container = await lab.container();
          const { ips } = await add(lab, container);
          const rogue = await startRogue(lab, ['--dhcp-authoritative']);
          const before = server.log().split('DHCPACK').length;
          await startDaemon(lab);
          await until(() => rogue.log().includes('DHCPNAK'));
          await until(() => server.log().split('DHCPACK').length > before + 1);
          expect(await addressesOf(lab, container)).toEqual([ips[0]?.address ?? '']);
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] the chosen server is kept through renewal, and another one takes the lease over at T2 when it is gone',
      async () => {
        await withHost(async lab => {
          const range = ['10.77.0.200', '10.77.0.250'] as const;
          const server = await serve(lab, { range, args: SHORT });
          const container = await lab.container();
          const { ips } = await add(lab, container);
          const address = ips[0]?.address ?? '';
          // It grants what it is asked for, as if it were the lease's server.
          const rogue = await startRogue(lab, [...SHORT, '--dhcp-authoritative']);
          const ack = `) ${address.split('/')[0]} `;
          const acks = (log: string) =>
            log.split('\n').filter(line => line.includes(`DHCPACK(`) && line.includes(ack));
          await startDaemon(lab);
          await until(() => acks(server.log()).length >= 4);
          // It hears the confirmation, which is broadcast; renewals go to the chosen server.
          expect(acks(rogue.log()).length).toBeLessThanOrEqual(1);
          const before = acks(rogue.log()).length;
          await server.stop();
          await until(() => acks(rogue.log()).length > before, { withinMs: 30_000 });
          const rebound = acks(rogue.log()).length;
          await until(() => acks(rogue.log()).length > rebound);
          expect(await addressesOf(lab, container)).toEqual([address]);
          const call = { command: 'DEL', conf: confOf(), container } as const;
          expect(await lab.plugin('bridge', call)).toMatchObject({ exitCode: 0 });
          await until(() => rogue.leases().length === 0);
        });
      },
      deadline(90_000),
    );

    test(
      '[1.1.0] an address that the server withdraws is replaced, and CHECK says so',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, { args: [...SHORT, '--dhcp-authoritative'] });
          const container = await lab.container();
          const result = await add(lab, container);
          const daemon = await startDaemon(lab);
          // INIT-REBOOT is over, so it is a renewal that the next server refuses.
          await until(() => server.log().split('DHCPACK').length > 3);
          await server.stop();
          await startDhcpServer(lab, lab.host, SERVED.bridge, {
            name: 'next',
            range: ['10.77.0.150', '10.77.0.199'],
            args: [...SHORT, '--dhcp-authoritative'],
          });
          await until(async () => /^10\.77\.0\.1\d\d/.test((await addressesOf(lab, container))[0] ?? ''), {
            everyMs: 200,
          });
          expect(await addressesOf(lab, container)).toHaveLength(1);
          const [route] = await lab.ip(container, 'route', 'show', 'default');
          expect(route).toMatchObject({ gateway: SERVED.server });
          expect(await ping(lab, container, SERVED.server)).toBe(true);
          await until(() => daemon.said().includes(`ADD reported ${result.ips[0]?.address}`));
          const reply = await lab.plugin('bridge', {
            command: 'CHECK',
            conf: confOf(),
            container,
            prevResult: result,
          });
          expect(reply.error?.msg).toContain('the server has replaced it by 10.77.0.1');
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] nothing is renewed for a namespace that is gone, and DEL still succeeds',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, { args: SHORT });
          const container = await lab.container();
          await add(lab, container);
          await startDaemon(lab);
          await until(() => server.log().split('DHCPACK').length > 2);
          await lab.remove(container);
          await Bun.sleep(1_000);
          const before = server.log().split('DHCPREQUEST').length;
          await Bun.sleep(7_000);
          expect(server.log().split('DHCPREQUEST').length).toBe(before);
          const del = await lab.plugin('bridge', { command: 'DEL', conf: confOf(), container });
          expect(del).toMatchObject({ exitCode: 0 });
          expect(recordsIn(lab)).toEqual([]);
        });
      },
      DEADLINE_MS,
    );
  },
  requires('dnsmasq'),
);

describeRoot(
  "dhcp with the reference's plugins",
  () => {
    testNeeding(
      "[1.0.0] works below the reference's bridge, with the addresses and routes of its own dhcp",
      async () => {
        await withHost(async lab => {
          const args = [
            '--dhcp-option=option:classless-static-route,192.0.2.0/24,10.77.0.9,0.0.0.0/0,10.77.0.1',
          ];
          await serve(lab, { args });
          const socket = `${lab.tmp}/dhcp.sock`;
          lab.start(lab.host, ['/usr/lib/cni/dhcp', 'daemon', '-socketpath', socket]);
          await until(async () => (await lab.run(lab.host, ['test', '-S', socket])).exitCode === 0);
          const conf = {
            ...confOf({ daemonSocketPath: socket, request: [{ option: '121' }] }),
            cniVersion: '1.0.0',
          };
          const results = [];
          for (const cniPath of [BIN_DIR, REFERENCE_BIN_DIR]) {
            const call = { conf, container: await lab.container(), cniPath, binDir: REFERENCE_BIN_DIR };
            const added = await lab.plugin('bridge', { command: 'ADD', ...call });
            expect(added).toMatchObject({ exitCode: 0 });
            const [ip] = added.result.ips;
            results.push({
              ip: { ...ip, address: ip.address.replace(/\d+\/24$/, '0/24') },
              routes: added.result.routes,
            });
            // It deletes the interface first, through which the address would be released.
            const del = await lab.plugin('bridge', { command: 'DEL', ...call, prevResult: added.result });
            expect(del).toMatchObject({ exitCode: 0 });
          }
          expect(recordsIn(lab)).toEqual([]);
          expect(results[0]).toEqual(results[1] as never);
        });
      },
      requiresReference('dhcp', 'bridge'),
    );

    testNeeding(
      '[1.0.0] works below our bridge, and returns its lease',
      async () => {
        await withHost(async lab => {
          const server = await serve(lab);
          const socket = `${lab.tmp}/dhcp.sock`;
          lab.start(lab.host, ['/usr/lib/cni/dhcp', 'daemon', '-socketpath', socket]);
          const container = await lab.container();
          const conf = { ...confOf({ daemonSocketPath: socket }), cniVersion: '1.0.0' };
          const call = { conf, container, cniPath: '/usr/lib/cni' };
          await until(async () => (await lab.run(lab.host, ['test', '-S', socket])).exitCode === 0);
          const added = await lab.plugin('bridge', { command: 'ADD', ...call });
          expect(added).toMatchObject({ exitCode: 0 });
          expect(await addressesOf(lab, container)).toEqual([added.result.ips[0].address]);
          expect(await ping(lab, container, SERVED.server)).toBe(true);
          const del = await lab.plugin('bridge', { command: 'DEL', ...call, prevResult: added.result });
          expect(del).toMatchObject({ exitCode: 0 });
          await until(() => server.log().includes('DHCPRELEASE'));
        });
      },
      requiresReference('dhcp'),
    );
  },
  requires('dnsmasq'),
);
