// Does the bridge plugin get along with bridges, pairs and addresses that others made?
import { expect, test } from 'bun:test';
import { mkdirSync, writeFileSync } from 'node:fs';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

const HAND_MADE = '02:00:00:00:00:77';

function confOf(lab: Lab, more: object = {}) {
  const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
  return {
    cniVersion: '1.0.0',
    name: 'podnet',
    type: 'bridge',
    bridge: 'br0',
    isGateway: true,
    ipam,
    ...more,
  };
}

async function prepare(lab: Lab, ...lines: string[]): Promise<void> {
  for (const line of lines) {
    expect(await lab.run(lab.host, line.split(' '))).toMatchObject({ exitCode: 0 });
  }
}

/** A bridge that has the gateway, no hardware address of its own, and a port with this one. */
async function prepareBridgeWithPort(lab: Lab, mac: string): Promise<void> {
  await prepare(
    lab,
    'ip link add br0 type bridge',
    'ip addr add 10.88.0.1/24 dev br0',
    `ip link add x0 address ${mac} type veth peer name x1`,
    'ip link set x0 master br0',
  );
}

/** Link-local addresses of new interfaces take a moment until they are there, and a second until they are checked. */
async function untilSettled(lab: Lab): Promise<void> {
  for (let last = ''; ; ) {
    const now = JSON.stringify(await lab.dump(lab.host));
    if (now === last && !now.includes('tentative')) return;
    last = now;
    await Bun.sleep(500);
  }
}

