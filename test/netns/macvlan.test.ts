// What does the macvlan plugin do to a real kernel, and does it take all of it back?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import { interimName } from '../../src/cni/attachment.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { startedBy } from '../helpers/script.ts';
import {
  describeRoot,
  requires,
  requiresReference,
  requiresUpperKind,
  testNeeding,
} from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

setDefaultTimeout(deadline(60_000));

const NEEDED = requiresUpperKind('macvlan');

function confOf(lab: Lab, more: object = {}) {
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    type: 'macvlan',
    master: 'outside0',
    ipam: {
      type: 'host-local',
      ranges: [
        [{ subnet: '10.201.0.0/24', rangeStart: '10.201.0.10', gateway: '10.201.0.2' }],
        [{ subnet: 'fd00:201::/64', rangeStart: 'fd00:201::10', gateway: 'fd00:201::2' }],
      ],
      routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }, { dst: '192.0.2.0/24', gw: '10.201.0.3', table: 77 }],
      dataDir: `${lab.tmp}/leases`,
    },
    ...more,
  };
}

async function add(lab: Lab, container: Container, conf: object, more: object = {}): Promise<Row> {
  const reply = await lab.plugin('macvlan', { command: 'ADD', conf, container, ...more });
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

async function del(lab: Lab, container: Container, conf: object, more: object = {}): Promise<void> {
  const reply = await lab.plugin('macvlan', { command: 'DEL', conf, container, ...more });
  expect(reply).toMatchObject({ exitCode: 0, stdout: '' });
}

async function deviceIn(lab: Lab, container: Container, name = 'eth0'): Promise<Row | undefined> {
  const links = await lab.ip(container, 'link', 'show');
  return links.find(({ ifname }) => ifname === name);
}

function leasesOf(lab: Lab): string[] {
  const dir = `${lab.tmp}/leases/podnet`;
  return fs.existsSync(dir)
    ? fs
        .readdirSync(dir)
        .filter(name => /^[0-9a-f]+[.:]/.test(name))
        .sort()
    : [];
}

describeRoot(
  'macvlan',
  () => {
    test('ADD connects two containers with each other and the outside; DEL removes everything', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        const outside = await lab.outside();
        const conf = confOf(lab);
        const before = await lab.dump(lab.host);
        const result = await add(lab, one, conf);
        await add(lab, two, conf);
        const mac = expect.stringMatching(/^[0-9a-f][26ae](:[0-9a-f]{2}){5}$/);
        expect(structuredClone(result)).toMatchObject({
          interfaces: [{ name: 'eth0', mac, sandbox: one.path }],
          ips: [
            { address: '10.201.0.10/24', gateway: '10.201.0.2', interface: 0 },
            { address: 'fd00:201::10/64', gateway: 'fd00:201::2', interface: 0 },
          ],
        });
        const device = await deviceIn(lab, one);
        expect(device).toMatchObject({
          operstate: 'UP',
          mtu: 1500,
          ifalias: `catena:podnet/${one.id}/eth0`,
          linkinfo: { info_kind: 'macvlan', info_data: { mode: 'bridge' } },
        });
        const { v4, v6 } = outside.address;
        for (const address of ['10.201.0.11', 'fd00:201::11', v4, v6]) {
          expect([address, await ping(lab, one, address)]).toEqual([address, true]);
        }
        const call = { conf, container: one };
        const check = await lab.plugin('macvlan', { ...call, command: 'CHECK', prevResult: result });
        expect(check).toMatchObject({ exitCode: 0, stdout: '' });
        const status = await lab.plugin('macvlan', { command: 'STATUS', conf });
        expect(status).toMatchObject({ exitCode: 0, stdout: '' });
        for (const container of [one, two, two]) await del(lab, container, conf);
        expect(await deviceIn(lab, one)).toBeUndefined();
        expect(await lab.dump(lab.host)).toEqual(before);
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test('ADD refuses an IPv4 address that another host of the link has, and leaves nothing', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const outside = await lab.outside();
        await lab.run(outside, ['ip', 'addr', 'add', '10.201.0.10/24', 'dev', 'uplink']);
        const conf = confOf(lab);
        const refused = await lab.plugin('macvlan', { command: 'ADD', conf, container });
        expect(refused).toMatchObject({ exitCode: 1, error: { code: 11 } });
        expect(refused.error?.msg).toContain(
          'Cannot use 10.201.0.10 on "eth0": the host with hardware address',
        );
        expect(await deviceIn(lab, container)).toBeUndefined();
        expect(leasesOf(lab)).toEqual([]);
        // The next attempt gets another address.
        const result = await add(lab, container, conf);
        expect(result.ips[0].address).toBe('10.201.0.11/24');
        const other = await lab.container();
        const unchecked = {
          ...conf,
          detectConflicts: false,
          ipam: { ...conf.ipam, dataDir: `${lab.tmp}/other` },
        };
        expect((await add(lab, other, unchecked)).ips[0].address).toBe('10.201.0.10/24');
      });
    });

    testNeeding(
      'ADD without the right to probe warns, and attaches as the reference does',
      async () => {
        await withHost(async lab => {
          const container = await lab.container();
          await lab.outside();
          const conf = confOf(lab);
          const binDir = startedBy(lab, 'macvlan', 'setpriv --bounding-set=-net_raw --inh-caps=-net_raw --');
          const call = { conf, container, binDir, cniPath: BIN_DIR };
          const added = await lab.plugin('macvlan', { command: 'ADD', ...call });
          expect(added).toMatchObject({
            exitCode: 0,
            stderr: expect.stringContaining(
              'Cannot ask whether other hosts have 10.201.0.10, fd00:201::10: Cannot open a packet socket',
            ),
          });
          const check = { command: 'CHECK', ...call, prevResult: added.result };
          expect((await lab.plugin('macvlan', check)).exitCode).toBe(0);
          await del(lab, container, conf, { binDir, cniPath: BIN_DIR });
        });
      },
      requires('setpriv'),
    );

    test('ADD without addresses, in a version whose results must have some, leaves no interface', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const { ipam: _, ...conf } = confOf(lab, { cniVersion: '0.2.0' }) as Row;
        const refused = await lab.plugin('macvlan', { command: 'ADD', conf, container });
        expect(refused).toMatchObject({ exitCode: 1, error: { code: 7, cniVersion: '0.2.0' } });
        expect(await deviceIn(lab, container)).toBeUndefined();
      });
    });

    test('ADD asks a silent link three times, and fewer once the gateway has answered', async () => {
      await withHost(async lab => {
        const outside = await lab.outside();
        await lab.nft(outside, 'add table arp watch');
        await lab.nft(outside, 'add chain arp watch in { type filter hook input priority 0; }');
        const probesFor = async (address: string, gateway: string): Promise<number> => {
          await lab.nft(outside, 'flush chain arp watch in');
          await lab.nft(
            outside,
            `add rule arp watch in arp saddr ip 0.0.0.0 arp daddr ip ${address} counter`,
          );
          const ranges = [[{ subnet: '10.201.0.0/24', rangeStart: address, gateway }]];
          const ipam = { type: 'host-local', ranges, dataDir: `${lab.tmp}/${gateway}` };
          expect((await add(lab, await lab.container(), { ...confOf(lab), ipam })).ips[0].address).toBe(
            `${address}/24`,
          );
          const rows = await lab.nft(outside, 'list chain arp watch in');
          const parts: Row[] = rows.flatMap(({ rule }) => rule?.expr ?? []);
          return parts.find(({ counter }) => counter)?.counter.packets;
        };
        expect(await probesFor('10.201.0.10', '10.201.0.99')).toBe(3);
        // The answer may come after the last question on a busy machine; then there is another container.
        let last = 10;
        await until(async () => (await probesFor(`10.201.0.${++last}`, '10.201.0.2')) < 3);
      });
    });

    test('ADD announces addresses, and detects duplicates of IPv6', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        await add(lab, container, confOf(lab));
        for (const [key, value] of [
          ['net/ipv4/conf/eth0/arp_notify', '1'],
          ['net/ipv6/conf/eth0/ndisc_notify', '1'],
          ['net/ipv6/conf/eth0/accept_dad', '1'],
        ] as const) {
          expect([key, await lab.sysctl(container, key)]).toEqual([key, value]);
        }
        const [link] = await lab.ip(container, 'addr', 'show', 'dev', 'eth0');
        expect(link?.addr_info.filter((one: Row) => one.nodad || one.tentative)).toEqual([]);
      });
    });

    test('ADD succeeds while the master has no carrier, and the container is reachable once it has', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const outside = await lab.outside();
        await lab.ip(outside, 'link', 'set', 'uplink', 'down');
        const { ips } = await add(lab, container, confOf(lab));
        const inside = async () =>
          (await lab.ip(container, 'addr', 'show', 'dev', 'eth0'))[0]?.addr_info ?? [];
        expect((await inside()).filter((one: Row) => one.tentative)).not.toEqual([]);
        await lab.ip(outside, 'link', 'set', 'uplink', 'up');
        await until(async () => !(await inside()).some((one: Row) => one.tentative));
        await lab.ip(outside, 'addr', 'add', '10.201.0.99/24', 'dev', 'uplink');
        await until(() => ping(lab, outside, ips[0].address.split('/')[0]));
      });
    });

    test('ADD fails and leaves nothing when another host has the IPv6 address', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const outside = await lab.outside();
        await lab.ip(outside, 'addr', 'add', 'fd00:201::10/64', 'dev', 'uplink', 'nodad');
        const reply = await lab.plugin('macvlan', { command: 'ADD', conf: confOf(lab), container });
        expect(reply.error?.msg).toContain('another host on the network has that address');
        expect(await deviceIn(lab, container)).toBeUndefined();
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test('the master is by default the interface of the default route', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab, { master: undefined });
        // Rules that lead packets to another table leave that of the main table what it is.
        await lab.ip(lab.host, 'route', 'add', 'default', 'dev', 'lo', 'table', '100');
        await lab.ip(lab.host, 'rule', 'add', 'table', '100');
        const result = await add(lab, container, conf);
        const [master] = await lab.ip(lab.host, 'link', 'show', 'dev', 'outside0');
        expect((await deviceIn(lab, container))?.link_index).toBe(master?.ifindex);
        // Neither CHECK nor DEL depends on that route.
        await lab.ip(lab.host, 'route', 'del', 'default');
        const check = await lab.plugin('macvlan', { command: 'CHECK', conf, container, prevResult: result });
        expect(check).toMatchObject({ exitCode: 0 });
        await del(lab, container, conf);
        await lab.ip(lab.host, '-6', 'route', 'del', 'default');
        const reply = await lab.plugin('macvlan', { command: 'ADD', conf, container });
        expect(reply.error).toMatchObject({ code: 7, msg: expect.stringContaining('no default route') });
      });
    });

    test.each(['bridge', 'private', 'vepa', 'passthru'])('mode %s', async mode => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        await lab.outside();
        const conf = confOf(lab, { mode, mtu: 1400, bcqueuelen: 2000, ipam: undefined });
        const prevResult = await add(lab, one, conf);
        expect(prevResult).toEqual({
          cniVersion: '1.1.0',
          interfaces: [{ name: 'eth0', mac: expect.any(String), sandbox: one.path, mtu: 1400 }],
        });
        expect(await deviceIn(lab, one)).toMatchObject({
          mtu: 1400,
          linkinfo: { info_data: { mode, bcqueuelen: 2000 } },
        });
        const check = { command: 'CHECK', conf, container: one, prevResult };
        expect(await lab.plugin('macvlan', check)).toMatchObject({ exitCode: 0 });
        if (mode !== 'passthru') return;
        const second = await lab.plugin('macvlan', { command: 'ADD', conf, container: two });
        expect(second.error).toMatchObject({ code: 7, msg: expect.stringContaining('"passthru"') });
      });
    });

    test('the hardware address is derived from the attachment, or requested', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab, { ipam: undefined });
        const macOf = async (call: object, more: object = {}): Promise<string> => {
          const result = await add(lab, container, { ...conf, ...call }, more);
          await del(lab, container, conf, more);
          return result.interfaces[0].mac;
        };
        const derived = await macOf({});
        expect(await macOf({})).toBe(derived);
        expect(await macOf({}, { container: { ...container, id: 'other' } })).not.toBe(derived);
        const mac = 'c2:11:22:33:44:55';
        const args = 'MAC=C2-11-22-33-44-66';
        expect(await macOf({ mac })).toBe(mac);
        expect(await macOf({ mac }, { args })).toBe('c2:11:22:33:44:66');
        const runtimeConfig = { mac: 'c2:11:22:33:44:77' };
        expect(await macOf({ mac, runtimeConfig }, { args })).toBe(runtimeConfig.mac);
        const bad = await lab.plugin('macvlan', {
          command: 'ADD',
          conf: { ...conf, mac: '01:00:5e:00:00:01' },
          container,
        });
        expect(bad.error).toMatchObject({ code: 7 });

        await add(lab, container, { ...conf, mac });
        const second = await lab.container();
        const twin = await lab.plugin('macvlan', {
          command: 'ADD',
          conf: { ...conf, mac },
          container: second,
        });
        expect(twin.error).toMatchObject({
          code: 7,
          msg: expect.stringContaining('another interface on the master has its hardware address'),
        });
        expect(await lab.ip(second, 'link', 'show', 'type', 'macvlan')).toEqual([]);
        await del(lab, container, conf);
      });
    });

    test('the interface exists when the IPAM plugin is called, and may come up there', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const type = ipamThat(lab, [
          'ip -n "$(basename "$CNI_NETNS")" link set "$CNI_IFNAME" up',
          `ip -n "$(basename "$CNI_NETNS")" -o link show > ${lab.tmp}/seen`,
          `echo '{"cniVersion":"1.1.0","ips":[{"address":"10.201.0.9/24"}]}'`,
        ]);
        const conf = confOf(lab, { ipam: { type } });
        await add(lab, container, conf, { cniPath: lab.tmp });
        expect(fs.readFileSync(`${lab.tmp}/seen`, 'utf8')).toContain('eth0@');
        expect(await ping(lab, container, '10.201.0.2')).toBe(true);
        const [entry] = await lab.ip(container, 'addr', 'show', 'dev', 'eth0');
        expect(entry?.addr_info).toContainEqual(expect.objectContaining({ local: '10.201.0.9' }));
      });
    });

    test('ADD removes the interface when the IPAM plugin fails or gives no address', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        for (const [lines, msg] of [
          [[`echo '{"code": 11, "msg": "no server answers"}'`, 'exit 1'], 'no server answers'],
          [[`echo '{"cniVersion":"1.1.0"}'`], 'returned no address'],
          [
            [
              `ip -n "$(basename "$CNI_NETNS")" link del "$CNI_IFNAME"`,
              `echo '{"cniVersion":"1.1.0","ips":[{"address":"10.201.0.9/24"}]}'`,
            ],
            'was deleted while the IPAM plugin worked',
          ],
        ] as const) {
          const conf = confOf(lab, { ipam: { type: ipamThat(lab, lines) } });
          const reply = await lab.plugin('macvlan', { command: 'ADD', conf, container, cniPath: lab.tmp });
          expect(reply.error?.msg).toContain(msg);
          expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
        }
      });
    });

    test.each([
      ["an MTU above the master's", { mtu: 9000 }, 'carries at most 1500'],
      ['a master that does not exist', { master: 'eth9' }, 'Cannot find master interface "eth9"'],
      ['a master that is not Ethernet', { master: 'lo' }, 'not an Ethernet device'],
    ])('ADD refuses %s', async (_, more, msg) => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const reply = await lab.plugin('macvlan', { command: 'ADD', conf: confOf(lab, more), container });
        expect(reply.error).toMatchObject({ code: 7, msg: expect.stringContaining(msg) });
        expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test('ADD refuses a master that is a port of a bridge, and names the bridge', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        await lab.ip(lab.host, 'link', 'add', 'br0', 'type', 'bridge');
        await lab.ip(lab.host, 'link', 'set', 'outside0', 'master', 'br0');
        const reply = await lab.plugin('macvlan', { command: 'ADD', conf: confOf(lab), container });
        expect(reply.error?.msg).toContain('it is a port of "br0"; use that as master');
      });
    });

    test('ADD works when the host has a device of the name, and refuses one that the container has', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        await lab.ip(lab.host, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'eth1');
        await add(lab, container, confOf(lab));
        const again = await lab.plugin('macvlan', { command: 'ADD', conf: confOf(lab), container });
        expect(again.error).toMatchObject({ code: 4, msg: expect.stringContaining('"eth0"') });
        expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo', 'eth0']);
      });
    });

    test('linkInContainer takes a master of the container', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.ip(container, 'link', 'add', 'net0', 'type', 'veth', 'peer', 'net9');
        for (const name of ['net0', 'net9']) await lab.ip(container, 'link', 'set', name, 'up');
        const conf = confOf(lab, { master: 'net0', linkInContainer: true });
        const prevResult = await add(lab, container, conf);
        expect(await deviceIn(lab, container)).toMatchObject({ link: 'net0' });
        const check = { command: 'CHECK', conf, container, prevResult };
        expect(await lab.plugin('macvlan', check)).toMatchObject({ exitCode: 0 });
        expect(await lab.plugin('macvlan', { command: 'STATUS', conf })).toMatchObject({ exitCode: 0 });
        await del(lab, container, conf);
        expect((await deviceIn(lab, container, 'net0'))?.ifname).toBe('net0');
      });
    });

    test('the master may be the interface that the plugin before made, and its result is kept', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab, { master: undefined, ipam: undefined });
        await lab.ip(lab.host, 'link', 'add', 'up0', 'type', 'veth', 'peer', 'up1');
        const prevResult = {
          cniVersion: '1.1.0',
          interfaces: [{ name: 'up0' }],
          ips: [{ address: '192.0.2.1/24', interface: 0 }],
        };
        const result = await add(lab, container, conf, { prevResult });
        expect(result.interfaces.map(({ name }: Row) => name)).toEqual(['up0', 'eth0']);
        expect(result.ips).toEqual(prevResult.ips);
        const [up0] = await lab.ip(lab.host, 'link', 'show', 'dev', 'up0');
        expect((await deviceIn(lab, container))?.link_index).toBe(up0?.ifindex);
      });
    });

    const DAMAGES: readonly [what: string, args: readonly string[], on: 'host' | 'container', msg: string][] =
      [
        [
          'mode',
          ['link', 'set', 'eth0', 'type', 'macvlan', 'mode', 'private'],
          'container',
          'mode of interface',
        ],
        ['MTU', ['link', 'set', 'eth0', 'mtu', '1300'], 'container', 'MTU of interface'],
        [
          'hardware address',
          ['link', 'set', 'eth0', 'address', 'c2:00:00:00:00:01'],
          'container',
          'hardware address',
        ],
        ['an address', ['addr', 'del', '10.201.0.10/24', 'dev', 'eth0'], 'container', 'addresses of "eth0"'],
        ['a route', ['route', 'del', 'default'], 'container', 'routes of "eth0"'],
        ['a route of another table', ['route', 'flush', 'table', '77'], 'container', 'table 77'],
        ['the state', ['link', 'set', 'eth0', 'down'], 'container', 'state of interface'],
        ["the master's state", ['link', 'set', 'outside0', 'down'], 'host', 'state of "outside0"'],
        ["the master's name", ['link', 'set', 'outside0', 'name', 'eth7'], 'host', 'master of "eth0"'],
      ];
    test.each(DAMAGES)('CHECK notices a change of %s', async (_, args, on, msg) => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab);
        const prevResult = await add(lab, container, conf);
        await lab.ip(on === 'host' ? lab.host : container, ...args);
        const reply = await lab.plugin('macvlan', { command: 'CHECK', conf, container, prevResult });
        expect(reply.error?.msg).toContain(msg);
      });
    });

    test('CHECK accepts a master that is configured by an alternative name', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        await lab.ip(lab.host, 'link', 'property', 'add', 'dev', 'outside0', 'altname', 'enp3s0');
        const conf = confOf(lab, { master: 'enp3s0' });
        const prevResult = await add(lab, container, conf);
        const check = { command: 'CHECK', conf, container, prevResult };
        expect(await lab.plugin('macvlan', check)).toMatchObject({ exitCode: 0 });
      });
    });

    test('CHECK notices that another host has taken the IPv6 address', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const outside = await lab.outside();
        const conf = confOf(lab);
        const prevResult = await add(lab, container, conf);
        await lab.ip(outside, 'addr', 'add', 'fd00:201::10/64', 'dev', 'uplink', 'nodad');
        for (const state of ['down', 'up']) await lab.ip(container, 'link', 'set', 'eth0', state);
        await until(async () => {
          const [row] = await lab.ip(container, 'addr', 'show', 'dev', 'eth0');
          return row?.addr_info.some((one: Row) => one.dadfailed);
        });
        const reply = await lab.plugin('macvlan', { command: 'CHECK', conf, container, prevResult });
        expect(reply.error?.msg).toContain('another host on the network has that address');
      });
    });

    test("CHECK accepts an MTU that followed the master's", async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab);
        const prevResult = await add(lab, container, conf);
        await lab.ip(lab.host, 'link', 'set', 'outside0', 'mtu', '1400');
        expect((await deviceIn(lab, container))?.mtu).toBe(1400);
        const check = { command: 'CHECK', conf, container, prevResult };
        expect(await lab.plugin('macvlan', check)).toMatchObject({ exitCode: 0 });
      });
    });

    test('repair restores hardware address, MTU, addresses, mode, state and routes', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab);
        const prevResult = await add(lab, container, conf);
        await lab.ip(container, 'link', 'set', 'eth0', 'type', 'macvlan', 'mode', 'private');
        await lab.ip(container, 'link', 'set', 'eth0', 'down', 'address', '02:00:00:00:bb:02', 'mtu', '1300');
        await lab.ip(container, 'route', 'flush', 'table', '77');
        await lab.ip(container, 'addr', 'flush', 'dev', 'eth0');
        const call = { command: 'CHECK', conf, container, prevResult };
        const repaired = await lab.plugin('macvlan', { ...call, env: { CATENA_REPAIR: '1' } });
        expect(repaired).toMatchObject({ exitCode: 0 });
        expect(await lab.plugin('macvlan', call)).toMatchObject({ exitCode: 0 });
      });
    });

    test.each(['10.201.0.9/24', 'fd00:201::9/64'])(
      'repair leaves %s to another host that has got it since',
      async address => {
        await withHost(async lab => {
          await lab.outside();
          const conf = confOf(lab, { ipam: { type: 'static', addresses: [{ address }] } });
          const [container, other] = [await lab.container(), await lab.container()];
          const prevResult = await add(lab, container, conf);
          await lab.ip(container, 'addr', 'del', address, 'dev', 'eth0');
          await add(lab, other, conf);
          const call = { command: 'CHECK', conf, container, prevResult };
          const repaired = await lab.plugin('macvlan', { ...call, env: { CATENA_REPAIR: '1' } });
          expect(repaired.error?.msg).toContain(address.split('/')[0]);
          expect(await lab.plugin('macvlan', call)).toMatchObject({ exitCode: 1 });
        });
      },
    );

    test('DEL needs neither master nor namespace nor valid options, and releases the address', async () => {
      await withHost(async lab => {
        await lab.outside();
        const conf = confOf(lab);
        const bad = { ...conf, master: 'a/b', mode: 'none', mtu: -7 };
        const [one, two] = [await lab.container(), await lab.container()];
        await add(lab, one, conf);
        await lab.remove(one);
        await del(lab, one, bad);
        await add(lab, two, conf);
        await lab.ip(lab.host, 'link', 'del', 'outside0');
        await del(lab, two, bad);
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test('DEL leaves an interface of another kind, and one of another container', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab);
        await lab.ip(container, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'eth1');
        const reply = await lab.plugin('macvlan', { command: 'DEL', conf, container });
        expect(reply).toMatchObject({ exitCode: 0, stderr: expect.stringContaining('of kind \\"veth\\"') });
        expect(await deviceIn(lab, container)).toBeDefined();
        await lab.ip(container, 'link', 'del', 'eth0');
        await add(lab, container, conf);
        await del(lab, { ...container, id: 'an-earlier-one' }, conf);
        expect(await deviceIn(lab, container)).toBeDefined();
      });
    });

    test('DEL finds the interface without its name and alias, beside another that has them', async () => {
      await withHost(async lab => {
        await lab.outside();
        const container = await lab.container();
        const prevResult = await add(lab, container, confOf(lab));
        const inside = (...args: string[]) => lab.ip(container, 'link', ...args);
        await inside('set', 'eth0', 'down');
        const [{ ifalias }] = (await inside('show', 'eth0')) as [Row];
        await inside('set', 'eth0', 'name', 'mine', 'alias', '');
        await inside('add', 'eth0', 'link', 'mine', 'type', 'macvlan');
        await inside('set', 'eth0', 'alias', ifalias);
        const call = { command: 'DEL', conf: confOf(lab), container, prevResult };
        expect(await lab.plugin('macvlan', call)).toMatchObject({ exitCode: 0 });
        expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
      });
    });

    test('DEL removes what an ADD left that was killed before the interface had its name', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const name = interimName({ network: 'podnet', containerId: container.id, ifname: 'eth0' });
        const upper = ['link', 'add', 'link', 'outside0', 'name', name, 'netns', container.name];
        await lab.ip(lab.host, ...upper, 'type', 'macvlan');
        expect(await deviceIn(lab, container, name)).toBeDefined();
        await del(lab, container, confOf(lab));
        expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
      });
    });

    test('STATUS examines the master and asks the IPAM plugin', async () => {
      await withHost(async lab => {
        await lab.outside();
        const ask = async (more: object) => {
          const reply = await lab.plugin('macvlan', { command: 'STATUS', conf: confOf(lab, more) });
          return reply.exitCode === 0 ? 'ready' : `${reply.error?.code}: ${reply.error?.msg}`;
        };
        expect(await ask({})).toBe('ready');
        expect(await ask({ mtu: 1501 })).toContain('50: Cannot attach containers: Cannot use "mtu" 1501');
        expect(await ask({ master: 'eth9' })).toContain('50: ');
        expect(await ask({ ipam: { type: 'host-local' } })).not.toBe('ready');
        await lab.ip(lab.host, 'link', 'set', 'outside0', 'down');
        expect(await ask({})).toContain('run: ip link set outside0 up');
        // CHECK would fail at once.
        const container = await lab.container();
        const refused = await lab.plugin('macvlan', { command: 'ADD', conf: confOf(lab), container });
        expect(refused.error).toMatchObject({ code: 11, msg: expect.stringContaining('outside0 up') });
        expect(await deviceIn(lab, container)).toBeUndefined();
      });
    });

    test('GC deletes interfaces and releases addresses that are not in the list, and keeps the rest', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        await lab.outside();
        await add(lab, one, confOf(lab));
        await add(lab, two, confOf(lab));
        const conf = confOf(lab, {
          'cni.dev/valid-attachments': [{ containerID: two.id, ifname: 'eth0' }],
        });
        expect(await lab.plugin('macvlan', { command: 'GC', conf })).toMatchObject({ exitCode: 0 });
        expect(await deviceIn(lab, one)).toBeUndefined();
        expect(await deviceIn(lab, two)).toBeDefined();
        expect(leasesOf(lab)).toEqual(['10.201.0.11', 'fd00:201::11']);
      });
    });

    test('DEL finds each of two interfaces whose names the container has exchanged', async () => {
      await withHost(async lab => {
        const [one] = [await lab.container(), await lab.outside()];
        const conf = confOf(lab, { ipam: { ...confOf(lab).ipam, routes: [] } });
        const results: Row = {};
        for (const ifname of ['net1', 'net2']) results[ifname] = await add(lab, one, conf, { ifname });
        for (const [from, to] of [
          ['net1', 'free'],
          ['net2', 'net1'],
          ['free', 'net2'],
        ] as const)
          await lab.batch(one, `link set ${from} down`, `link set ${from} name ${to}`, `link set ${to} up`);
        await del(lab, one, conf, { ifname: 'net1', prevResult: results.net1 });
        expect(await deviceIn(lab, one, 'net2')).toBeUndefined();
        expect(await deviceIn(lab, one, 'net1')).toMatchObject({ ifalias: `catena:podnet/${one.id}/net2` });
        expect(leasesOf(lab)).toHaveLength(2);
        await del(lab, one, conf, { ifname: 'net2', prevResult: results.net2 });
        expect((await lab.ip(one, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test('an alias that names another attachment costs a container its own interface only', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        await lab.outside();
        await add(lab, one, confOf(lab));
        await add(lab, two, confOf(lab));
        await lab.ip(one, 'link', 'set', 'eth0', 'alias', 'catena:podnet/gone/eth0');
        const valid = [one, two].map(({ id }) => ({ containerID: id, ifname: 'eth0' }));
        const conf = confOf(lab, { 'cni.dev/valid-attachments': valid });
        expect(await lab.plugin('macvlan', { command: 'GC', conf })).toMatchObject({ exitCode: 0 });
        expect(await deviceIn(lab, two)).toBeDefined();
        expect(leasesOf(lab).length).toBe(4);
        await del(lab, one, confOf(lab));
        expect(leasesOf(lab).length).toBe(2);
      });
    });
  },
  NEEDED,
);

/** Writes an IPAM plugin of a few shell commands for ADD. @returns its type */
function ipamThat(lab: Lab, lines: readonly string[]): string {
  const body = ['#!/bin/sh', 'cat > /dev/null', '[ "$CNI_COMMAND" = ADD ] || exit 0', ...lines];
  fs.writeFileSync(`${lab.tmp}/scripted`, `${body.join('\n')}\n`, { mode: 0o755 });
  return 'scripted';
}

describeRoot(
  'macvlan and the reference',
  () => {
    test.each([
      ['theirs, ours', REFERENCE_BIN_DIR, undefined],
      ['ours, theirs', undefined, REFERENCE_BIN_DIR],
    ] as const)('CHECK and DEL work on an attachment of the other: %s', async (_, adds, others) => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab, { cniVersion: '1.0.0' });
        // The reference looks for routes in the main table only.
        conf.ipam.routes.pop();
        const by = (binDir: string | undefined) => (binDir ? { binDir } : {});
        const prevResult = await add(lab, container, conf, by(adds));
        const check = { command: 'CHECK', conf, container, prevResult };
        expect(await lab.plugin('macvlan', { ...check, ...by(others) })).toMatchObject({ exitCode: 0 });
        await del(lab, container, conf, { prevResult, ...by(others) });
        expect(await deviceIn(lab, container)).toBeUndefined();
        expect(leasesOf(lab)).toEqual([]);
      });
    });
  },
  NEEDED,
  requiresReference('macvlan', 'host-local'),
);
