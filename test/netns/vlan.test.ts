// What does the vlan plugin do to a real kernel, and does it take all of it back?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import { deadline } from '../helpers/deadline.ts';
import { type Container, type Lab, type Outside, type Row, withHost } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference, requiresVlanDevices } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

setDefaultTimeout(deadline(60_000));

const NEEDED = requiresVlanDevices();

function confOf(lab: Lab, more: object = {}) {
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    type: 'vlan',
    master: 'outside0',
    vlanId: 100,
    ipam: {
      type: 'host-local',
      ranges: [[{ subnet: '10.88.0.0/24', gateway: '10.88.0.1' }], [{ subnet: 'fd88::/64' }]],
      routes: [{ dst: '0.0.0.0/0' }],
      dataDir: `${lab.tmp}/leases`,
    },
    ...more,
  };
}

/** The switch's side of a VLAN, or of one VLAN inside another. */
async function join(lab: Lab, outside: Outside, tags: readonly string[], address: string): Promise<void> {
  let lower = 'uplink';
  for (const [i, tag] of tags.entries()) {
    const name = `tag${i}`;
    await lab.ip(outside, 'link', 'add', 'link', lower, 'name', name, 'type', 'vlan', ...tag.split(' '));
    await lab.ip(outside, 'link', 'set', name, 'up');
    lower = name;
  }
  await lab.ip(outside, 'addr', 'add', address, 'dev', lower);
}

