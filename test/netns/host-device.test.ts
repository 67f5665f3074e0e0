// Does host-device move a device into a container and bring it home as it was, whatever has happened to it?
import { dlopen, FFIType, ptr } from 'bun:ffi';
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { linkSettingRequest } from '../../src/netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import {
  type Container,
  type Lab,
  type Namespace,
  type Row,
  untilLocal,
  withHost,
} from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference, testNeeding } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { ping } from '../helpers/traffic.ts';

// The kernel moves hardware to the initial namespace when its namespace ends, and deletes everything else. A fake host is not the
// initial namespace, and has no hardware. So tests move a veth home by hand, under the names that the kernel would use, and where
// hardware is treated differently they change the record accordingly.

const MAC = '02:00:00:00:aa:01';

function confOf(lab: Lab, more: Row = {}): Row {
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    type: 'host-device',
    device: 'up0',
    ipam: {
      type: 'host-local',
      ranges: [[{ subnet: '10.66.0.0/24', rangeStart: '10.66.0.5' }], [{ subnet: 'fd66::/64' }]],
      routes: [
        { dst: '0.0.0.0/0', gw: '10.66.0.1' },
        { dst: '192.0.2.0/24', gw: '10.66.0.1', table: 77 },
      ],
      dataDir: `${lab.tmp}/leases`,
    },
    ...more,
  };
}

/** A device `up0` of the host with everything that can be lost; its other end is in a namespace of its own, or given, with 10.66.0.1. */
async function withDevice(lab: Lab, at?: Namespace): Promise<Namespace> {
  const outside = at ?? (await lab.container());
  const ip = (...args: string[]) => lab.ip(lab.host, ...args);
  await ip('link', 'add', 'up0', 'address', MAC, 'type', 'veth', 'peer', 'far0');
  if (outside !== lab.host) await ip('link', 'set', 'far0', 'netns', outside.name);
  await ip('link', 'set', 'up0', 'mtu', '1400', 'txqueuelen', '500', 'alias', 'rack 7, port 3');
  await ip('link', 'property', 'add', 'dev', 'up0', 'altname', 'enp3s0np1');
  await ip('addr', 'add', '192.0.2.7/24', 'dev', 'up0', 'label', 'up0:a');
  await ip('addr', 'add', '2001:db8::7/64', 'dev', 'up0', 'nodad');
  await ip('link', 'set', 'up0', 'up');
  await ip('route', 'add', '198.51.100.0/24', 'via', '192.0.2.1', 'metric', '7');
  await ip('route', 'add', '203.0.113.0/24', 'via', '192.0.2.9', 'table', '100');
  await ip('-6', 'route', 'add', '2001:db8:1::/48', 'via', '2001:db8::1');
  await ip('rule', 'add', 'from', '192.0.2.7', 'lookup', '100', 'priority', '500');
  for (const args of [
    ['addr', 'add', '10.66.0.1/24', 'dev', 'far0'],
    ['addr', 'add', 'fd66::1/64', 'dev', 'far0', 'nodad'],
    ['link', 'set', 'far0', 'up'],
  ]) {
    await lab.ip(outside, ...args);
  }
  await untilLocal(lab.host, '2001:db8::7');
  return outside;
}

/** Everything about the host that a container could have changed. */
async function stateOf(lab: Lab): Promise<unknown> {
  const [link] = await lab.ip(lab.host, 'link', 'show', 'up0');
  const { ifname, address, mtu, txqlen, ifalias, altnames, flags } = link ?? {};
  const addresses = await lab.ip(lab.host, 'addr', 'show', 'dev', 'up0');
  const routes = async (family: string) => {
    const rows = await lab.ip(lab.host, family, 'route', 'show', 'table', 'all', 'dev', 'up0');
    const texts = rows.map(row => JSON.stringify({ ...row, flags: undefined }));
    // The kernel makes its own routes of IPv6 a moment after the address.
    return texts.filter(text => !/"dst":"f[ef]|"type":"local","dst":"2/.test(text)).sort();
  };
  return {
    link: { ifname, address, mtu, txqlen, ifalias, altnames, up: flags?.includes('UP') },
    addresses: addresses[0]?.addr_info.flatMap(({ local, prefixlen, scope, label, broadcast }: Row) => {
      // The kernel's own address comes a moment after the carrier.
      return scope === 'link' ? [] : { local, prefixlen, scope, label, broadcast };
    }),
    routes: [...(await routes('-4')), ...(await routes('-6'))],
    records: recordsOf(lab),
    leases: leasesOf(lab),
  };
}