async function call(lab: Lab, command: string, conf: object, container: Container, more: object = {}) {
  const reply = await lab.plugin('bridge', { command, conf, container, ...more });
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

const macOf = async (lab: Lab) => (await lab.ip(lab.host, 'link', 'show', 'br0'))[0]?.address;

const globalAddresses = async (lab: Lab, device: string) =>
  ((await lab.ip(lab.host, 'addr', 'show', 'dev', device))[0]?.addr_info ?? [])
    .filter((one: { scope: string }) => one.scope === 'global')
    .map((one: { local: string; prefixlen: number }) => `${one.local}/${one.prefixlen}`);

describeRoot('bridge, on an existing bridge', () => {
  test('[1.0.0] an existing bridge without ports and hardware address gets a fixed one', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      await prepare(
        lab,
        'ip link add br0 type bridge',
        'ip link add x0 type veth peer name x1',
        'ip link set x0 master br0',
        'ip link del x0',
      );
      expect(await macOf(lab)).toBe('00:00:00:00:00:00');
      const result = await call(lab, 'ADD', confOf(lab), one);
      const mac = await macOf(lab);
      expect(mac).not.toBe('00:00:00:00:00:00');
      expect(result.interfaces[0]).toEqual({ name: 'br0', mac });
      await call(lab, 'ADD', confOf(lab), two);
      await call(lab, 'DEL', confOf(lab), one);
      expect(await macOf(lab)).toBe(mac);
      expect(await ping(lab, two, '10.88.0.1')).toBe(true);
    });
  });

  test('[1.0.0] an existing bridge that already has the gateway keeps its hardware address', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      // Above all others: the kernel gives the bridge the lowest of its ports.
      await prepareBridgeWithPort(lab, 'fe:ff:ff:ff:ff:fe');
      const before = await macOf(lab);
      const result = await call(lab, 'ADD', confOf(lab), container);
      expect(await macOf(lab)).toBe(before);
      expect(result.interfaces[0].mac).toBe(before);
      await call(lab, 'CHECK', confOf(lab), container, { prevResult: result });
    });
  });

  test('[1.0.0] an existing bridge without a gateway keeps the hardware address that it has from its port', async () => {
    await withHost(async lab => {
      await prepareBridgeWithPort(lab, 'fa:ff:ff:ff:ff:fe');
      const conf = confOf(lab, { isGateway: false });
      for (const container of [await lab.container(), await lab.container()]) {
        const { interfaces } = await call(lab, 'ADD', conf, container);
        expect([interfaces[0].mac, await macOf(lab)]).toEqual(['fa:ff:ff:ff:ff:fe', 'fa:ff:ff:ff:ff:fe']);
      }
    });
  });

  test('[1.0.0] CHECK accepts a bridge that is configured by an alternative name', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await prepare(lab, 'ip link add br0 type bridge', 'ip link property add dev br0 altname uplinks');
      const conf = confOf(lab, { bridge: 'uplinks' });
      const prevResult = await call(lab, 'ADD', conf, container);
      expect(prevResult.interfaces[0].name).toBe('br0');
      await call(lab, 'CHECK', conf, container, { prevResult });
    });
  });

  test('[1.0.0] the hardware address stays when the lowest port joins or leaves later', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await prepareBridgeWithPort(lab, '02:00:00:00:00:02');
      const result = await call(lab, 'ADD', confOf(lab), container);
      expect(result.interfaces[0].mac).toBe('02:00:00:00:00:02');
      await prepare(
        lab,
        'ip link add y0 address 02:00:00:00:00:01 type veth peer name y1',
        'ip link set y0 master br0',
        'ip link del x0',
      );
      expect(await macOf(lab)).toBe('02:00:00:00:00:02');
      await call(lab, 'CHECK', confOf(lab), container, { prevResult: result });
    });
  });

  test('[1.0.0] the result has the hardware address that another program set while ADD waited', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await prepare(lab, 'ip link add br0 up type bridge', 'ip addr add 10.88.0.1/24 dev br0');
      // ADD waits until the container's addresses are settled: for three seconds, as another program's step may take a while.
      await lab.sysctl(container, 'net/ipv6/conf/default/dad_transmits', 3);
      const adding = call(lab, 'ADD', confOf(lab, { enabledad: true }), container);
      const addresses = async () =>
        (await lab.ip(container, 'addr', 'show', 'up')).flatMap(one => one.addr_info ?? []);
      await until(async () => (await addresses()).some((one: { family?: string }) => one.family === 'inet'));
      await prepare(lab, `ip link set br0 address ${HAND_MADE}`);
      expect((await adding).interfaces[0].mac).toBe(HAND_MADE);
    });
  });

  test('[1.0.0] without a gateway the hardware address may change, and the result has the new one', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await prepare(lab, 'ip link add br0 type bridge');
      const conf = confOf(lab, { ipam: {}, isGateway: false });
      const result = await call(lab, 'ADD', conf, container);
      expect(result.interfaces[0].mac).toBe(await macOf(lab));
      await call(lab, 'CHECK', conf, container, { prevResult: result });
    });
  });

  test('[1.0.0] an existing bridge keeps its addresses and ports', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await prepare(
        lab,
        `ip link add br0 address ${HAND_MADE} type bridge`,
        'ip addr add 172.30.0.1/24 dev br0',
        'ip addr add fd30::1/64 dev br0 nodad',
        'ip link add x0 type veth peer name x1',
        'ip link set x0 master br0',
      );
      const conf = confOf(lab, { promiscMode: true });
      await call(lab, 'ADD', conf, container);
      await call(lab, 'DEL', conf, container);
      const [link] = await lab.ip(lab.host, 'link', 'show', 'br0');
      expect(link).toMatchObject({
        address: HAND_MADE,
        flags: expect.arrayContaining(['UP', 'PROMISC']),
      });
      expect(await globalAddresses(lab, 'br0')).toEqual(['172.30.0.1/24', '10.88.0.1/24', 'fd30::1/64']);
      expect((await lab.ip(lab.host, 'link', 'show', 'x0'))[0]).toMatchObject({ master: 'br0' });
    });
  });

  test('[1.1.0] a device of another kind with the name of the bridge is refused, by STATUS too', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await prepare(lab, 'ip link add br0 type veth peer name x0');
      const conf = confOf(lab, { cniVersion: '1.1.0' });
      const before = await lab.dump(lab.host);
      const add = await lab.plugin('bridge', { command: 'ADD', conf, container });
      expect(add.error).toMatchObject({ code: 7, msg: expect.stringContaining('of kind "veth"') });
      expect(await lab.dump(lab.host)).toEqual(before);
      const status = await lab.plugin('bridge', { command: 'STATUS', conf });
      expect(status.error).toMatchObject({ code: 50, msg: expect.stringContaining('of kind "veth"') });
    });
  });
});

