// What does the bridge plugin do to a real kernel, and does it take all of it back?
import { expect, test } from 'bun:test';
import { mkdirSync, writeFileSync } from 'node:fs';
import { type Container, type Lab, type Row, untilAddressed, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { binWith } from '../helpers/script.ts';
import { describeNeeding, describeRoot, requiresReference, requiresRoot } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { echo, ping, startServer } from '../helpers/traffic.ts';

const SKELETON = { ignoreTables: ['inet catena_masquerade'] };

function confOf(lab: Lab, more: object = {}) {
  const ranges = [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]];
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    type: 'bridge',
    bridge: 'br0',
    isDefaultGateway: true,
    ipMasq: true,
    ipam: { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` },
    ...more,
  };
}

/** A node forwards already; turning it on adds anycast routes to interfaces that are none of the plugin's business. */
async function forward(lab: Lab): Promise<void> {
  await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
  await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
}

async function leasesOf(lab: Lab): Promise<string[]> {
  const { stdout } = await lab.run(lab.host, ['ls', `${lab.tmp}/leases/podnet`]);
  return stdout.split('\n').filter(name => /^[0-9a-f]+[.:]/.test(name));
}

/** Addresses of a device, but for the kernel's own. */
async function globalOf(lab: Lab, device: string): Promise<Row[]> {
  const [{ addr_info: all = [] } = {}] = await lab.ip(lab.host, 'addr', 'show', device);
  return all.filter(({ scope }: Row) => scope === 'global');
}

async function add(lab: Lab, container: Container, conf: object) {
  const reply = await lab.plugin('bridge', { command: 'ADD', conf, container });
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

describeRoot('bridge', () => {
  test('ADD connects two containers, the gateway and the outside; DEL removes everything', async () => {
    const cniVersion = LATEST_SPEC_VERSION;
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const outside = await lab.outside();
      await forward(lab);
      const conf = confOf(lab);
      const before = await lab.dump(lab.host, SKELETON);
      const result = await add(lab, one, conf);
      await add(lab, two, conf);

      // A copy: matchers such as stringMatching take the place of what they matched in the object they are given.
      expect(structuredClone(result)).toMatchObject({
        cniVersion,
        interfaces: [
          { name: 'br0', mac: expect.stringMatching(/^([0-9a-f]{2}:){5}/) },
          { name: expect.stringMatching(/^veth[0-9a-f]{8}$/) },
          { name: 'eth0', sandbox: one.path },
        ],
        ips: [
          { address: '10.88.0.2/24', gateway: '10.88.0.1', interface: 2 },
          { address: 'fd88::2/64', gateway: 'fd88::1', interface: 2 },
        ],
        routes: [
          { dst: '0.0.0.0/0', gw: '10.88.0.1' },
          { dst: '::/0', gw: 'fd88::1' },
        ],
      });
      for (const address of [
        '10.88.0.1',
        'fd88::1',
        '10.88.0.3',
        'fd88::3',
        outside.address.v4,
        outside.address.v6,
      ]) {
        expect([address, await ping(lab, one, address)]).toEqual([address, true]);
      }
      expect(
        await lab.plugin('bridge', { command: 'CHECK', conf, container: one, prevResult: result }),
      ).toMatchObject({
        exitCode: 0,
        stdout: '',
      });
      for (const container of [one, two]) {
        expect(await lab.plugin('bridge', { command: 'DEL', conf, container })).toMatchObject({
          exitCode: 0,
          stdout: '',
        });
      }
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(await leasesOf(lab)).toEqual([]);
    });
  });

  test('[1.1.0] ipMasq masquerades traffic that leaves the subnet, and no other', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const outside = await lab.outside();
      await add(lab, one, confOf(lab));
      await add(lab, two, confOf(lab));
      await startServer(lab, outside, { protocol: 'tcp', port: 7000 });
      await startServer(lab, two, { protocol: 'tcp', port: 7000 });
      const peerAt = async (address: string) =>
        (await echo(lab, one, { protocol: 'tcp', address, port: 7000 }))?.peer;
      expect(await peerAt(outside.address.v4)).toBe(outside.hostAddress.v4);
      expect(await peerAt(outside.address.v6)).toBe(outside.hostAddress.v6);
      expect(await peerAt('10.88.0.3')).toBe('10.88.0.2');
      expect(await peerAt('fd88::3')).toBe('fd88::2');
    });
  });

  test('[1.1.0] ADD sets MTU, hairpin mode, isolation and the requested hardware address', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const runtimeConfig = { mac: '0A-58-0a-00-00-07' };
      const conf = confOf(lab, { mtu: 1400, hairpinMode: true, portIsolation: true, runtimeConfig });
      const result = await add(lab, container, conf);
      expect(result.interfaces[2]).toEqual({
        name: 'eth0',
        mac: '0a:58:0a:00:00:07',
        mtu: 1400,
        sandbox: container.path,
      });
      const [inside] = await lab.ip(container, 'link', 'show', 'eth0');
      expect(inside).toMatchObject({ mtu: 1400, address: '0a:58:0a:00:00:07', operstate: 'UP' });
      const [port] = await lab.ip(lab.host, 'link', 'show', result.interfaces[1].name);
      expect(port).toMatchObject({
        mtu: 1400,
        master: 'br0',
        linkinfo: { info_slave_data: { hairpin: true, isolated: true } },
      });
      expect(port?.ifalias).toBe(`catena:podnet/${container.id}/eth0`);
      for (const [option, flags] of [
        ['hairpinMode', { hairpin: true, isolated: false }],
        ['portIsolation', { hairpin: false, isolated: true }],
      ] as const) {
        const alone = await add(lab, await lab.container(), confOf(lab, { mtu: 1400, [option]: true }));
        const [own] = await lab.ip(lab.host, 'link', 'show', alone.interfaces[1].name);
        expect([option, own?.linkinfo]).toMatchObject([option, { info_slave_data: flags }]);
      }
    });
  });

  test('[1.1.0] hardware addresses on the host are not the choice of the kernel, which udev replaces', async () => {
    await withHost(async lab => {
      const { interfaces } = await add(lab, await lab.container(), confOf(lab));
      const read = (name: string) => `cat /sys/class/net/${name}/addr_assign_type`;
      const script = [
        'mount -t sysfs none /sys',
        ...interfaces.slice(0, 2).map(({ name }: Row) => read(name)),
      ];
      const argv = ['unshare', '--mount', 'sh', '-c', script.join(' && ')];
      // include/uapi/linux/netdevice.h: NET_ADDR_SET; systemd's link_generate_new_hw_addr() keeps these.
      expect((await lab.run(lab.host, argv)).stdout).toBe('3\n3\n');
    });
  });

  test('[1.1.0] without IPAM the container is connected on layer 2 only', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'bridge', bridge: 'br0' };
      const before = await lab.dump(lab.host, SKELETON);
      const result = await add(lab, container, conf);
      expect(Object.keys(result)).toEqual(['cniVersion', 'interfaces']);
      expect((await lab.ip(container, 'link', 'show', 'eth0'))[0]).toMatchObject({ operstate: 'UP' });
      const check = await lab.plugin('bridge', { command: 'CHECK', conf, container, prevResult: result });
      expect(check).toMatchObject({ exitCode: 0 });
      await lab.plugin('bridge', { command: 'DEL', conf, container });
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
    });
  });

  test('[1.1.0] an existing bridge is used as it is and stays', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await lab.run(lab.host, ['ip', 'link', 'add', 'br0', 'type', 'bridge']);
      await lab.run(lab.host, ['ip', 'addr', 'add', '172.30.0.1/24', 'dev', 'br0']);
      await add(lab, container, confOf(lab));
      const addresses = async () =>
        (await lab.ip(lab.host, '-4', 'addr', 'show', 'br0'))[0]?.addr_info.map(
          (a: { local: string }) => a.local,
        );
      expect(await addresses()).toEqual(['172.30.0.1', '10.88.0.1']);
      expect(await ping(lab, container, '10.88.0.1')).toBe(true);
      await lab.plugin('bridge', { command: 'DEL', conf: confOf(lab), container });
      expect(await addresses()).toEqual(['172.30.0.1', '10.88.0.1']);
    });
  });

  test('[1.1.0] the result names the hardware address that another program gave its bridge during the ADD', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await lab.ip(lab.host, 'link', 'add', 'br0', 'up', 'type', 'bridge');
      // As the reference does, for its own container, between its two looks at the bridge.
      const steps = 'ip link set br0 address 02:00:00:00:00:77 && ip address add 10.88.0.1/24 dev br0';
      const result = '{"cniVersion":"1.1.0","ips":[{"address":"10.88.0.5/24","gateway":"10.88.0.1"}]}';
      const cniPath = binWith(
        lab,
        'slow-ipam',
        `[ $CNI_COMMAND = ADD ] && ${steps} && echo '${result}'; exit 0`,
      );
      const ipam = { type: 'slow-ipam' };
      const conf = {
        cniVersion: '1.1.0',
        name: 'podnet',
        type: 'bridge',
        bridge: 'br0',
        isGateway: true,
        ipam,
      };
      const added = await lab.plugin('bridge', { command: 'ADD', conf, container, cniPath });
      expect(added.result?.interfaces[0]).toMatchObject({ name: 'br0', mac: '02:00:00:00:00:77' });
      const check = { command: 'CHECK', conf, container, cniPath, prevResult: added.result };
      expect(await lab.plugin('bridge', check)).toMatchObject({ exitCode: 0 });
    });
  });
});

describeRoot('bridge, verbs in unusual order', () => {
  test('[1.1.0] a second ADD is refused and leaves the first attachment unchanged', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const result = await add(lab, container, confOf(lab));
      await untilAddressed(lab.host, 'br0');
      const before = await lab.dump(lab.host);
      const again = await lab.plugin('bridge', { command: 'ADD', conf: confOf(lab), container });
      expect(again).toMatchObject({
        exitCode: 1,
        error: { code: 4, msg: expect.stringContaining('run DEL first') },
      });
      expect(await lab.dump(lab.host)).toEqual(before);
      const check = await lab.plugin('bridge', {
        command: 'CHECK',
        conf: confOf(lab),
        container,
        prevResult: result,
      });
      expect(check).toMatchObject({ exitCode: 0 });
    });
  });

  test('[1.1.0] an existing interface of that name is refused, and the lease released', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await lab.run(container, ['ip', 'link', 'add', 'eth0', 'type', 'bridge']);
      const before = await lab.dump(lab.host);
      const reply = await lab.plugin('bridge', { command: 'ADD', conf: confOf(lab), container });
      expect(reply.error).toMatchObject({
        code: 4,
        msg: expect.stringContaining('an interface of that name exists'),
      });
      expect(await lab.dump(lab.host)).toEqual(before);
      expect(await leasesOf(lab)).toEqual([]);
      // It is not ours, so DEL leaves it.
      expect(await lab.plugin('bridge', { command: 'DEL', conf: confOf(lab), container })).toMatchObject({
        exitCode: 0,
      });
      expect((await lab.ip(container, 'link', 'show', 'eth0'))[0]).toMatchObject({ ifname: 'eth0' });
    });
  });

  test('[1.1.0] DEL without ADD, twice, and with the namespace gone all succeed and leave nothing', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const before = await lab.dump(lab.host, SKELETON);
      const del = (container: Container) =>
        lab.plugin('bridge', { command: 'DEL', conf: confOf(lab), container });
      expect(await del(one)).toMatchObject({ exitCode: 0 });
      await add(lab, one, confOf(lab));
      await add(lab, two, confOf(lab));
      await lab.remove(one);
      expect(await del(one)).toMatchObject({ exitCode: 0 });
      expect(await del(two)).toMatchObject({ exitCode: 0 });
      expect(await del(two)).toMatchObject({ exitCode: 0 });
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(await leasesOf(lab)).toEqual([]);
    });
  });

  test('[1.1.0] the bridge keeps its addresses without containers, for what the host has bound to them, also over GC', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const [conf, gc] = [confOf(lab, { mtu: 1400 }), { ...confOf(lab), 'cni.dev/valid-attachments': [] }];
      const result = await add(lab, one, conf);
      const before = await lab.ip(lab.host, 'addr', 'show', 'br0');
      const addresses = [{ local: '10.88.0.1' }, { local: 'fd88::1' }];
      for (const prevResult of [result, undefined]) {
        const del = { command: 'DEL', conf, container: one, prevResult };
        expect(await lab.plugin('bridge', del)).toMatchObject({ exitCode: 0 });
        expect(await globalOf(lab, 'br0')).toMatchObject(addresses);
        expect((await lab.run(lab.host, ['ping', '-c1', '-W1', '10.88.0.1'])).exitCode).toBe(0);
        await add(lab, one, conf);
        expect((await lab.ip(lab.host, 'link', 'show', 'br0'))[0]?.address).toBe(before[0]?.address);
        expect(await ping(lab, one, '10.88.0.1')).toBe(true);
      }
      await add(lab, two, conf);
      expect(await lab.plugin('bridge', { command: 'GC', conf: gc })).toMatchObject({ exitCode: 0 });
      expect(await globalOf(lab, 'br0')).toMatchObject(addresses);
    });
  });

  test('[1.1.0] DEL of an ADD that was killed after it had made the bridge deletes the bridge', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf(lab);
      const result = await add(lab, container, conf);
      const address = (await lab.ip(lab.host, 'link', 'show', 'br0'))[0]?.address;
      const del = { command: 'DEL', conf, container };
      expect(await lab.plugin('bridge', { ...del, prevResult: result })).toMatchObject({ exitCode: 0 });
      await lab.ip(lab.host, 'link', 'del', 'br0');
      await lab.ip(lab.host, 'link', 'add', 'br0', 'address', address, 'type', 'bridge');
      expect(await lab.plugin('bridge', { ...del, prevResult: result })).toMatchObject({ exitCode: 0 });
      expect(await lab.ip(lab.host, 'link', 'show', 'type', 'bridge')).toHaveLength(1);
      expect(await lab.plugin('bridge', del)).toMatchObject({ exitCode: 0 });
      expect(await lab.ip(lab.host, 'link', 'show', 'type', 'bridge')).toEqual([]);
    });
  });

  test('[0.3.1] DEL, which never has a result in this version, keeps a bridge of layer 2', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = { cniVersion: '0.3.1', name: 'podnet', type: 'bridge', bridge: 'br0' };
      await add(lab, container, conf);
      expect(await lab.plugin('bridge', { command: 'DEL', conf, container })).toMatchObject({ exitCode: 0 });
      expect(await lab.ip(lab.host, 'link', 'show', 'type', 'bridge')).toMatchObject([{ ifname: 'br0' }]);
    });
  });

  test("[1.1.0] GC deletes a bridge of ours without addresses; an operator's address keeps it", async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf(lab, { isDefaultGateway: false, ipMasq: false, ipam: undefined });
      const gc = { command: 'GC', conf: { ...conf, 'cni.dev/valid-attachments': [] } };
      await add(lab, container, conf);
      await lab.ip(lab.host, 'addr', 'add', '192.0.2.1/24', 'dev', 'br0');
      expect(await lab.plugin('bridge', gc)).toMatchObject({ exitCode: 0 });
      expect(await globalOf(lab, 'br0')).toMatchObject([{ local: '192.0.2.1' }]);
      await lab.ip(lab.host, 'addr', 'del', '192.0.2.1/24', 'dev', 'br0');
      expect(await lab.plugin('bridge', gc)).toMatchObject({ exitCode: 0 });
      expect(await lab.ip(lab.host, 'link', 'show', 'type', 'bridge')).toEqual([]);
    });
  });

  test("[1.1.0] an operator's addresses outlive containers, in the gateway's subnet and beside it", async () => {
    await withHost(async lab => {
      for (const [conf, local] of [
        [confOf(lab), '10.88.0.53'],
        [confOf(lab), '192.0.2.1'],
        // The subnet is the IPAM plugin's own choice, and may be another node's next.
        [confOf(lab, { ipam: { type: 'static' }, args: { cni: { ips: ['10.88.0.7/24'] } } }), '10.88.0.53'],
      ] as const) {
        const container = await lab.container();
        const prevResult = await add(lab, container, conf);
        await lab.ip(lab.host, 'addr', 'add', `${local}/24`, 'dev', 'br0');
        const del = { command: 'DEL', conf, container, prevResult };
        expect(await lab.plugin('bridge', del)).toMatchObject({ exitCode: 0 });
        expect((await globalOf(lab, 'br0')).map(one => one.local)).toEqual(
          expect.arrayContaining([local, '10.88.0.1']),
        );
        await lab.ip(lab.host, 'addr', 'del', `${local}/24`, 'dev', 'br0');
      }
    });
  });

  test('[1.1.0] a network that moves to another bridge takes its gateway along, unless containers are left', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      await add(lab, one, confOf(lab));
      const moved = confOf(lab, { bridge: 'br1' });
      await lab.plugin('bridge', { command: 'DEL', conf: confOf(lab), container: one });
      await add(lab, two, moved);
      expect(await globalOf(lab, 'br0')).toEqual([]);
      expect((await lab.run(lab.host, ['ping', '-c1', '-W1', '10.88.0.3'])).exitCode).toBe(0);
      // In use: both keep it, as with the reference.
      await add(lab, one, confOf(lab));
      expect(await globalOf(lab, 'br1')).toMatchObject([{ local: '10.88.0.1' }, { local: 'fd88::1' }]);
    });
  });

  test('[1.1.0] in a subnet of two addresses, the bridge has the other one', async () => {
    await withHost(async lab => {
      const ranges = [[{ subnet: '10.88.0.0/31' }], [{ subnet: 'fd88::/127' }]];
      const conf = confOf(lab, { ipam: { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` } });
      const container = await lab.container();
      const prevResult = await add(lab, container, conf);
      for (const address of ['10.88.0.1', 'fd88::1']) expect(await ping(lab, container, address)).toBe(true);
      const check = { command: 'CHECK', conf, container, prevResult };
      expect(await lab.plugin('bridge', check)).toMatchObject({ exitCode: 0 });
      const second = { command: 'ADD', conf, container: await lab.container() };
      expect((await lab.plugin('bridge', second)).error).toMatchObject({ code: 7 });
    });
  });

  test('[1.1.0] DEL continues if IPAM fails, and reports it', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await add(lab, container, confOf(lab));
      const reply = await lab.plugin('bridge', {
        command: 'DEL',
        conf: confOf(lab),
        container,
        cniPath: '/nonexistent',
      });
      expect(reply.error?.msg).toContain('Cannot find plugin "host-local"');
      expect((await lab.ip(container, 'link')).map(link => link.ifname)).toEqual(['lo']);
    });
  });

  test('[1.1.0] GC removes attachments that are not in the list and keeps the rest', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const keep = await add(lab, one, confOf(lab));
      await add(lab, two, confOf(lab));
      const conf = { ...confOf(lab), 'cni.dev/valid-attachments': [{ containerID: one.id, ifname: 'eth0' }] };
      expect(await lab.plugin('bridge', { command: 'GC', conf })).toMatchObject({ exitCode: 0 });
      expect(await leasesOf(lab)).toEqual(['10.88.0.2', 'fd88::2']);
      expect((await lab.ip(two, 'link')).map(link => link.ifname)).toEqual(['lo']);
      expect(JSON.stringify(await lab.nft(lab.host, 'list', 'ruleset'))).not.toContain(two.id);
      const check = await lab.plugin('bridge', {
        command: 'CHECK',
        conf: confOf(lab),
        container: one,
        prevResult: keep,
      });
      expect(check).toMatchObject({ exitCode: 0 });
    });
  });
});

