// What does the ptp plugin do to a real kernel, and does it take all of it back?
import { expect, test } from 'bun:test';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { type Container, type Lab, type Row, untilAddressed, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import {
  describeNeeding,
  describeRoot,
  requires,
  requiresReference,
  requiresRoot,
  testNeeding,
} from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { echo, ping, startServer } from '../helpers/traffic.ts';

const SKELETON = { ignoreTables: ['inet catena_masquerade'] };

const WRONG = 'lladdr 02:00:00:00:00:09 nud permanent';

function confOf(lab: Lab, more: object = {}) {
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    type: 'ptp',
    ipMasq: true,
    ipam: {
      type: 'host-local',
      ranges: [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]],
      routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
      dataDir: `${lab.tmp}/leases`,
    },
    ...more,
  };
}

/** A node forwards already; turning it on adds anycast routes to interfaces that are none of the plugin's business. */
async function forward(lab: Lab): Promise<void> {
  await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
  await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
}

async function add(lab: Lab, container: Container, conf: object): Promise<Row> {
  const reply = await lab.plugin('ptp', { command: 'ADD', conf, container });
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

function leasesOf(lab: Lab): string[] {
  return readdirSync(`${lab.tmp}/leases/podnet`)
    .filter(name => /^[0-9a-f]+[.:]/.test(name))
    .sort();
}

describeRoot('ptp', () => {
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
      expect(structuredClone(result)).toMatchObject({
        cniVersion,
        interfaces: [
          {
            name: expect.stringMatching(/^veth[0-9a-f]{8}$/),
            mac: expect.stringMatching(/^([0-9a-f]{2}:){5}/),
          },
          { name: 'eth0', mac: expect.stringMatching(/^([0-9a-f]{2}:){5}/), sandbox: one.path },
        ],
        ips: [
          { address: '10.88.0.2/24', gateway: '10.88.0.1', interface: 1 },
          { address: 'fd88::2/64', gateway: 'fd88::1', interface: 1 },
        ],
        routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
      });
      const { v4, v6 } = outside.address;
      for (const address of ['10.88.0.1', 'fd88::1', '10.88.0.3', 'fd88::3', v4, v6]) {
        expect([address, await ping(lab, one, address)]).toEqual([address, true]);
      }
      for (const address of ['10.88.0.2', 'fd88::2']) {
        expect([address, await ping(lab, lab.host, address)]).toEqual([address, true]);
      }
      const call = { conf, container: one };
      const check = await lab.plugin('ptp', { ...call, command: 'CHECK', prevResult: result });
      expect(check).toMatchObject({ exitCode: 0, stdout: '' });
      const status = await lab.plugin('ptp', { command: 'STATUS', conf });
      expect(status).toMatchObject({ exitCode: 0, stdout: '' });
      for (const container of [one, two, two]) {
        const del = await lab.plugin('ptp', { command: 'DEL', conf, container });
        expect(del).toMatchObject({ exitCode: 0, stdout: '' });
      }
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(leasesOf(lab)).toEqual([]);
    });
  });

  test('[1.1.0] ADD routes everything but the gateway through the gateway', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await add(lab, container, confOf(lab, { mtu: 1400 }));
      const routes = async (family: string) => {
        const rows = await lab.ip(container, family, 'route', 'show', 'dev', 'eth0');
        return rows
          .map(({ dst, gateway, prefsrc }) => ({ dst, gateway, prefsrc }))
          .filter(r => r.dst !== 'fe80::/64');
      };
      expect(await routes('-4')).toEqual([
        { dst: 'default', gateway: '10.88.0.1', prefsrc: undefined },
        { dst: '10.88.0.0/24', gateway: '10.88.0.1', prefsrc: '10.88.0.2' },
        { dst: '10.88.0.1', gateway: undefined, prefsrc: '10.88.0.2' },
      ]);
      expect((await routes('-6')).sort((a, b) => (a.dst < b.dst ? -1 : 1))).toEqual([
        { dst: 'default', gateway: 'fd88::1', prefsrc: undefined },
        { dst: 'fd88::/64', gateway: 'fd88::1', prefsrc: 'fd88::2' },
        { dst: 'fd88::1', gateway: undefined, prefsrc: 'fd88::2' },
      ]);
      const [link] = await lab.ip(container, 'link', 'show', 'eth0');
      expect(link).toMatchObject({ mtu: 1400, operstate: 'UP' });
    });
  });

  test.each([
    ['the interface down and up', 'container', ['link set eth0 down', 'link set eth0 up']],
    ['its addresses removed', 'container', ['addr flush dev eth0 scope global']],
    ['its own way to the subnet', 'container', ['route replace 10.88.0.0/24 dev eth0']],
    ['a wrong permanent neighbour', 'container', [`neigh replace 10.88.0.1 ${WRONG} dev eth0`]],
    ['one on the host', 'host', [`neigh replace 10.88.0.2 ${WRONG} dev HOST`]],
    ['another hardware address there', 'host', ['link set HOST address 02:00:00:00:00:08']],
    ['the host end a port', 'host', ['link add br0 type bridge', 'link set HOST master br0']],
  ] as const)('[1.1.0] CHECK reports, and repair mends: %s', async (_, where, damage) => {
    await withHost(async lab => {
      const container = await lab.container();
      await forward(lab);
      const conf = confOf(lab);
      const prevResult = await add(lab, container, conf);
      const before = await lab.dump(container);
      const lines = damage.map(line => line.replace('HOST', prevResult.interfaces[0].name));
      await lab.batch(where === 'host' ? lab.host : container, ...lines);
      const check = (env = {}) =>
        lab.plugin('ptp', { command: 'CHECK', conf: { ...conf, prevResult }, container, env });
      expect(await check()).toMatchObject({ exitCode: 1 });
      expect(await check({ CATENA_REPAIR: '1' })).toMatchObject({ exitCode: 0 });
      expect(await check()).toMatchObject({ exitCode: 0 });
      expect((await lab.dump(container)).routes).toEqual(before.routes);
      for (const address of ['10.88.0.1', 'fd88::1']) expect(await ping(lab, container, address)).toBe(true);
    });
  });

  test('[1.1.0] CHECK says which name the host end had and has', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf(lab);
      const prevResult = await add(lab, container, conf);
      const { name } = prevResult.interfaces[0];
      await lab.batch(
        lab.host,
        `link set ${name} down`,
        `link set ${name} name other0`,
        'link set other0 up',
      );
      const { error } = await lab.plugin('ptp', {
        command: 'CHECK',
        conf: { ...conf, prevResult },
        container,
      });
      expect(error?.msg).toBe(
        `Cannot confirm name of host end of "eth0": expected "${name}", found "other0"`,
      );
    });
  });

  test('[1.1.0] IPv6 that another program turned off at the host end returns', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf(lab);
      const prevResult = await add(lab, container, conf);
      await lab.sysctl(lab.host, `net/ipv6/conf/${prevResult.interfaces[0].name}/disable_ipv6`, 1);
      const env = { CATENA_REPAIR: '1' };
      const repaired = await lab.plugin('ptp', {
        command: 'CHECK',
        conf: { ...conf, prevResult },
        container,
        env,
      });
      expect(repaired).toMatchObject({ exitCode: 0 });
      expect(await ping(lab, container, 'fd88::1')).toBe(true);
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

  testNeeding(
    '[1.1.0] ipMasq with iptables masquerades as well, and leaves no rule',
    async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const outside = await lab.outside();
        const conf = confOf(lab, { ipMasqBackend: 'iptables' });
        expect(await lab.plugin('ptp', { command: 'STATUS', conf })).toMatchObject({ exitCode: 0 });
        const result = await add(lab, container, conf);
        await startServer(lab, outside, { protocol: 'tcp', port: 7000 });
        for (const family of ['v4', 'v6'] as const) {
          const address = outside.address[family];
          const reply = await echo(lab, container, { protocol: 'tcp', address, port: 7000 });
          expect(reply?.peer).toBe(outside.hostAddress[family]);
        }
        const call = { conf, container, prevResult: result };
        expect(await lab.plugin('ptp', { ...call, command: 'CHECK' })).toMatchObject({ exitCode: 0 });
        const ruleset = async () => (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
        expect(await ruleset()).toContain('jump CNI-');
        expect(await lab.plugin('ptp', { ...call, command: 'DEL' })).toMatchObject({ exitCode: 0 });
        expect(await ruleset()).not.toContain('CNI-');
      });
    },
    requires('iptables-restore'),
  );

  test('[1.1.0] an address without a subnet works, and so do two routes for one destination', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const ipam = {
        type: 'static',
        addresses: [
          { address: '10.88.0.2/32', gateway: '169.254.1.1' },
          { address: 'fd88::2/128', gateway: 'fe80::1' },
          { address: '10.89.0.2/24', gateway: '10.89.0.1' },
        ],
        routes: [
          { dst: '0.0.0.0/0', gw: '169.254.1.1' },
          { dst: '0.0.0.0/0', gw: '10.89.0.1' },
          { dst: '::/0' },
        ],
      };
      const conf = confOf(lab, { ipMasq: false, ipam });
      const result = await add(lab, container, conf);
      for (const address of ['169.254.1.1', '10.89.0.1'])
        expect(await ping(lab, container, address)).toBe(true);
      for (const address of ['10.88.0.2', '10.89.0.2', 'fd88::2']) {
        expect([address, await ping(lab, lab.host, address)]).toEqual([address, true]);
      }
      const [route] = await lab.ip(container, '-4', 'route', 'show', 'default');
      expect(route?.nexthops.map((way: Row) => way.gateway)).toEqual(['169.254.1.1', '10.89.0.1']);
      const check = await lab.plugin('ptp', { command: 'CHECK', conf, container, prevResult: result });
      expect(check).toMatchObject({ exitCode: 0 });
    });
  });

  test('[1.1.0] DEL works without the namespace, and continues if IPAM fails', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const before = await lab.dump(lab.host, SKELETON);
      await forward(lab);
      await add(lab, container, confOf(lab));
      const bin = `${lab.tmp}/bin`;
      mkdirSync(bin);
      writeFileSync(`${bin}/host-local`, '#!/bin/sh\necho \'{"code":123,"msg":"no"}\'\nexit 1\n', {
        mode: 0o755,
      });
      const call = { command: 'DEL', conf: confOf(lab), container };
      const failed = await lab.plugin('ptp', { ...call, cniPath: bin, env: { CNI_NETNS: '' } });
      expect(failed.error).toMatchObject({ code: 123, msg: 'no' });
      expect((await lab.dump(lab.host, SKELETON)).links).toEqual(before.links);
      expect((await lab.dump(lab.host, SKELETON)).nft).toEqual(before.nft);
      expect(leasesOf(lab)).toHaveLength(2);
      await lab.remove(container);
      expect(await lab.plugin('ptp', call)).toMatchObject({ exitCode: 0 });
      expect(leasesOf(lab)).toEqual([]);
    });
  });

  test('[1.1.0] GC removes attachments that are not in the list and keeps the rest', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const { interfaces } = await add(lab, one, confOf(lab));
      await untilAddressed(lab.host, interfaces[0].name);
      const before = await lab.dump(lab.host, SKELETON);
      await add(lab, two, confOf(lab));
      const conf = confOf(lab, { 'cni.dev/valid-attachments': [{ containerID: one.id, ifname: 'eth0' }] });
      expect(await lab.plugin('ptp', { command: 'GC', conf })).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(leasesOf(lab)).toEqual(['10.88.0.2', 'fd88::2']);
      const elements = await lab.nft(lab.host, 'list', 'map', 'inet', 'catena_masquerade', 'pods4');
      expect(JSON.stringify(elements)).not.toContain('10.88.0.3');
    });
  });
});