describeRoot('bridge, several subnets', () => {
  const sets = (...subnets: string[]) => subnets.map(subnet => [{ subnet }]);

  test('[1.0.0] every range set of both families has its gateway on the bridge', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const ranges = sets('10.88.0.0/24', '10.89.0.0/24', 'fd88::/64', 'fd89::/64');
      const conf = confOf(lab, {
        isDefaultGateway: true,
        ipMasq: true,
        ipam: { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` },
      });
      const result = await call(lab, 'ADD', conf, one);
      await call(lab, 'ADD', conf, two);
      expect((await globalAddresses(lab, 'br0')).sort()).toEqual([
        '10.88.0.1/24',
        '10.89.0.1/24',
        'fd88::1/64',
        'fd89::1/64',
      ]);
      for (const address of ['10.88.0.1', '10.89.0.1', '10.89.0.3', 'fd88::1', 'fd89::3']) {
        expect([address, await ping(lab, one, address)]).toEqual([address, true]);
      }
      expect(result.routes).toEqual([
        { dst: '0.0.0.0/0', gw: '10.88.0.1' },
        { dst: '::/0', gw: 'fd88::1' },
      ]);
      await call(lab, 'CHECK', conf, one, { prevResult: result });
    });
  });

  test('[1.0.0] a link-local gateway coexists with the address that the kernel assigns to the bridge', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const ranges = [[{ subnet: 'fd88::/64', gateway: 'fe80::1' }]];
      const ipam = { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` };
      const conf = confOf(lab, { isDefaultGateway: true, ipam });
      const prevResult = await call(lab, 'ADD', conf, container);
      await call(lab, 'CHECK', conf, container, { prevResult });
      const local = (await lab.ip(lab.host, '-6', 'addr', 'show', 'dev', 'br0'))[0]?.addr_info.map(
        (one: { local: string }) => one.local,
      );
      expect(local).toHaveLength(2);
      expect(local).toContain('fe80::1');
      expect((await lab.ip(container, '-6', 'route', 'show', 'default'))[0]).toMatchObject({
        gateway: 'fe80::1',
      });
    });
  });

  test('[1.0.0] several gateways for one destination become one route, with its MTU', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const dst = '10.99.0.0/16';
      const routes = [
        { dst, gw: '10.88.0.1', mtu: 1300, advmss: 1200 },
        { dst, gw: '10.88.0.9', mtu: 1300, advmss: 1200 },
        { dst: '10.98.0.0/16', priority: 50, table: 4000 },
      ];
      const ipam = { type: 'host-local', subnet: '10.88.0.0/24', routes, dataDir: `${lab.tmp}/leases` };
      const conf = confOf(lab, { cniVersion: '1.1.0', ipam });
      const result = await call(lab, 'ADD', conf, container);
      expect(result.routes).toEqual(routes);
      const [route] = await lab.ip(container, 'route', 'show', dst);
      expect(route?.nexthops.map((hop: { gateway: string }) => hop.gateway)).toEqual([
        '10.88.0.1',
        '10.88.0.9',
      ]);
      expect(route?.metrics).toEqual([{ mtu: 1300, advmss: 1200 }]);
      expect(await lab.ip(container, 'route', 'show', 'table', '4000')).toMatchObject([
        { dst: '10.98.0.0/16', gateway: '10.88.0.1', metric: 50 },
      ]);
      await call(lab, 'CHECK', conf, container, { prevResult: result });
      await lab.run(container, ['ip', 'route', 'flush', 'table', '4000']);
      const check = await lab.plugin('bridge', { command: 'CHECK', conf, container, prevResult: result });
      expect(check.error?.msg).toContain('10.98.0.0/16 via 10.88.0.1 table 4000');
    });
  });
});