describeRoot('bridge, bad input', () => {
  test.each([
    ['not a namespace', { file: true }, 8, 'it is a file of another kind'],
    ['a path that does not exist', { path: '/nonexistent/ns' }, 8, '"/nonexistent/ns"'],
    ['its own namespace', { host: true }, 8, 'the one this plugin runs in'],
  ] as const)('[1.1.0] ADD refuses %s and leaves nothing', async (_what, target, code, words) => {
    await withHost(async lab => {
      writeFileSync(`${lab.tmp}/file`, '');
      const path = 'file' in target ? `${lab.tmp}/file` : 'host' in target ? lab.host.path : target.path;
      const before = await lab.dump(lab.host);
      const reply = await lab.plugin('bridge', {
        command: 'ADD',
        conf: confOf(lab),
        container: { id: 'c1', path },
      });
      expect(reply.error).toMatchObject({ code, msg: expect.stringContaining(words) });
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  test('[1.1.0] an exhausted subnet leaves neither bridge nor lease', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const ipam = { type: 'host-local', subnet: '10.88.0.0/30', dataDir: `${lab.tmp}/leases` };
      await add(lab, one, confOf(lab, { ipam }));
      await untilAddressed(lab.host, 'br0');
      const before = await lab.dump(lab.host);
      const reply = await lab.plugin('bridge', {
        command: 'ADD',
        conf: confOf(lab, { ipam }),
        container: two,
      });
      expect(reply).toMatchObject({ exitCode: 1, error: { msg: expect.stringContaining('10.88.0') } });
      expect(await lab.dump(lab.host)).toEqual(before);
      expect(await leasesOf(lab)).toEqual(['10.88.0.2']);
    });
  });

  test('[1.1.0] a gateway that overlaps an address of the bridge is refused, or replaces it when forced', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await lab.run(lab.host, ['ip', 'link', 'add', 'br0', 'type', 'bridge']);
      await lab.run(lab.host, ['ip', 'addr', 'add', '10.88.0.200/24', 'dev', 'br0']);
      await lab.run(lab.host, ['ip', 'link', 'set', 'br0', 'up']);
      const refused = await lab.plugin('bridge', { command: 'ADD', conf: confOf(lab), container });
      expect(refused.error).toMatchObject({
        code: 7,
        msg: expect.stringContaining('10.88.0.200/24, whose subnet overlaps'),
      });
      expect(await leasesOf(lab)).toEqual([]);
      await add(lab, container, confOf(lab, { forceAddress: true }));
      expect(await ping(lab, container, '10.88.0.1')).toBe(true);
    });
  });

  test("[1.1.0] a gateway of another family is refused: with the address's prefix length the host would route fd00::/24 there", async () => {
    await withHost(async lab => {
      const ipam = { type: 'static', addresses: [{ address: '10.88.0.2/24', gateway: 'fd00::1' }] };
      const call = { conf: confOf(lab, { ipam }), container: await lab.container() };
      const before = await lab.dump(lab.host);
      const { error } = await lab.plugin('bridge', { command: 'ADD', ...call });
      expect(error).toMatchObject({ code: 7, msg: expect.stringContaining('it is of another family') });
      expect(await lab.dump(lab.host, { ignoreTables: ['inet catena'] })).toMatchObject(before);
    });
  });
});