describeRoot('ptp, bad input', () => {
  const bad: [title: string, more: object, code: number, words: string][] = [
    [
      'an address without a gateway',
      { ipam: { type: 'static', addresses: [{ address: '10.1.0.2/24' }] } },
      7,
      '10.1.0.2/24 without a gateway',
    ],
    ['an IPAM plugin that is not there', { ipam: { type: 'nowhere' } }, 999, 'nowhere'],
    ['an MTU that no device has', { mtu: 60 }, 7, '"mtu" is 60'],
    [
      'a gateway of another family',
      { ipam: { type: 'static', addresses: [{ address: '10.1.0.2/24', gateway: 'fd00::1' }] } },
      7,
      'fd00::1 for 10.1.0.2/24: it is of another family',
    ],
  ];
  test.each(bad)('[1.1.0] ADD refuses %s and leaves nothing', async (_, more, code, words) => {
    await withHost(async lab => {
      const container = await lab.container();
      const places = [lab.host, container];
      const before = await Promise.all(places.map(place => lab.dump(place)));
      const reply = await lab.plugin('ptp', { command: 'ADD', conf: confOf(lab, more), container });
      expect(reply.error).toMatchObject({ msg: expect.stringContaining(words) });
      if (code !== 999) expect(reply.error?.code).toBe(code);
      expect(await Promise.all(places.map(place => lab.dump(place)))).toEqual(before);
      expect(await lab.sysctl(lab.host, 'net/ipv4/ip_forward')).toBe('0');
    });
  });

  test('[0.2.0] the result has no interfaces, as in that version', async () => {
    await withHost(async lab => {
      const conf = confOf(lab, { cniVersion: '0.2.0' });
      const result = await add(lab, await lab.container(), conf);
      expect(result).toMatchObject({ ip4: { ip: '10.88.0.2/24' }, ip6: { ip: 'fd88::2/64' } });
    });
  });
});

