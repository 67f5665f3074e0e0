// What does the ipvlan plugin do to a real kernel, and does it take all of it back?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import { deadline } from '../helpers/deadline.ts';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference, requiresUpperKind } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

setDefaultTimeout(deadline(60_000));

const NEEDED = requiresUpperKind('ipvlan');

function confOf(lab: Lab, more: object = {}) {
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    type: 'ipvlan',
    master: 'outside0',
    ipam: {
      type: 'host-local',
      ranges: [[{ subnet: '10.201.0.0/24', rangeStart: '10.201.0.10', gateway: '10.201.0.2' }]],
      routes: [{ dst: '0.0.0.0/0' }],
      dataDir: `${lab.tmp}/leases`,
    },
    ...more,
  };
}

async function add(lab: Lab, container: Container, conf: object, more: object = {}): Promise<Row> {
  const reply = await lab.plugin('ipvlan', { command: 'ADD', conf, container, ...more });
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

async function del(lab: Lab, container: Container, conf: object, more: object = {}): Promise<void> {
  const reply = await lab.plugin('ipvlan', { command: 'DEL', conf, container, ...more });
  expect(reply).toMatchObject({ exitCode: 0, stdout: '' });
}

async function namesIn(lab: Lab, container: Container): Promise<string[]> {
  return (await lab.ip(container, 'link')).map(({ ifname }) => ifname);
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
  'ipvlan',
  () => {
    test('ADD connects two containers with each other and the outside; DEL removes everything', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        const outside = await lab.outside();
        const conf = confOf(lab);
        const before = await lab.dump(lab.host);
        const prevResult = await add(lab, one, conf);
        await add(lab, two, conf);
        const [device] = await lab.ip(one, 'link', 'show', 'dev', 'eth0');
        expect(device).toMatchObject({
          ifalias: `catena:podnet/${one.id}/eth0`,
          linkinfo: { info_kind: 'ipvlan', info_data: { mode: 'l2', bridge: true } },
        });
        for (const address of ['10.201.0.11', outside.address.v4]) {
          expect([address, await ping(lab, one, address)]).toEqual([address, true]);
        }
        const call = { conf, container: one };
        const check = await lab.plugin('ipvlan', { ...call, command: 'CHECK', prevResult });
        expect(check).toMatchObject({ exitCode: 0, stdout: '' });
        const status = await lab.plugin('ipvlan', { command: 'STATUS', conf });
        expect(status).toMatchObject({ exitCode: 0, stdout: '' });
        for (const container of [one, two, two]) await del(lab, container, conf);
        expect(await namesIn(lab, one)).toEqual(['lo']);
        expect(await lab.dump(lab.host)).toEqual(before);
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test.each([
      ['l3', 'bridge'],
      ['l3s', 'private'],
      ['l2', 'vepa'],
    ])('mode %s, flags %s; a default route without a gateway; repair', async (mode, flags) => {
      await withHost(async lab => {
        const container = await lab.container();
        const outside = await lab.outside();
        const ipam = {
          type: 'static',
          addresses: [{ address: '10.201.0.9/24' }],
          routes: [{ dst: '0.0.0.0/0' }],
        };
        const conf = confOf(lab, { mode, flags, ipam });
        const prevResult = await add(lab, container, conf);
        const [device] = await lab.ip(container, 'link', 'show', 'dev', 'eth0');
        expect(device?.linkinfo.info_data).toEqual({ mode, [flags]: true });
        expect(await lab.ip(container, 'route', 'show', 'default')).toMatchObject([{ dev: 'eth0' }]);
        // On layer 3 only routes lead there: ARP for the address is not answered.
        await lab.ip(outside, 'route', 'add', '10.201.0.9', 'via', '10.201.0.1');
        expect(await ping(lab, container, outside.address.v4)).toBe(true);
        const other = mode === 'l3' ? 'l2' : 'l3';
        await lab.ip(container, 'link', 'set', 'eth0', 'type', 'ipvlan', 'mode', other);
        const call = { command: 'CHECK', conf, container, prevResult };
        const damaged = await lab.plugin('ipvlan', call);
        expect(damaged.error?.msg).toContain('mode of interface');
        await lab.ip(container, 'link', 'set', 'eth0', 'mtu', '1300');
        const repaired = await lab.plugin('ipvlan', { ...call, env: { CATENA_REPAIR: '1' } });
        expect(repaired).toMatchObject({ exitCode: 0 });
      });
    });

    test('in a chain, it takes master and addresses of the plugin before, and keeps its interface', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab, { master: undefined, ipam: undefined });
        const before = {
          cniVersion: '1.1.0',
          interfaces: [{ name: 'outside0' }],
          ips: [{ address: '10.201.0.9/24', gateway: '10.201.0.2', interface: 0 }],
          routes: [{ dst: '0.0.0.0/0' }],
        };
        const result = await add(lab, container, conf, { prevResult: before });
        expect(structuredClone(result)).toMatchObject({
          interfaces: [{ name: 'outside0' }, { name: 'eth0', sandbox: container.path }],
          ips: [{ address: '10.201.0.9/24', gateway: '10.201.0.2', interface: 1 }],
          routes: [{ dst: '0.0.0.0/0' }],
        });
        expect(await ping(lab, container, '10.201.0.2')).toBe(true);
        const check = { command: 'CHECK', conf, container, prevResult: result };
        expect(await lab.plugin('ipvlan', check)).toMatchObject({ exitCode: 0 });
        expect(await lab.plugin('ipvlan', { command: 'STATUS', conf })).toMatchObject({ exitCode: 0 });
        const two = { ...before, interfaces: [{ name: 'outside0' }, { name: 'lo' }] };
        const other = await lab.container();
        const reply = await lab.plugin('ipvlan', { command: 'ADD', conf, container: other, prevResult: two });
        expect(reply.error).toMatchObject({ code: 7, msg: expect.stringContaining('has 2 interfaces') });
      });
    });

    test('CHECK and DEL work without the default route that chose the master', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab, { master: undefined });
        const prevResult = await add(lab, container, conf);
        await lab.ip(lab.host, 'route', 'del', 'default');
        await lab.ip(lab.host, '-6', 'route', 'del', 'default');
        const check = { command: 'CHECK', conf, container, prevResult };
        expect(await lab.plugin('ipvlan', check)).toMatchObject({ exitCode: 0 });
        await del(lab, container, conf);
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test.each([
      ['a hardware address', { mac: 'c2:11:22:33:44:55' }, "all ipvlan interfaces have their master's"],
      ['a mode that does not exist', { mode: 'l4' }, '"mode" is "l4"'],
      ['flags that do not exist', { flags: 'isolated' }, '"flags" is "isolated"'],
      ["an MTU above the master's", { mtu: 9000 }, 'carries at most 1500'],
    ])('ADD refuses %s', async (_, more, msg) => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const reply = await lab.plugin('ipvlan', { command: 'ADD', conf: confOf(lab, more), container });
        expect(reply.error).toMatchObject({ code: 7, msg: expect.stringContaining(msg) });
        expect(await namesIn(lab, container)).toEqual(['lo']);
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test('ADD explains that macvlan and ipvlan exclude each other on one master', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        await lab.ip(lab.host, 'link', 'add', 'link', 'outside0', 'name', 'mv0', 'type', 'macvlan');
        const reply = await lab.plugin('ipvlan', { command: 'ADD', conf: confOf(lab), container });
        expect(reply.error).toMatchObject({ code: 7, msg: expect.stringContaining('exclude each other') });
      });
    });

    test('GC deletes interfaces and releases addresses that are not in the list, and keeps the rest', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        await lab.outside();
        for (const container of [one, two]) await add(lab, container, confOf(lab));
        const conf = confOf(lab, { 'cni.dev/valid-attachments': [{ containerID: two.id, ifname: 'eth0' }] });
        expect(await lab.plugin('ipvlan', { command: 'GC', conf })).toMatchObject({ exitCode: 0 });
        expect(await namesIn(lab, one)).toEqual(['lo']);
        expect(await namesIn(lab, two)).toEqual(['lo', 'eth0']);
        expect(leasesOf(lab)).toEqual(['10.201.0.11']);
      });
    });

    test('ADD works when the host has a device of the name', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        await lab.ip(lab.host, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'eth1');
        await add(lab, container, confOf(lab));
        expect(await namesIn(lab, container)).toEqual(['lo', 'eth0']);
      });
    });
  },
  NEEDED,
);

describeRoot(
  'ipvlan and the reference',
  () => {
    test.each([
      ['theirs, ours', REFERENCE_BIN_DIR, undefined],
      ['ours, theirs', undefined, REFERENCE_BIN_DIR],
    ] as const)('CHECK and DEL work on an attachment of the other: %s', async (_, adds, others) => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab, { cniVersion: '1.0.0' });
        const by = (binDir: string | undefined) => (binDir ? { binDir } : {});
        const prevResult = await add(lab, container, conf, by(adds));
        const check = { command: 'CHECK', conf, container, prevResult };
        expect(await lab.plugin('ipvlan', { ...check, ...by(others) })).toMatchObject({ exitCode: 0 });
        await del(lab, container, conf, { prevResult, ...by(others) });
        expect(await namesIn(lab, container)).toEqual(['lo']);
        expect(leasesOf(lab)).toEqual([]);
      });
    });
  },
  NEEDED,
  requiresReference('ipvlan', 'host-local'),
);