describeRoot('bridge CHECK', () => {
  const tampering: [
    string,
    (lab: Lab, container: Container, host: string) => [ns: 'host' | 'container', argv: string[]],
    string,
  ][] = [
    ['address', () => ['container', ['ip', 'addr', 'del', '10.88.0.2/24', 'dev', 'eth0']], '10.88.0.2/24'],
    ['IPv6 address', () => ['container', ['ip', 'addr', 'del', 'fd88::2/64', 'dev', 'eth0']], 'fd88::2/64'],
    ['default route', () => ['container', ['ip', 'route', 'del', 'default']], '0.0.0.0/0 via 10.88.0.1'],
    ['IPv6 default route', () => ['container', ['ip', '-6', 'route', 'del', 'default']], '::/0 via fd88::1'],
    [
      'hardware address',
      () => ['container', ['ip', 'link', 'set', 'eth0', 'address', '02:00:00:00:00:99']],
      'hardware address',
    ],
    [
      'hardware address of the host end',
      (_l, _c, host) => ['host', ['ip', 'link', 'set', host, 'address', '02:00:00:00:00:98']],
      'hardware address of host end',
    ],
    ['MTU', () => ['container', ['ip', 'link', 'set', 'eth0', 'mtu', '1280']], 'MTU of interface "eth0"'],
    [
      'port of the bridge',
      (_l, _c, host) => ['host', ['ip', 'link', 'set', host, 'nomaster']],
      'bridge of host end',
    ],
    ['host end down', (_l, _c, host) => ['host', ['ip', 'link', 'set', host, 'down']], 'state of host end'],
    [
      'hairpin mode',
      (_l, _c, host) => ['host', ['bridge', 'link', 'set', 'dev', host, 'hairpin', 'off']],
      'hairpin mode',
    ],
    [
      'isolation',
      (_l, _c, host) => ['host', ['bridge', 'link', 'set', 'dev', host, 'isolated', 'off']],
      'isolation',
    ],
    [
      'hairpin mode that was off',
      (_l, _c, host) => ['host', ['bridge', 'link', 'set', 'dev', host, 'hairpin', 'on']],
      'hairpin mode',
    ],
    [
      'isolation that was off',
      (_l, _c, host) => ['host', ['bridge', 'link', 'set', 'dev', host, 'isolated', 'on']],
      'isolation',
    ],
    [
      'port disabled',
      (_l, _c, host) => ['host', ['bridge', 'link', 'set', 'dev', host, 'state', 'disabled']],
      'forwarding of the bridge port',
    ],
    [
      'port that only learns',
      (_l, _c, host) => ['host', ['bridge', 'link', 'set', 'dev', host, 'state', 'learning']],
      'forwarding of the bridge port',
    ],
    ['arp off', () => ['container', ['ip', 'link', 'set', 'eth0', 'arp', 'off']], 'arp off'],
    ['arp off on the bridge', () => ['host', ['ip', 'link', 'set', 'br0', 'arp', 'off']], 'arp off'],
    ['IPv6 off', () => ['container', ['sysctl', '-qw', 'net.ipv6.conf.eth0.disable_ipv6=1']], 'fd88::2/64'],
    ['promiscuous mode', () => ['host', ['ip', 'link', 'set', 'br0', 'promisc', 'off']], 'promiscuous mode'],
    [
      'MTU of the host end',
      (_l, _c, host) => ['host', ['ip', 'link', 'set', host, 'mtu', '1300']],
      'MTU of host end',
    ],
    ['gateway', () => ['host', ['ip', 'addr', 'del', '10.88.0.1/24', 'dev', 'br0']], '10.88.0.1/24'],
    ['forwarding', () => ['host', ['sysctl', '-qw', 'net.ipv4.ip_forward=0']], 'net/ipv4/ip_forward'],
    [
      'forwarding of the bridge',
      () => ['host', ['sysctl', '-qw', 'net.ipv4.conf.br0.forwarding=0']],
      'net/ipv4/conf/br0/forwarding',
    ],
    [
      'masquerading element',
      () => ['host', ['nft', 'flush', 'set', 'inet', 'catena_masquerade', 'local4']],
      'local4',
    ],
    [
      'masquerading rules',
      () => ['host', ['nft', 'flush', 'chain', 'inet', 'catena_masquerade', 'postrouting']],
      'postrouting',
    ],
    ['all of nftables', () => ['host', ['nft', 'flush', 'ruleset']], 'masquerading'],
    ['lease', lab => ['host', ['rm', `${lab.tmp}/leases/podnet/10.88.0.2`]], '10.88.0.2'],
    ['interface', () => ['container', ['ip', 'link', 'del', 'eth0']], 'eth0'],
  ];

  test.each(tampering)('[1.1.0] reports what was changed: %s', async (what, tamper, words) => {
    await withHost(async lab => {
      const container = await lab.container();
      // One at a time, so that none can pass for another.
      const modes: Row = {
        isolation: { portIsolation: true },
        'promiscuous mode': { promiscMode: true },
        'hairpin mode that was off': {},
      };
      const conf = confOf(lab, { mtu: 1400, ...(modes[what] ?? { hairpinMode: true }) });
      const prevResult = await add(lab, container, conf);
      const check = (env = {}) =>
        lab.plugin('bridge', { command: 'CHECK', conf, container, prevResult, env });
      expect(await check()).toMatchObject({ exitCode: 0 });
      const [where, argv] = tamper(lab, container, prevResult.interfaces[1].name);
      expect(await lab.run(where === 'host' ? lab.host : container, argv)).toMatchObject({ exitCode: 0 });
      expect(await check()).toMatchObject({ exitCode: 1, error: { msg: expect.stringContaining(words) } });
      const mended = [
        'hardware address of the host end',
        'port of the bridge',
        'forwarding of the bridge',
        'port disabled',
        'port that only learns',
      ];
      if (!mended.includes(what) && !/^(hairpin|isolation|arp off|IPv6 off)/.test(what)) return;
      expect(await check({ CATENA_REPAIR: '1' })).toMatchObject({ exitCode: 0 });
      expect(await check()).toMatchObject({ exitCode: 0 });
    });
  });
});

describeNeeding(
  'bridge with a foreign IPAM plugin',
  () => {
    test('[1.0.0] the reference host-local runs in place of ours', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const conf = confOf(lab, { cniVersion: '1.0.0' });
        const bin = `${lab.tmp}/bin`;
        mkdirSync(bin);
        await lab.run(lab.host, ['ln', `${REFERENCE_BIN_DIR}/host-local`, bin]);
        const cniPath = `${bin}:${BIN_DIR}`;
        expect(await lab.plugin('bridge', { command: 'ADD', conf, container, cniPath })).toMatchObject({
          exitCode: 0,
        });
        expect(await ping(lab, container, 'fd88::1')).toBe(true);
        expect(await leasesOf(lab)).toEqual(['10.88.0.2', 'fd88::2']);
        // And ours takes the lease back that the other wrote.
        expect(await lab.plugin('bridge', { command: 'DEL', conf, container })).toMatchObject({
          exitCode: 0,
        });
        expect(await leasesOf(lab)).toEqual([]);
      });
    });
  },
  requiresRoot(),
  requiresReference('host-local'),
);