describeRoot('ptp CHECK', () => {
  const inside = (...args: string[]) => ({ where: 'container' as const, argv: ['ip', ...args] });
  const outside = (...args: string[]) => ({ where: 'host' as const, argv: args });
  const changes: [title: string, change: { where: 'container' | 'host'; argv: string[] }, words: string][] = [
    ['address', inside('addr', 'del', '10.88.0.2/24', 'dev', 'eth0'), '10.88.0.2/24'],
    ['IPv6 address', inside('addr', 'del', 'fd88::2/64', 'dev', 'eth0'), 'fd88::2/64'],
    ['default route', inside('route', 'del', 'default'), '0.0.0.0/0 via 10.88.0.1'],
    ['route to the gateway', inside('-6', 'route', 'del', 'fd88::1'), 'fd88::1/128 src fd88::2'],
    ['route to the subnet', inside('route', 'del', '10.88.0.0/24'), '10.88.0.0/24 via 10.88.0.1'],
    [
      'subnet on the link',
      inside('route', 'add', '10.88.0.0/24', 'dev', 'eth0', 'metric', '9'),
      'without gateway: expected nothing, found "10.88.0.0/24"',
    ],
    ['hardware address', inside('link', 'set', 'eth0', 'address', '0a:00:00:00:00:01'), 'hardware address'],
    ['MTU', inside('link', 'set', 'eth0', 'mtu', '1300'), 'MTU'],
    ['gateway', outside('ip', 'addr', 'del', '10.88.0.1/32', 'dev', 'HOST'), '10.88.0.1/32'],
    ['route to the container', outside('ip', '-6', 'route', 'del', 'fd88::2'), 'fd88::2/128'],
    ['host end down', outside('ip', 'link', 'set', 'HOST', 'down'), 'state of host end'],
    ['forwarding', outside('sysctl', '-w', 'net.ipv4.ip_forward=0'), 'net/ipv4/ip_forward'],
    [
      'forwarding of the host end',
      outside('sysctl', '-w', 'net/ipv4/conf/HOST/forwarding=0'),
      'net/ipv4/conf/veth',
    ],
    ['masquerading', outside('nft', 'flush', 'ruleset'), 'masquerading'],
    ['lease', outside('find', 'TMP/leases', '-name', '10.88.0.2', '-delete'), '10.88.0.2'],
    ['interface', inside('link', 'del', 'eth0'), 'interface "eth0": it is gone'],
  ];
  test.each(changes)('[1.1.0] reports what was changed: %s', async (_, { where, argv }, words) => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf(lab, { mtu: 1400 });
      const result = await add(lab, container, conf);
      const host = result.interfaces[0].name;
      const command = argv.map(word => word.replace('HOST', host).replace('TMP', lab.tmp));
      expect(await lab.run(where === 'host' ? lab.host : container, command)).toMatchObject({ exitCode: 0 });
      const reply = await lab.plugin('ptp', { command: 'CHECK', conf, container, prevResult: result });
      expect(reply.error?.msg).toContain(words);
    });
  });
});