describeRoot('bridge, container interface', () => {
  test('[1.0.0] "enabledad" waits until the addresses may be used', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const ranges = [[{ subnet: 'fd88::/64' }]];
      const conf = confOf(lab, {
        enabledad: true,
        ipam: { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` },
      });
      await call(lab, 'ADD', conf, container);
      const [addresses] = await lab.ip(container, 'addr', 'show', 'dev', 'eth0');
      expect(JSON.stringify(addresses)).not.toContain('tentative');
      expect(await lab.sysctl(container, 'net/ipv6/conf/eth0/accept_dad')).toBe('1');
    });
  });

  test('[1.0.0] "enabledad" detects a duplicate address, and ADD leaves nothing', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const conf = (name: string) =>
        confOf(lab, {
          name,
          enabledad: true,
          ipam: { type: 'host-local', ranges: [[{ subnet: 'fd88::/64' }]], dataDir: `${lab.tmp}/${name}` },
        });
      await call(lab, 'ADD', conf('first'), one);
      await untilSettled(lab);
      const before = await lab.dump(lab.host);
      const reply = await lab.plugin('bridge', { command: 'ADD', conf: conf('second'), container: two });
      expect(reply.error?.msg).toContain('Cannot use fd88::2/64 on "eth0": another host');
      expect(await lab.dump(lab.host)).toEqual(before);
      expect((await lab.ip(two, 'link')).map(link => link.ifname)).toEqual(['lo']);
    });
  });

  test('[1.0.0] "disableContainerInterface" leaves the interface down', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf(lab, { ipam: {}, isGateway: false, disableContainerInterface: true });
      const prevResult = await call(lab, 'ADD', conf, container);
      const [link] = await lab.ip(container, 'addr', 'show', 'eth0');
      expect(link).toMatchObject({ operstate: 'DOWN', addr_info: [] });
      await call(lab, 'CHECK', conf, container, { prevResult });
    });
  });

  test('[1.0.0] a hardware address that was requested is that of the interface, or refused', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const before = await lab.dump(lab.host);
      const asking = (mac: string) =>
        confOf(lab, { args: { cni: { mac: '0a:58:00:00:00:02' } }, RuntimeConfig: { mac } });
      const bad = { command: 'ADD', conf: asking('01:00:5e:00:00:01'), container };
      expect((await lab.plugin('bridge', bad)).error).toMatchObject({ code: 7 });
      expect(await lab.dump(lab.host)).toEqual(before);
      const result = await call(lab, 'ADD', asking('0A-58-00-00-00-03'), container);
      expect(result.interfaces[2].mac).toBe('0a:58:00:00:00:03');
      expect((await lab.ip(container, 'link', 'show', 'eth0'))[0]?.address).toBe('0a:58:00:00:00:03');
    });
  });

  test.each(['0.1.0', '0.2.0'])(
    '[%s] cannot express a result of layer 2, so ADD fails and leaves nothing',
    async cniVersion => {
      await withHost(async lab => {
        const container = await lab.container();
        const before = await lab.dump(lab.host);
        const conf = confOf(lab, { cniVersion, ipam: {}, isGateway: false });
        const reply = await lab.plugin('bridge', { command: 'ADD', conf, container });
        expect(reply.exitCode).toBe(1);
        expect(await lab.dump(lab.host)).toEqual(before);
        expect((await lab.ip(container, 'link')).map(link => link.ifname)).toEqual(['lo']);
      });
    },
  );
});

describeRoot('bridge DEL with partial state', () => {
  test('[1.0.0] a container id of any length marks the pair', async () => {
    await withHost(async lab => {
      const container = { ...(await lab.container()), id: `a${'-very'.repeat(60)}-long-id` };
      await call(lab, 'ADD', confOf(lab), container);
      // Without its path the namespace cannot be entered.
      await call(lab, 'DEL', confOf(lab), { ...container, path: '/nonexistent' });
      expect((await lab.ip(container, 'link')).map(link => link.ifname)).toEqual(['lo']);
    });
  });

  test('[1.0.0] an interface that was renamed in the container is deleted', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await call(lab, 'ADD', confOf(lab), container);
      for (const line of ['ip link set eth0 down', 'ip link set eth0 name other0']) {
        await lab.run(container, line.split(' '));
      }
      await call(lab, 'DEL', confOf(lab), container);
      expect((await lab.ip(container, 'link')).map(link => link.ifname)).toEqual(['lo']);
    });
  });

  test('[1.0.0] DEL removes everything although the options are invalid now', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
      const before = await lab.dump(lab.host);
      const prevResult = await call(lab, 'ADD', confOf(lab), container);
      const conf = confOf(lab, { bridge: 'a/b', vlan: 5000, ipMasqBackend: 'none', mtu: -1 });
      await call(lab, 'DEL', conf, container, { prevResult });
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  test('[1.1.0] GC removes pairs of this network only, and the bridge after the last', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const conf = (name: string, bridge: string) =>
        confOf(lab, { cniVersion: '1.1.0', name, bridge, ipam: {} });
      await call(lab, 'ADD', conf('first', 'br1'), one);
      await call(lab, 'ADD', conf('second', 'br2'), two);
      const gc = { ...conf('first', 'br1'), 'cni.dev/valid-attachments': [] };
      expect(await lab.plugin('bridge', { command: 'GC', conf: gc })).toMatchObject({ exitCode: 0 });
      const names = (await lab.ip(lab.host, 'link')).map(link => link.ifname);
      expect(names).not.toContain('br1');
      expect(names).toContain('br2');
      expect((await lab.ip(two, 'link')).map(link => link.ifname)).toEqual(['lo', 'eth0']);
    });
  });
});

describeRoot('bridge STATUS', () => {
  const readOnly = 'mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec "$0"';

  async function statusReadOnly(lab: Lab, conf: object) {
    const env = { CNI_COMMAND: 'STATUS', CNI_PATH: BIN_DIR };
    const argv = ['unshare', '--mount', 'sh', '-c', readOnly, `${BIN_DIR}/bridge`];
    const { exitCode, stdout } = await lab.run(lab.host, argv, { env, stdin: JSON.stringify(conf) });
    return exitCode === 0 ? { code: 0 } : JSON.parse(stdout);
  }

  test('[1.1.0] warns of chains on the host that drop forwarded packets', async () => {
    await withHost(async lab => {
      const chain = '{ type filter hook forward priority 0; policy drop; }';
      await lab.run(lab.host, ['nft', `add table ip other; add chain ip other fw ${chain}`]);
      const words = expect.stringContaining('drops forwarded packets');
      for (const isGateway of [true, false]) {
        const conf = { ...confOf(lab, { cniVersion: '1.1.0' }), isGateway };
        const { exitCode, stderr } = await lab.plugin('bridge', { command: 'STATUS', conf });
        expect([exitCode, stderr]).toEqual([0, isGateway ? words : '']);
      }
    });
  });

  test.each([{}, { ipMasq: true }, { ipMasq: true, ipMasqBackend: 'iptables' }, { macspoofchk: true }])(
    '[1.1.0] succeeds with %j, and changes nothing',
    async options => {
      await withHost(async lab => {
        const before = await lab.dump(lab.host);
        const conf = confOf(lab, { cniVersion: '1.1.0', ...options });
        expect(await lab.plugin('bridge', { command: 'STATUS', conf })).toMatchObject({
          exitCode: 0,
          stdout: '',
        });
        expect(await lab.dump(lab.host)).toEqual(before);
      });
    },
  );

  test('[1.1.0] forwarding that cannot be enabled is code 50, and 51 once containers need it', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf(lab, { cniVersion: '1.1.0' });
      expect(await statusReadOnly(lab, conf)).toMatchObject({
        code: 50,
        msg: expect.stringContaining('forwarding'),
      });
      await call(lab, 'ADD', conf, container);
      expect(await statusReadOnly(lab, conf)).toMatchObject({ code: 0 });
      await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 0);
      expect(await statusReadOnly(lab, conf)).toMatchObject({
        code: 51,
        msg: expect.stringContaining('IPv4'),
      });
    });
  });
});

describeRoot('bridge, whose ADD fails after another container has joined', () => {
  test('[1.0.0] the groups that the other needs are still forwarded', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      await prepare(lab, 'ip link add br0 up type bridge');
      const conf = confOf(lab, { groupFwdMask: 8 });
      const [bin, go] = [`${lab.tmp}/bin`, `${lab.tmp}/go`];
      mkdirSync(bin);
      const waits = `#!/bin/sh\nwhile [ ! -e ${go} ]; do sleep 0.02; done\nexit 1\n`;
      writeFileSync(`${bin}/stuck`, waits, { mode: 0o755 });
      const failing = lab.plugin('bridge', {
        command: 'ADD',
        conf: { ...conf, ipam: { type: 'stuck' } },
        container: one,
        cniPath: bin,
      });
      const mask = async () =>
        (await lab.ip(lab.host, 'link', 'show', 'br0'))[0]?.linkinfo.info_data.group_fwd_mask;
      await until(async () => (await mask()) === '0x8');
      const prevResult = await call(lab, 'ADD', conf, two);
      writeFileSync(go, '');
      expect(await failing).toMatchObject({ exitCode: 1 });
      await call(lab, 'CHECK', conf, two, { prevResult });
    });
  });

  test("[1.0.0] the other's IPv6 gateway stays where the host disables IPv6 by default", async () => {
    await withHost(async lab => {
      const [holder, one, two] = [await lab.container(), await lab.container(), await lab.container()];
      await lab.sysctl(lab.host, 'net/ipv6/conf/default/disable_ipv6', 1);
      await call(lab, 'ADD', confOf(lab, { name: 'other', isGateway: false, ipam: {} }), holder);
      await prepare(lab, `ip -n ${holder.name} addr add fd88::2/64 dev eth0 nodad`);
      const withAddress = (address: string, more = {}) =>
        confOf(lab, {
          ipam: { type: 'static', addresses: [{ address, gateway: 'fd88::1' }] },
          ...more,
        });
      // It finds out after three seconds that another has its address.
      await lab.sysctl(one, 'net/ipv6/conf/default/dad_transmits', 3);
      const conf = withAddress('fd88::2/64', { enabledad: true });
      const failing = lab.plugin('bridge', { command: 'ADD', conf, container: one });
      await until(async () => (await globalAddresses(lab, 'br0')).length > 0);
      const prevResult = await call(lab, 'ADD', withAddress('fd88::3/64'), two);
      expect((await failing).error?.msg).toContain('another host on the network has that address');
      await call(lab, 'CHECK', withAddress('fd88::3/64'), two, { prevResult });
      expect(await ping(lab, two, 'fd88::1')).toBe(true);
    });
  });
});