/** What a container can switch, and what is lost when a device is moved. */
async function flagsOf(lab: Lab): Promise<unknown> {
  const [link] = await lab.ip(lab.host, 'link', 'show', 'up0');
  const { flags, group, gso_max_size, inet6_addr_gen_mode, promiscuity, allmulti } = link ?? {};
  return { flags, group, gso_max_size, inet6_addr_gen_mode, promiscuity, allmulti };
}

function recordsOf(lab: Lab): string[] {
  const dir = `${lab.tmp}/run/host-device`;
  return fs.existsSync(dir) ? fs.readdirSync(dir) : [];
}

function leasesOf(lab: Lab): string[] {
  const dir = `${lab.tmp}/leases/podnet`;
  return fs.existsSync(dir)
    ? fs
        .readdirSync(dir)
        .filter(name => /^(10|fd)/.test(name))
        .sort()
    : [];
}

function call(lab: Lab, command: string, container: Container, more: Row = {}) {
  const { conf = confOf(lab), ...others } = more;
  return lab.plugin('host-device', { command, conf, container, ...others });
}

async function add(lab: Lab, container: Container, more: Row = {}): Promise<Row> {
  const reply = await call(lab, 'ADD', container, more);
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

const OK = { exitCode: 0, stdout: '' };

/** What the kernel does with hardware when its namespace ends. */
async function endNamespace(lab: Lab, container: Container, name: string): Promise<void> {
  await lab.ip(container, 'link', 'set', 'eth0', 'down');
  await lab.ip(container, 'link', 'set', 'eth0', 'name', name);
  await lab.ip(container, 'link', 'set', name, 'netns', lab.host.path);
  await lab.remove(container);
}

function recordOf(lab: Lab, container: Container): { path: string; record: Row } {
  const path = `${lab.tmp}/run/host-device/${container.id}_eth0.json`;
  return { path, record: JSON.parse(fs.readFileSync(path, 'utf8')) };
}

/** A program that passes every packet: `r0 = XDP_PASS; exit`. @returns its descriptor */
function loadXdpProgram(): number {
  const instructions = new Uint8Array([0xb7, 0, 0, 0, 2, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]);
  const license = new TextEncoder().encode('GPL\0');
  // linux/bpf.h: union bpf_attr of BPF_PROG_LOAD, BPF_PROG_TYPE_XDP
  const attr = new BigUint64Array(16);
  new Uint32Array(attr.buffer).set([6, 2]);
  attr.set([BigInt(ptr(instructions)), BigInt(ptr(license))], 1);
  const { i64 } = FFIType;
  const { symbols } = dlopen('libc.so.6', { syscall: { args: [i64, i64, i64, i64], returns: i64 } });
  const number = process.arch === 'x64' ? 321n : 280n;
  return Number(symbols.syscall(number, 5n, BigInt(ptr(attr)), BigInt(attr.byteLength)));
}

describeRoot('host-device', () => {
  test('ADD moves the device into the container; DEL returns it as it was', async () => {
    const cniVersion = LATEST_SPEC_VERSION;
    await withHost(async lab => {
      const outside = await withDevice(lab);
      const container = await lab.container();
      const conf = confOf(lab);
      const before = await stateOf(lab);
      const result = await add(lab, container, { conf });
      expect(result).toEqual({
        cniVersion,
        interfaces: [{ name: 'eth0', mac: MAC, mtu: 1400, sandbox: container.path }],
        ips: [
          { address: '10.66.0.5/24', gateway: '10.66.0.1', interface: 0 },
          { address: 'fd66::2/64', gateway: 'fd66::1', interface: 0 },
        ],
        routes: [
          { dst: '0.0.0.0/0', gw: '10.66.0.1' },
          { dst: '192.0.2.0/24', gw: '10.66.0.1', table: 77 },
        ],
      });
      expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toEqual([]);
      const [link] = await lab.ip(container, 'link', 'show', 'eth0');
      expect(link).toMatchObject({ ifalias: 'up0', address: MAC, mtu: 1400, operstate: 'UP' });
      for (const address of ['10.66.0.1', 'fd66::1']) expect(await ping(lab, container, address)).toBe(true);
      expect(await ping(lab, outside, '10.66.0.5')).toBe(true);
      expect(await call(lab, 'CHECK', container, { conf, prevResult: result })).toMatchObject(OK);
      expect(await lab.plugin('host-device', { command: 'STATUS', conf })).toMatchObject(OK);
      for (const _ of [1, 2]) expect(await call(lab, 'DEL', container, { conf })).toMatchObject(OK);
      expect(await stateOf(lab)).toEqual(before);
    });
  });

  test('[1.1.0] ADD finds the device by its hardware address, and without IPAM only brings it up', async () => {
    await withHost(async lab => {
      // Its port gives it the address.
      await lab.ip(lab.host, 'link', 'add', 'br0', 'type', 'bridge');
      await withDevice(lab);
      await lab.ip(lab.host, 'link', 'set', 'up0', 'master', 'br0');
      const container = await lab.container();
      const { device: _, ipam: __, ...rest } = confOf(lab);
      const conf = { ...rest, hwaddr: MAC.toUpperCase() };
      expect(await add(lab, container, { conf })).toEqual({
        cniVersion: '1.1.0',
        interfaces: [{ name: 'eth0', mac: MAC, mtu: 1400, sandbox: container.path }],
      });
      const [link] = await lab.ip(container, 'addr', 'show', 'eth0');
      expect(link).toMatchObject({ operstate: 'UP', addr_info: [{ scope: 'link' }] });
      expect(await call(lab, 'DEL', container, { conf })).toMatchObject(OK);
    });
  });

  test('[1.1.0] DEL returns a device that the container has renamed, readdressed and reconfigured', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const container = await lab.container();
      const before = await stateOf(lab);
      await add(lab, container);
      await lab.ip(container, 'link', 'set', 'eth0', 'down');
      await lab.ip(
        container,
        'link',
        'set',
        'eth0',
        'name',
        'mine',
        'address',
        '02:00:00:00:bb:02',
        'mtu',
        '1300',
      );
      // The names that the device has on the host, and that it had, are taken in the container.
      await lab.ip(container, 'link', 'add', 'up0', 'type', 'veth', 'peer', 'eth0');
      expect(await call(lab, 'DEL', container)).toMatchObject(OK);
      expect(await stateOf(lab)).toEqual(before);
    });
  });

  test('[1.1.0] DEL needs neither a device in the configuration nor the path of the namespace', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const container = await lab.container();
      const before = await stateOf(lab);
      const { device: _, ...conf } = confOf(lab, { kernelpath: 'broken' });
      await add(lab, container);
      expect(await call(lab, 'DEL', { ...container, path: '' }, { conf })).toMatchObject(OK);
      expect(await stateOf(lab)).toEqual(before);
    });
  });

  test('[1.1.0] DEL returns a device that has no record, if only the host can have made it', async () => {
    await withHost(async lab => {
      await withDevice(lab, lab.host);
      const container = await lab.container();
      const result = await add(lab, container);
      fs.writeFileSync(recordOf(lab, container).path, '{ truncated');
      await lab.ip(container, 'link', 'set', 'eth0', 'down');
      await lab.ip(container, 'link', 'set', 'eth0', 'name', 'mine');
      expect(await call(lab, 'DEL', container, { prevResult: result })).toMatchObject(OK);
      const [link] = await lab.ip(lab.host, 'link', 'show', 'up0');
      expect(link).toMatchObject({ ifname: 'up0', operstate: 'DOWN' });
      expect(link?.ifalias).toBeUndefined();
      expect([recordsOf(lab), leasesOf(lab)]).toEqual([[], []]);
    });
  });

  test('[1.1.0] DEL moves nothing to the host that the container made, whatever it looks like', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const [container, hidden] = [await lab.container(), await lab.container()];
      await add(lab, container);
      const before = await lab.ip(lab.host, 'link');
      const [{ ifindex }] = (await lab.ip(container, 'link', 'show', 'eth0')) as [Row];
      const inside = (...args: string[]) => lab.ip(container, ...args);
      await inside('link', 'set', 'eth0', 'netns', hidden.name);
      // All that a container can choose: kind, index, name, address and alias. The other end is the attacker's.
      const sign = ['name', 'eth0', 'index', String(ifindex), 'address', MAC];
      await inside('link', 'add', ...sign, 'type', 'veth', 'peer', 'tail', 'netns', hidden.name);
      for (const alias of ['up0', 'cni0']) {
        await inside('link', 'set', 'eth0', 'alias', alias, 'up');
        // A second DEL has no record: the alias proves nothing.
        const del = await call(lab, 'DEL', container);
        expect(del).toMatchObject(OK);
        expect(del.stderr).toMatch(/does not come back|stays in the container/);
        expect(await lab.ip(lab.host, 'link')).toEqual(before);
      }
      expect((await inside('link', 'show', 'eth0'))[0]).toMatchObject({ ifalias: 'cni0' });
      expect([recordsOf(lab), leasesOf(lab)]).toEqual([[], []]);
    });
  });

  test('[1.1.0] DEL finds the device among others of its kind on the same lower device', async () => {
    await withHost(async lab => {
      const ip = (...args: string[]) => lab.ip(lab.host, ...args);
      await ip('link', 'add', 'low0', 'up', 'type', 'veth', 'peer', 'low1');
      await ip('link', 'add', 'up0', 'link', 'low0', 'type', 'macvlan', 'mode', 'bridge');
      await ip('addr', 'add', '192.0.2.7/24', 'dev', 'up0');
      const container = await lab.container();
      const [{ address }] = (await ip('link', 'show', 'up0')) as [Row];
      await add(lab, container);
      const inside = (...args: string[]) => lab.ip(container, ...args);
      const [{ ifindex, link_index }] = (await inside('link', 'show', 'eth0')) as [Row];
      // The kernel makes a macvlan on a macvlan directly on the device of the host.
      await inside('link', 'add', 'twin', 'link', 'eth0', 'type', 'macvlan', 'mode', 'bridge');
      await inside('link', 'set', 'eth0', 'down');
      await inside('link', 'set', 'eth0', 'name', 'other', 'alias', '');
      await inside('link', 'set', 'twin', 'name', 'eth0', 'alias', 'up0');
      const [twin] = (await inside('link', 'show', 'eth0')) as [Row];
      expect(twin).toMatchObject({ link_index });
      expect(await call(lab, 'DEL', container)).toMatchObject(OK);
      expect(await ip('addr', 'show', 'up0')).toMatchObject([
        { ifindex, address, addr_info: [{ local: '192.0.2.7' }] },
      ]);
    });
  });

  test('[1.1.0] DEL restores every kind of address, route and setting, also of a device that lost its alias', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const ip = (...args: string[]) => lab.ip(lab.host, ...args);
      for (const args of [
        ['link', 'set', 'up0', 'group', '7', 'arp', 'on', 'multicast', 'on', 'gso_max_size', '40000'],
        ['link', 'set', 'up0', 'addrgenmode', 'none'],
        ['addr', 'add', '10.1.1.5', 'peer', '10.1.1.1/32', 'dev', 'up0'],
        ['addr', 'add', '10.2.2.5/24', 'metric', '777', 'dev', 'up0'],
        ['addr', 'add', '10.3.3.5/24', 'noprefixroute', 'dev', 'up0'],
        ['addr', 'add', 'fe80::5/64', 'nodad', 'dev', 'up0'],
        ['addr', 'add', '2001:db8:2::5', 'peer', '2001:db8:2::1/128', 'nodad', 'dev', 'up0'],
        ['route', 'add', 'default', 'via', '172.31.1.1', 'dev', 'up0', 'onlink'],
        ['route', 'add', '10.50.0.0/16', 'via', 'inet6', 'fe80::1', 'dev', 'up0'],
        // The kernel lists the gateway's own route after the one that needs it.
        ['route', 'add', '10.77.0.1', 'dev', 'up0'],
        ['route', 'add', '10.55.0.0/16', 'via', '10.77.0.1'],
        [
          'route',
          'add',
          '10.51.0.0/16',
          'via',
          '10.1.1.1',
          'initcwnd',
          '20',
          'mtu',
          '1300',
          'src',
          '10.2.2.5',
        ],
        ['route', 'add', '10.52.0.0/16', 'tos', '0x10', 'via', '10.1.1.1', 'proto', 'static'],
        [
          'route',
          'add',
          '10.53.0.0/16',
          'nexthop',
          'via',
          '10.1.1.1',
          'weight',
          '3',
          'nexthop',
          'via',
          '10.2.2.1',
        ],
        ['route', 'add', '10.54.0.0/16', 'dev', 'lo', 'src', '10.2.2.5'],
        ['route', 'append', '10.52.0.0/16', 'tos', '0x10', 'via', '10.2.2.1', 'proto', 'static'],
        [
          '-6',
          'route',
          'add',
          '2001:db8:5::/48',
          'via',
          '2001:db8:9::1',
          'dev',
          'up0',
          'onlink',
          'src',
          '2001:db8::7',
        ],
        [
          '-6',
          'route',
          'add',
          '2001:db8:6::/48',
          'via',
          'fe80::1',
          'dev',
          'up0',
          'metric',
          '9',
          'pref',
          'high',
        ],
      ]) {
        await ip(...args);
      }
      const container = await lab.container();
      const [flags, before, lo] = [
        await flagsOf(lab),
        await stateOf(lab),
        await ip('route', 'show', 'dev', 'lo'),
      ];
      await add(lab, container);
      const inside = (...args: string[]) => lab.ip(container, ...args);
      const off = ['arp', 'off', 'multicast', 'off', 'promisc', 'on', 'allmulticast', 'on', 'group', '42'];
      await inside('link', 'set', 'eth0', ...off, 'gso_max_size', '3000', 'alias', '');
      const del = await call(lab, 'DEL', container);
      expect(del).toMatchObject(OK);
      expect(del.stderr).not.toContain('is back, but');
      expect(await stateOf(lab)).toEqual(before);
      expect(await flagsOf(lab)).toEqual(flags);
      expect(await ip('route', 'show', 'dev', 'lo')).toEqual(lo);
    });
  });

  test('[1.1.0] no program of the container runs for the packets of a device that is home', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const container = await lab.container();
      await add(lab, container);
      const netns = openNetns(container.path);
      const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
      const program = loadXdpProgram();
      const [{ ifindex }] = (await lab.ip(container, 'link', 'show', 'eth0')) as [Row];
      // IFLA_XDP of IFLA_XDP_FD
      const bytes = Buffer.from([8, 0, 1, 0, ...Buffer.from(new Int32Array([program]).buffer)]);
      socket.request(linkSettingRequest(ifindex, { type: 43, bytes }));
      for (const close of [() => socket.close(), () => closeNetns(netns), () => fs.closeSync(program)])
        close();
      expect((await lab.ip(container, 'link', 'show', 'eth0'))[0]?.xdp).toBeDefined();
      expect(await call(lab, 'DEL', container)).toMatchObject(OK);
      expect((await lab.ip(lab.host, 'link', 'show', 'up0'))[0]?.xdp).toBeUndefined();
    });
  });

  test('[1.1.0] useInterfaceNetwork takes along what a result has no word for', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const ip = (...args: string[]) => lab.ip(lab.host, ...args);
      await ip('route', 'add', 'default', 'via', '172.31.1.1', 'dev', 'up0', 'onlink', 'initcwnd', '20');
      await ip('route', 'add', '10.50.0.0/16', 'via', 'inet6', 'fe80::1', 'dev', 'up0');
      await ip('addr', 'add', '10.1.1.5', 'peer', '10.1.1.1/32', 'dev', 'up0');
      const container = await lab.container();
      const before = await stateOf(lab);
      const { ipam: _, ...rest } = confOf(lab);
      const conf = { ...rest, useInterfaceNetwork: true };
      const prevResult = await add(lab, container, { conf });
      expect(await lab.ip(container, 'route')).toEqual(
        expect.arrayContaining([
          expect.objectContaining({ dst: 'default', gateway: '172.31.1.1', flags: ['onlink'] }),
          expect.objectContaining({ dst: '10.50.0.0/16', via: { family: 'inet6', host: 'fe80::1' } }),
          expect.objectContaining({ dst: '10.1.1.1' }),
        ]),
      );
      await lab.ip(container, 'route', 'del', 'default');
      expect((await call(lab, 'CHECK', container, { conf, prevResult })).error?.msg).toContain('routes of');
      const repaired = await call(lab, 'CHECK', container, { conf, prevResult, env: { CATENA_REPAIR: '1' } });
      expect(repaired).toMatchObject(OK);
      expect(await call(lab, 'DEL', container, { conf })).toMatchObject(OK);
      expect(await stateOf(lab)).toEqual(before);
    });
  });

  test('[1.1.0] DEL leaves an interface alone that is not a device of the host', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await lab.ip(container, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'other');
      const before = await lab.dump(container);
      const reply = await call(lab, 'DEL', container);
      expect(reply).toMatchObject(OK);
      expect(reply.stderr).toContain('stays in the container');
      expect(await lab.dump(container)).toEqual(before);
    });
  });

  test('[1.1.0] DEL of a device that was deleted with its namespace releases the addresses', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const container = await lab.container();
      await add(lab, container);
      await lab.remove(container);
      expect(leasesOf(lab)).toEqual(['10.66.0.5', 'fd66::2']);
      expect(await call(lab, 'DEL', container)).toMatchObject(OK);
      expect([recordsOf(lab), leasesOf(lab)]).toEqual([[], []]);
    });
  });

  test.each(['dev7', 'eth0', 'up0'])(
    '[1.1.0] DEL restores a device that came home as "%s" when its namespace ended',
    async name => {
      await withHost(async lab => {
        await withDevice(lab);
        const container = await lab.container();
        const before = await stateOf(lab);
        await add(lab, container);
        await endNamespace(lab, container, name);
        expect(await call(lab, 'DEL', container)).toMatchObject(OK);
        expect(await stateOf(lab)).toEqual(before);
      });
    },
  );

  test('[1.1.0] DEL waits for hardware that the kernel has not yet brought home', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const container = await lab.container();
      const before = await stateOf(lab);
      await add(lab, container);
      const { path, record } = recordOf(lab, container);
      fs.writeFileSync(path, JSON.stringify({ ...record, kind: '', netns: { path: '/nonexistent' } }));
      const del = call(lab, 'DEL', { ...container, path: '/nonexistent' });
      await Bun.sleep(500);
      await endNamespace(lab, container, 'dev7');
      expect(await del).toMatchObject(OK);
      expect(await stateOf(lab)).toEqual(before);
    });
  });

  test('[1.1.0] DEL keeps the record of hardware that is nowhere; the next ADD finds it under another name', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const [one, two] = [await lab.container(), await lab.container()];
      const before = await stateOf(lab);
      await add(lab, one);
      const { path, record } = recordOf(lab, one);
      fs.writeFileSync(path, JSON.stringify({ ...record, kind: '', netns: { path: '/nonexistent' } }));
      const del = await call(lab, 'DEL', { ...one, path: '/nonexistent' });
      expect(del).toMatchObject(OK);
      expect(del.stderr).toContain('neither in \\"/nonexistent\\" nor on the host');
      expect(recordsOf(lab)).toHaveLength(1);
      await endNamespace(lab, one, 'dev7');
      expect((await add(lab, two)).interfaces).toMatchObject([{ name: 'eth0', mac: MAC, mtu: 1400 }]);
      expect(recordsOf(lab)).toEqual([`${two.id}_eth0.json`]);
      expect(await call(lab, 'DEL', two)).toMatchObject(OK);
      expect(await stateOf(lab)).toEqual(before);
    });
  });

  test('[1.1.0] a late DEL does not take the device from the container that has it now', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const [one, two] = [await lab.container(), await lab.container()];
      const before = await stateOf(lab);
      await add(lab, one);
      const { path, record } = recordOf(lab, one);
      await endNamespace(lab, one, 'eth0');
      const result = await add(lab, two);
      // Even if its record were still there, and its path were that of the other's namespace.
      for (const left of [false, true]) {
        if (left)
          fs.writeFileSync(path, JSON.stringify({ ...record, netns: { ...record.netns, path: two.path } }));
        const late = await call(lab, 'DEL', { ...one, path: two.path });
        expect(late).toMatchObject(OK);
        expect(await call(lab, 'CHECK', two, { prevResult: result })).toMatchObject(OK);
      }
      expect(await call(lab, 'DEL', two)).toMatchObject(OK);
      expect(await stateOf(lab)).toEqual(before);
    });
  });

  test('[1.1.0] DEL fails while the host has another interface of that name, and succeeds later', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const container = await lab.container();
      const before = await stateOf(lab);
      const result = await add(lab, container);
      await lab.ip(lab.host, 'link', 'add', 'up0', 'type', 'veth', 'peer', 'up1');
      const refused = await call(lab, 'DEL', container);
      expect(refused.error).toMatchObject({ code: 11, msg: expect.stringContaining('"up0"') });
      const [link] = await lab.ip(container, 'link', 'show', 'eth0');
      expect(link).toMatchObject({ address: MAC, ifalias: 'up0', operstate: 'UP' });
      await lab.ip(lab.host, 'link', 'delete', 'up0');
      expect(await call(lab, 'DEL', container, { prevResult: result })).toMatchObject(OK);
      expect(await stateOf(lab)).toEqual(before);
    });
  });

  test('[1.1.0] GC returns devices of attachments that are not in the list, wherever they are', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const gc = (valid: Container[], name = 'podnet') => {
        const list = valid.map(({ id }) => ({ containerID: id, ifname: 'eth0' }));
        const conf = { ...confOf(lab), name, 'cni.dev/valid-attachments': list };
        return lab.plugin('host-device', { command: 'GC', conf });
      };
      const before = await stateOf(lab);
      for (const home of [undefined, 'dev7']) {
        const container = await lab.container();
        await add(lab, container);
        expect(await gc([container])).toMatchObject(OK);
        expect(await gc([], 'another')).toMatchObject(OK);
        expect(recordsOf(lab)).toEqual([`${container.id}_eth0.json`]);
        if (home) await endNamespace(lab, container, home);
        expect(await gc([])).toMatchObject(OK);
        expect(await stateOf(lab)).toEqual(before);
      }
    });
  });

  test('[1.1.0] useInterfaceNetwork takes addresses, routes and source rules along', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const container = await lab.container();
      const before = await stateOf(lab);
      const rules = await lab.ip(lab.host, 'rule');
      const conf = confOf(lab, { useInterfaceNetwork: true });
      const result = await add(lab, container, { conf });
      expect(structuredClone(result)).toMatchObject({
        ips: [
          { address: '192.0.2.7/24', interface: 0 },
          { address: '2001:db8::7/64', interface: 0 },
          { address: '10.66.0.5/24', interface: 0 },
          { address: 'fd66::2/64', interface: 0 },
        ],
        routes: expect.arrayContaining([
          { dst: '198.51.100.0/24', gw: '192.0.2.1', priority: 7 },
          { dst: '203.0.113.0/24', gw: '192.0.2.9', table: 100 },
          { dst: '0.0.0.0/0', gw: '10.66.0.1' },
        ]),
      });
      const rows = await lab.ip(container, 'route', 'show', 'table', '100');
      expect(rows).toMatchObject([{ dst: '203.0.113.0/24', gateway: '192.0.2.9', dev: 'eth0' }]);
      expect(await lab.ip(container, 'rule')).toContainEqual(
        expect.objectContaining({ priority: 500, src: '192.0.2.7', table: '100' }),
      );
      expect(await call(lab, 'CHECK', container, { conf, prevResult: result })).toMatchObject(OK);
      await lab.ip(container, 'rule', 'del', 'priority', '500');
      expect((await call(lab, 'CHECK', container, { conf, prevResult: result })).error?.msg).toContain(
        'rules of',
      );
      const repaired = { conf, prevResult: result, env: { CATENA_REPAIR: '1' } };
      expect(await call(lab, 'CHECK', container, repaired)).toMatchObject(OK);
      expect(await call(lab, 'DEL', container, { conf })).toMatchObject(OK);
      expect(await stateOf(lab)).toEqual(before);
      expect(await lab.ip(lab.host, 'rule')).toEqual(rules);
      expect((await lab.ip(container, 'rule')).some(({ priority }) => priority === 500)).toBe(false);
    });
  });

  test('[1.1.0] CHECK names what has changed, and repair restores it', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const container = await lab.container();
      const prevResult = await add(lab, container);
      const changes: [string[], string][] = [
        [['route', 'del', '192.0.2.0/24', 'table', '77'], 'routes of "eth0"'],
        [['link', 'set', 'eth0', 'alias', 'mine'], 'alias of interface "eth0"'],
        [['link', 'set', 'eth0', 'down'], 'state of interface "eth0"'],
        [['link', 'set', 'eth0', 'mtu', '1300'], 'MTU of interface "eth0"'],
        [['link', 'set', 'eth0', 'address', '02:00:00:00:bb:02'], 'hardware address'],
        [['addr', 'del', '10.66.0.5/24', 'dev', 'eth0'], 'addresses of "eth0"'],
      ];
      for (const [args, words] of changes) {
        await lab.ip(container, ...args);
        const check = await call(lab, 'CHECK', container, { prevResult });
        expect(check.error?.msg).toContain(words);
        const repaired = await call(lab, 'CHECK', container, { prevResult, env: { CATENA_REPAIR: '1' } });
        expect(repaired).toMatchObject(OK);
      }
      expect(await call(lab, 'DEL', container)).toMatchObject(OK);
    });
  });

  test('[1.1.0] STATUS fails without the device, and not because a container has it', async () => {
    await withHost(async lab => {
      const status = (conf = confOf(lab)) => lab.plugin('host-device', { command: 'STATUS', conf });
      expect((await status()).error).toMatchObject({ code: 50, msg: expect.stringContaining('"up0"') });
      await withDevice(lab);
      expect(await status()).toMatchObject(OK);
      await add(lab, await lab.container());
      expect(await status()).toMatchObject(OK);
      const byAltName = confOf(lab, { device: 'enp3s0np1' });
      expect(await status(byAltName)).toMatchObject(OK);
      const next = await call(lab, 'ADD', await lab.container(), { conf: byAltName });
      expect(next.error).toMatchObject({ code: 11, msg: expect.stringContaining('"up0"') });
      const { device: _, ...conf } = confOf(lab, { capabilities: { deviceID: true } });
      expect(await status(conf)).toMatchObject(OK);
    });
  });

  test('[1.1.0] ADD says which container has the device, and of two at once one gets it', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const containers = [await lab.container(), await lab.container(), await lab.container()];
      const replies = await Promise.all(containers.map(container => call(lab, 'ADD', container)));
      expect(replies.filter(({ exitCode }) => exitCode === 0)).toHaveLength(1);
      const holder = containers[replies.findIndex(({ exitCode }) => exitCode === 0)] as Container;
      const next = await call(lab, 'ADD', await lab.container());
      expect(next.error).toMatchObject({ code: 11, msg: expect.stringContaining(holder.id) });
      expect(recordsOf(lab)).toEqual([`${holder.id}_eth0.json`]);
      expect(leasesOf(lab)).toEqual(['10.66.0.5', 'fd66::2']);
      expect(await call(lab, 'DEL', holder)).toMatchObject(OK);
    });
  });

  test('[1.1.0] ADD moves the device whatever the configuration says of DPDK: its driver decides', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const container = await lab.container();
      const before = await stateOf(lab);
      const conf = confOf(lab, { dpdkMode: true, DPDKMode: true });
      await add(lab, container, { conf });
      expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toContain('eth0');
      expect(await call(lab, 'DEL', container, { conf })).toMatchObject(OK);
      expect(await stateOf(lab)).toEqual(before);
    });
  });

  test('[1.1.0] ADD refuses what it cannot move, and changes nothing', async () => {
    await withHost(async lab => {
      await withDevice(lab);
      const container = await lab.container();
      const before = await stateOf(lab);
      const { device: _, ...none } = confOf(lab);
      const rows: [Row, number, string][] = [
        [none, 7, 'none of'],
        [{ ...none, device: 'a/b' }, 7, '"device"'],
        [{ ...none, device: 'nope0' }, 7, '"nope0"'],
        [{ ...none, device: 'lo' }, 7, 'loopback'],
        [{ ...none, hwaddr: 'xx' }, 7, '"hwaddr"'],
        [{ ...none, kernelpath: '/sys/devices/../class/net/up0' }, 7, '"kernelpath"'],
        [{ ...none, pciBusID: '../0' }, 7, '"pciBusID"'],
        [{ ...none, pciBusID: 'ffff:ff:ff.7' }, 7, '"ffff:ff:ff.7"'],
        [{ ...none, runtimeConfig: { deviceID: 'mlx.sf.9' } }, 7, 'auxiliary bus'],
        [confOf(lab, { ipam: { type: 'static' } }), 7, 'returned no address'],
      ];
      for (const [conf, code, words] of rows) {
        const reply = await call(lab, 'ADD', container, { conf });
        expect(reply.error).toMatchObject({ code, msg: expect.stringContaining(words) });
      }
      await lab.ip(container, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'eth1');
      expect((await call(lab, 'ADD', container)).error).toMatchObject({ code: 4 });
      expect(await stateOf(lab)).toEqual(before);
    });
  });

  testNeeding(
    '[1.0.0] a device changes hands with the reference plugin in both directions',
    async () => {
      await withHost(async lab => {
        await withDevice(lab, lab.host);
        const theirs = { binDir: REFERENCE_BIN_DIR };
        const base = confOf(lab, { cniVersion: '1.0.0' });
        // The CHECK of the reference knows the main table only.
        const conf = { ...base, ipam: { ...base.ipam, routes: [{ dst: '0.0.0.0/0' }] } };
        const linkOf = async () => (await lab.ip(lab.host, 'link', 'show', 'up0'))[0];
        const one = await lab.container();
        const result = await add(lab, one, { conf });
        expect(await call(lab, 'CHECK', one, { conf, prevResult: result, ...theirs })).toMatchObject(OK);
        expect(await call(lab, 'DEL', one, { conf, prevResult: result, ...theirs })).toMatchObject(OK);
        expect(await linkOf()).toMatchObject({ ifname: 'up0', operstate: 'DOWN', address: MAC });
        // What we noted does not outlive it, and says nothing about the next container.
        await lab.ip(lab.host, 'link', 'set', 'up0', 'up');
        const two = await lab.container();
        const taken = await add(lab, two, { conf, ...theirs });
        expect(await call(lab, 'CHECK', two, { conf, prevResult: taken })).toMatchObject(OK);
        expect(await call(lab, 'DEL', one, { conf })).toMatchObject(OK);
        expect(recordsOf(lab)).toEqual([]);
        expect(await call(lab, 'CHECK', two, { conf, prevResult: taken })).toMatchObject(OK);
        for (const _ of [1, 2]) expect(await call(lab, 'DEL', two, { conf })).toMatchObject(OK);
        expect(await linkOf()).toMatchObject({ ifname: 'up0', operstate: 'DOWN', address: MAC });
        expect((await linkOf())?.ifalias).toBeUndefined();
      });
    },
    requiresReference('host-device', 'host-local'),
  );

  testNeeding(
    '[1.0.0] no alternative name is set, because the DEL of the reference cannot rename a device that has one',
    async () => {
      await withHost(async lab => {
        await withDevice(lab);
        const container = await lab.container();
        const conf = confOf(lab, { cniVersion: '1.0.0' });
        await add(lab, container, { conf });
        await lab.ip(container, 'link', 'property', 'add', 'dev', 'eth0', 'altname', 'up0');
        const theirs = await call(lab, 'DEL', container, { conf, binDir: REFERENCE_BIN_DIR });
        expect(theirs.error?.msg).toContain('file exists');
      });
    },
    requiresReference('host-device', 'host-local'),
  );
});