describeNeeding(
  'ptp next to the reference',
  () => {
    test('[1.0.0] each checks and deletes attachments of the other', async () => {
      await withHost(async lab => {
        await forward(lab);
        const conf = confOf(lab, { cniVersion: '1.0.0', ipMasq: false });
        for (const [mine, other] of [
          [BIN_DIR, REFERENCE_BIN_DIR],
          [REFERENCE_BIN_DIR, BIN_DIR],
        ] as const) {
          const container = await lab.container();
          const before = await lab.dump(lab.host);
          const call = { conf, container };
          const { result, exitCode } = await lab.plugin('ptp', { ...call, command: 'ADD', binDir: mine });
          expect(exitCode).toBe(0);
          const check = await lab.plugin('ptp', {
            ...call,
            command: 'CHECK',
            binDir: other,
            prevResult: result,
          });
          expect(check).toMatchObject({ exitCode: 0 });
          expect(await lab.plugin('ptp', { ...call, command: 'DEL', binDir: other })).toMatchObject({
            exitCode: 0,
          });
          expect(await lab.dump(lab.host)).toEqual(before);
        }
      });
    });

    test('[1.0.0] DEL removes the masquerading of the reference', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const call = { conf: confOf(lab, { cniVersion: '1.0.0' }), container };
        const { result } = await lab.plugin('ptp', { ...call, command: 'ADD', binDir: REFERENCE_BIN_DIR });
        const ruleset = async () => (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
        expect(await ruleset()).toContain('jump CNI-');
        const check = await lab.plugin('ptp', { ...call, command: 'CHECK', prevResult: result });
        expect(check).toMatchObject({ exitCode: 0 });
        const gone = { ...call, env: { CNI_NETNS: '' }, prevResult: result };
        expect(await lab.plugin('ptp', { ...gone, command: 'DEL' })).toMatchObject({ exitCode: 0 });
        expect(await ruleset()).not.toContain('CNI-');
        expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toEqual([]);
      });
    });
  },
  requiresRoot(),
  requiresReference('ptp', 'host-local'),
  requires('iptables'),
);