describeRoot(
  'bridge and the reference on one bridge',
  () => {
    test('[1.0.0] each attaches next to the other, and deletes attachments of the other', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        const conf = confOf(lab, { isDefaultGateway: true });
        const theirs = { binDir: REFERENCE_BIN_DIR };
        const first = await call(lab, 'ADD', conf, one, theirs);
        const second = await call(lab, 'ADD', conf, two);
        expect(second.interfaces[0]).toEqual(first.interfaces[0]);
        expect(await ping(lab, two, '10.88.0.2')).toBe(true);
        await call(lab, 'CHECK', conf, one, { prevResult: first });
        await call(lab, 'CHECK', conf, two, { prevResult: second, ...theirs });
        await call(lab, 'DEL', conf, one);
        await call(lab, 'DEL', conf, two, theirs);
        for (const container of [one, two]) {
          expect((await lab.ip(container, 'link')).map(link => link.ifname)).toEqual(['lo']);
        }
        // It made the bridge, so it stays.
        expect(await globalAddresses(lab, 'br0')).toEqual(['10.88.0.1/24']);
      });
    });

    test('[1.0.0] a pair of the reference is deleted by its result if the namespace is missing', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const conf = confOf(lab);
        const prevResult = await call(lab, 'ADD', conf, container, { binDir: REFERENCE_BIN_DIR });
        await call(lab, 'DEL', conf, { ...container, path: '/nonexistent' }, { prevResult });
        expect((await lab.ip(container, 'link')).map(link => link.ifname)).toEqual(['lo']);
      });
    });
  },
  requiresReference('bridge', 'host-local'),
);