async function add(lab: Lab, container: Container, conf: object, more: object = {}): Promise<Row> {
  const reply = await lab.plugin('vlan', { command: 'ADD', conf, container, ...more });
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

async function del(lab: Lab, container: Container, conf: object, more: object = {}): Promise<void> {
  const reply = await lab.plugin('vlan', { command: 'DEL', conf, container, ...more });
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
  'vlan',
  () => {
    test('ADD connects a container with its VLAN; DEL removes everything', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const outside = await lab.outside();
        await join(lab, outside, ['id 100'], '10.88.0.1/24');
        const conf = confOf(lab);
        const before = await lab.dump(lab.host);
        const prevResult = await add(lab, container, conf);
        const [device] = await lab.ip(container, 'link', 'show', 'dev', 'eth0');
        expect(device).toMatchObject({
          ifalias: `catena:podnet/${container.id}/eth0`,
          linkinfo: { info_kind: 'vlan', info_data: { protocol: '802.1Q', id: 100 } },
        });
        expect(await ping(lab, container, '10.88.0.1')).toBe(true);
        const call = { conf, container };
        const check = await lab.plugin('vlan', { ...call, command: 'CHECK', prevResult });
        expect(check).toMatchObject({ exitCode: 0, stdout: '' });
        const status = await lab.plugin('vlan', { command: 'STATUS', conf });
        expect(status).toMatchObject({ exitCode: 0, stdout: '' });
        for (let times = 0; times < 2; times++) await del(lab, container, conf);
        expect(await namesIn(lab, container)).toEqual(['lo']);
        expect(await lab.dump(lab.host)).toEqual(before);
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test('two tags: the outer device is in the container, and goes with the interface', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const outside = await lab.outside();
        await join(lab, outside, ['id 100 protocol 802.1ad', 'id 7'], '10.88.0.1/24');
        const conf = confOf(lab, { vlanId: [100, 7], protocol: '802.1ad', mtu: 1400 });
        const prevResult = await add(lab, container, conf);
        expect(await namesIn(lab, container)).toEqual(['lo', 'eth0-100', 'eth0']);
        expect(await ping(lab, container, '10.88.0.1')).toBe(true);
        const call = { command: 'CHECK', conf, container, prevResult };
        expect(await lab.plugin('vlan', call)).toMatchObject({ exitCode: 0 });
        for (const damage of [
          ['eth0-100', 'down'],
          ['eth0', 'mtu', '1300'],
        ]) {
          await lab.ip(container, 'link', 'set', ...damage);
          expect(await lab.plugin('vlan', call)).toMatchObject({ exitCode: 1 });
          const repaired = await lab.plugin('vlan', { ...call, env: { CATENA_REPAIR: '1' } });
          expect(repaired).toMatchObject({ exitCode: 0 });
        }
        // Even if the configuration has changed since.
        await del(lab, container, confOf(lab, { vlanId: 9 }));
        expect(await namesIn(lab, container)).toEqual(['lo']);
      });
    });

    test('hardware address, priorities, layer 2 only', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab, {
          ipam: undefined,
          mac: 'c2:11:22:33:44:55',
          egressQosMap: [{ from: 0, to: 5 }],
          ingressQosMap: [{ from: 6, to: 2 }],
        });
        const prevResult = await add(lab, container, conf);
        const [device] = await lab.ip(container, 'link', 'show', 'dev', 'eth0');
        expect(device).toMatchObject({
          address: 'c2:11:22:33:44:55',
          linkinfo: {
            info_data: { ingress_qos: [{ from: 6, to: 2 }], egress_qos: [{ from: 0, to: 5 }] },
          },
        });
        const check = { command: 'CHECK', conf, container, prevResult };
        expect(await lab.plugin('vlan', check)).toMatchObject({ exitCode: 0 });
      });
    });

    test.each([
      ['no master', { master: undefined }, 7, '"master" is missing'],
      ['a VLAN that does not exist', { vlanId: 4095 }, 7, '"vlanId" holds 4095'],
      ['three VLANs', { vlanId: [1, 2, 3] }, 7, 'expected one or two'],
      ["an MTU above the master's", { mtu: 9000 }, 7, 'carries at most 1500'],
      ['a protocol that does not exist', { protocol: 'qinq' }, 7, '"protocol" is "qinq"'],
    ])('ADD refuses %s', async (_, more, code, msg) => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const reply = await lab.plugin('vlan', { command: 'ADD', conf: confOf(lab, more), container });
        expect(reply.error).toMatchObject({ code, msg: expect.stringContaining(msg) });
        expect(await namesIn(lab, container)).toEqual(['lo']);
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test('ADD explains why a second container cannot have the VLAN, and that the master is down', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        await lab.outside();
        const conf = confOf(lab, { ipam: undefined });
        await add(lab, one, conf);
        const second = await lab.plugin('vlan', { command: 'ADD', conf, container: two });
        expect(second.error).toMatchObject({
          code: 7,
          msg: expect.stringContaining('cannot share one VLAN'),
        });
        await lab.ip(lab.host, 'link', 'set', 'outside0', 'down');
        const down = await lab.plugin('vlan', {
          command: 'ADD',
          conf: { ...conf, vlanId: 8 },
          container: two,
        });
        expect(down.error).toMatchObject({ code: 11, msg: expect.stringContaining('outside0 up') });
        expect(await namesIn(lab, two)).toEqual(['lo']);
      });
    });

    test('ADD announces addresses, and asks whether another host has them', async () => {
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
      });
    });

    test('ADD removes the interface when IPAM gives no address, and calls DEL of IPAM', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const body = [
          ...['#!/bin/sh', 'cat > /dev/null', `echo "$CNI_COMMAND" >> ${lab.tmp}/calls`],
          `[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0"}' || true`,
        ];
        fs.writeFileSync(`${lab.tmp}/scripted`, `${body.join('\n')}\n`, { mode: 0o755 });
        const conf = confOf(lab, { ipam: { type: 'scripted' } });
        const reply = await lab.plugin('vlan', { command: 'ADD', conf, container, cniPath: lab.tmp });
        expect(reply.error?.msg).toContain('returned no address');
        expect(fs.readFileSync(`${lab.tmp}/calls`, 'utf8')).toBe('ADD\nDEL\n');
        expect(await namesIn(lab, container)).toEqual(['lo']);
      });
    });

    test('GC deletes interfaces and releases addresses that are not in the list, and keeps the rest', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        await lab.outside();
        // GC keeps an address that an interface of some container has, such as one of another test with two tags.
        const ranges = [[{ subnet: '10.89.0.0/24' }], [{ subnet: 'fd89::/64' }]];
        const ipam = { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` };
        await add(lab, one, confOf(lab, { ipam }));
        await add(lab, two, confOf(lab, { ipam, vlanId: 101 }));
        const conf = confOf(lab, {
          ipam,
          'cni.dev/valid-attachments': [{ containerID: two.id, ifname: 'eth0' }],
        });
        expect(await lab.plugin('vlan', { command: 'GC', conf })).toMatchObject({ exitCode: 0 });
        expect(await namesIn(lab, one)).toEqual(['lo']);
        expect(await namesIn(lab, two)).toEqual(['lo', 'eth0']);
        expect(leasesOf(lab)).toEqual(['10.89.0.3', 'fd89::3']);
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

    test('DEL needs neither master nor namespace nor valid options, and releases the address', async () => {
      await withHost(async lab => {
        await lab.outside();
        const conf = confOf(lab);
        const bad = { ...conf, master: undefined, vlanId: -7 };
        const [one, two] = [await lab.container(), await lab.container()];
        await add(lab, one, conf);
        await lab.remove(one);
        await del(lab, one, { ...bad, linkInContainer: true });
        await add(lab, two, conf);
        await lab.ip(lab.host, 'link', 'del', 'outside0');
        await del(lab, two, bad);
        expect(leasesOf(lab)).toEqual([]);
      });
    });
  },
  NEEDED,
);

describeRoot(
  'vlan and the reference',
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
        expect(await lab.plugin('vlan', { ...check, ...by(others) })).toMatchObject({ exitCode: 0 });
        await del(lab, container, conf, { prevResult, ...by(others) });
        expect(await namesIn(lab, container)).toEqual(['lo']);
        expect(leasesOf(lab)).toEqual([]);
      });
    });
  },
  NEEDED,
  requiresReference('vlan', 'host-local'),
);
