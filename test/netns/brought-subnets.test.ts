// What can a container bring its host by the addresses that it asks for? Neither a subnet nor a route.
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { type Container, type Lab, type Row, untilAddressed, withHost } from '../helpers/netns.ts';
import { BIN_DIR, type PluginCall } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

const STATIC = { type: 'static', addresses: [{ address: '10.66.0.9/24', gateway: '10.66.0.1' }] };

function confOf(type: string, ipam: Row, more: Row = {}): Row {
  const bridge = type === 'bridge' ? { bridge: 'sec0', isGateway: true } : {};
  return { cniVersion: '1.0.0', name: 'podnet', type, ...bridge, ipam, ...more };
}

type Asking = Pick<PluginCall, 'args'> & { readonly conf?: Row };

/** The ways in which a pod's address gets to a plugin. */
const WAYS: [string, (ip: string) => Asking][] = [
  ['the capability ips', ip => ({ conf: { runtimeConfig: { ips: [ip] } } })],
  ['args.cni.ips', ip => ({ conf: { args: { cni: { ips: [ip] } } } })],
  ['CNI_ARGS', ip => ({ args: `IgnoreUnknown=1;IP=${ip};GATEWAY=10.66.0.1` })],
];

function add(lab: Lab, type: string, container: Container, ipam: Row, { conf = {}, args }: Asking) {
  const own = args === undefined ? {} : { args };
  return lab.plugin(type, { command: 'ADD', conf: confOf(type, ipam, conf), container, ...own });
}

/** Addresses of the host, but for the kernel's own. */
async function addressesOf(lab: Lab): Promise<string[]> {
  return (await lab.ip(lab.host, 'addr')).flatMap(({ ifname, addr_info: all }) =>
    all
      .filter((one: Row) => one.scope === 'global')
      .map((one: Row) => `${one.local}/${one.prefixlen} ${ifname}`),
  );
}

const wayTo = async (lab: Lab, address: string) =>
  (await lab.run(lab.host, ['ip', 'route', 'get', address])).exitCode === 0;

describeRoot('a subnet that a container asks for', () => {
  test.each(WAYS)('by %s gives the bridge no address and the host no route', async (_, asking) => {
    await withHost(async lab => {
      // The configured gateway lies in some of them: it would come with the prefix of the container.
      for (const ip of [
        '8.8.8.8/8',
        '8.8.8.8/32',
        '10.66.0.7/8',
        '10.66.0.7/1',
        '10.66.0.7/23',
        'fd00:5::5/64',
      ]) {
        const { addresses: _, ...without } = STATIC;
        for (const ipam of [STATIC, without]) {
          const container = await lab.container();
          const before = await lab.dump(lab.host);
          const { error } = await add(lab, 'bridge', container, ipam, asking(ip));
          expect(error).toMatchObject({ code: 7, msg: expect.stringContaining('Cannot add gateway') });
          expect(await lab.dump(lab.host)).toMatchObject({ links: before.links, routes: before.routes });
        }
      }
      const pods = await lab.container();
      expect((await add(lab, 'bridge', pods, STATIC, {})).exitCode).toBe(0);
      for (const conf of [{}, { forceAddress: true }]) {
        const asked = asking('10.66.0.7/16');
        const late = await lab.container();
        const refused = await add(lab, 'bridge', late, STATIC, {
          ...asked,
          conf: { ...asked.conf, ...conf },
        });
        expect(refused.error).toMatchObject({ code: 7 });
        expect(await addressesOf(lab)).toEqual(['10.66.0.1/24 sec0']);
        expect(await wayTo(lab, '10.66.9.9')).toBe(false);
      }
    });
  });

  test.each(WAYS)('by %s is accepted if the configuration or the bridge has it', async (_, asking) => {
    await withHost(async lab => {
      const dataDir = `${lab.tmp}/leases`;
      const ranges = [[{ subnet: '10.67.0.0/24' }]];
      const [one, two, three] = [await lab.container(), await lab.container(), await lab.container()];
      expect((await add(lab, 'bridge', one, STATIC, asking('10.66.0.7/24'))).exitCode).toBe(0);
      expect(await ping(lab, one, '10.66.0.1')).toBe(true);
      const hostLocal = { type: 'host-local', dataDir, ranges };
      expect((await add(lab, 'bridge', two, hostLocal, asking('10.67.0.7'))).exitCode).toBe(0);
      expect(await ping(lab, two, '10.67.0.1')).toBe(true);
      // A bridge that the node's owner has given an address.
      await lab.ip(lab.host, 'addr', 'add', '10.68.0.1/24', 'dev', 'sec0');
      const bare = { type: 'static' };
      expect((await add(lab, 'bridge', three, bare, asking('10.68.0.7/24'))).exitCode).toBe(0);
      expect(await ping(lab, three, '10.68.0.1')).toBe(true);
    });
  });

  test('by the capability ipRanges is accepted, since it comes from the runtime', async () => {
    await withHost(async lab => {
      const ipam = { type: 'host-local', dataDir: `${lab.tmp}/leases` };
      const conf = { runtimeConfig: { ipRanges: [[{ subnet: '10.69.0.0/24' }]] } };
      for (const type of ['bridge', 'ptp']) {
        const container = await lab.container();
        expect((await add(lab, type, container, ipam, { conf })).exitCode).toBe(0);
        expect(await ping(lab, container, '10.69.0.1')).toBe(true);
      }
    });
  });

  test.each(WAYS)('by %s gives the host no route by ptp either', async (_, asking) => {
    await withHost(async lab => {
      for (const ip of ['8.8.8.8/0', '10.0.0.53/8', '10.66.1.7/23']) {
        const container = await lab.container();
        const before = await lab.dump(lab.host);
        const { error } = await add(lab, 'ptp', container, STATIC, asking(ip));
        expect(error).toMatchObject({ code: 7, msg: expect.stringContaining('the host would get a route') });
        expect(await lab.dump(lab.host)).toMatchObject({ links: before.links, routes: before.routes });
      }
      const container = await lab.container();
      expect((await add(lab, 'ptp', container, STATIC, asking('10.66.0.7/24'))).exitCode).toBe(0);
      expect(await ping(lab, container, '10.66.0.1')).toBe(true);
    });
  });
});

/** A third-party IPAM plugin, which gives each container what the test has written down for it. */
function writePool(lab: Lab): {
  cniPath: string;
  give(container: Container, address: string, gateway?: string): void;
} {
  const dir = `${lab.tmp}/bin`;
  fs.mkdirSync(dir, { recursive: true });
  const script = ['#!/bin/sh', `[ $CNI_COMMAND = ADD ] && exec cat ${dir}/$CNI_CONTAINERID`, 'exit 0', ''];
  fs.writeFileSync(`${dir}/pool`, script.join('\n'), { mode: 0o755 });
  return {
    cniPath: `${dir}:${BIN_DIR}`,
    give(container, address, gateway) {
      const ips = [{ address, ...(gateway ? { gateway } : {}) }];
      fs.writeFileSync(`${dir}/${container.id}`, JSON.stringify({ cniVersion: '1.0.0', ips }));
    },
  };
}

describeRoot('a subnet that the IPAM plugin chooses', () => {
  test('is removed with its last container, while the bridge stays for others', async () => {
    await withHost(async lab => {
      const pool = writePool(lab);
      const conf = confOf('bridge', { type: 'pool' });
      const call = (command: string, container: Container, prevResult?: unknown) =>
        lab.plugin('bridge', { command, conf, container, cniPath: pool.cniPath, prevResult });
      const pods: [Container, unknown][] = [];
      for (const address of ['10.70.0.5/24', '10.70.0.6/24', '10.71.0.5/24']) {
        const container = await lab.container();
        pool.give(container, address);
        const added = await call('ADD', container);
        expect(added.exitCode).toBe(0);
        pods.push([container, added.result]);
      }
      const [one, two, three] = pods as [[Container, unknown], [Container, unknown], [Container, unknown]];
      const both = ['10.70.0.1/24 sec0', '10.71.0.1/24 sec0'];
      expect(await addressesOf(lab)).toEqual(both);
      expect((await call('DEL', ...one)).exitCode).toBe(0);
      expect(await addressesOf(lab)).toEqual(both);
      expect(await ping(lab, two[0], '10.70.0.1')).toBe(true);
      expect((await call('DEL', ...two)).exitCode).toBe(0);
      expect(await addressesOf(lab)).toEqual(['10.71.0.1/24 sec0']);
      expect(await ping(lab, three[0], '10.71.0.1')).toBe(true);
      expect((await call('DEL', ...three)).exitCode).toBe(0);
      expect(await addressesOf(lab)).toEqual([]);
      // The kernel would remove an operator's address along with the gateway.
      expect((await call('ADD', three[0])).exitCode).toBe(0);
      await lab.ip(lab.host, 'addr', 'add', '10.71.0.53/24', 'dev', 'sec0');
      expect((await call('DEL', ...three)).exitCode).toBe(0);
      expect(await addressesOf(lab)).toEqual(['10.71.0.1/24 sec0', '10.71.0.53/24 sec0']);
    });
  });

  test('stays if a port may lead anywhere, and on a foreign bridge', async () => {
    await withHost(async lab => {
      const pool = writePool(lab);
      const conf = confOf('bridge', { type: 'pool' });
      const call = (command: string, container: Container, prevResult?: unknown) =>
        lab.plugin('bridge', { command, conf, container, cniPath: pool.cniPath, prevResult });
      const pair = async () => {
        const [one, two] = [await lab.container(), await lab.container()];
        pool.give(one, '10.70.0.5/24');
        pool.give(two, '10.71.0.5/24');
        const [added, other] = [await call('ADD', one), await call('ADD', two)];
        return { one, two, added, other };
      };
      const foreign = await pair();
      // As a virtual machine's, or a cable.
      await lab.ip(lab.host, 'link', 'add', 'x0', 'type', 'veth', 'peer', 'name', 'x1');
      await lab.ip(lab.host, 'link', 'set', 'x0', 'master', 'sec0');
      expect((await call('DEL', foreign.one, foreign.added.result)).exitCode).toBe(0);
      expect(await addressesOf(lab)).toContain('10.70.0.1/24 sec0');
      expect((await call('DEL', foreign.two, foreign.other.result)).exitCode).toBe(0);
      await lab.ip(lab.host, 'link', 'del', 'x0');
      await lab.ip(lab.host, 'link', 'del', 'sec0');

      await lab.ip(lab.host, 'link', 'add', 'sec0', 'type', 'bridge');
      const adopted = await pair();
      expect((await call('DEL', adopted.one, adopted.added.result)).exitCode).toBe(0);
      expect(await addressesOf(lab)).toContain('10.70.0.1/24 sec0');
    });
  });

  test('of two networks on one bridge stays, since the configuration holds it', async () => {
    await withHost(async lab => {
      const networks = ['10.72.0.0/24', '10.73.0.0/24'].map((subnet, i) =>
        confOf('bridge', { type: 'host-local', subnet, dataDir: `${lab.tmp}/leases` }, { name: `net${i}` }),
      );
      const pods = [];
      for (const conf of networks) {
        const container = await lab.container();
        const added = await lab.plugin('bridge', { command: 'ADD', conf, container });
        expect(added.exitCode).toBe(0);
        pods.push({ command: 'DEL', conf, container, prevResult: added.result });
      }
      for (const pod of pods) {
        expect((await lab.plugin('bridge', pod)).exitCode).toBe(0);
        expect(await addressesOf(lab)).toEqual(['10.72.0.1/24 sec0', '10.73.0.1/24 sec0']);
      }
    });
  });

  test.each([
    ['10.74.0.5/24', undefined, 'contains 10.74.0.200, an address of this host'],
    ['10.74.0.5/8', '10.0.0.1', 'contains 10.74.0.200, an address of this host'],
    ['1.2.3.4/1', undefined, 'is too large a subnet for containers'],
    ['1.2.3.4/0', '1.0.0.1', 'is too large a subnet for containers'],
    ['2001:db8::5/3', undefined, 'is too large a subnet for containers'],
  ])('is refused: %s', async (address, gateway, problem) => {
    await withHost(async lab => {
      await lab.ip(lab.host, 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'up1');
      await lab.ip(lab.host, 'addr', 'add', '10.74.0.200/24', 'dev', 'up0');
      const [pool, container] = [writePool(lab), await lab.container()];
      pool.give(container, address, gateway);
      const before = await addressesOf(lab);
      const conf = confOf('bridge', { type: 'pool' });
      const { error } = await lab.plugin('bridge', {
        command: 'ADD',
        conf,
        container,
        cniPath: pool.cniPath,
      });
      expect(error).toMatchObject({ code: 7, msg: expect.stringContaining(problem) });
      expect(await addressesOf(lab)).toEqual(before);
    });
  });
});

describeRoot('an address that no container can have', () => {
  test.each(WAYS)('by %s is refused: the gateway, the subnet itself, its broadcast', async (_, asking) => {
    await withHost(async lab => {
      const first = await lab.container();
      expect((await add(lab, 'bridge', first, STATIC, {})).exitCode).toBe(0);
      await lab.ip(lab.host, 'addr', 'add', '10.66.0.53/24', 'dev', 'sec0');
      await untilAddressed(lab.host, 'sec0');
      for (const type of ['bridge', 'ptp']) {
        for (const [ip, problem] of [
          ['10.66.0.1', 'the address of the gateway'],
          ['10.66.0.0', 'the address of the subnet itself'],
          ['10.66.0.255', 'the broadcast address of its subnet'],
          ...(type === 'bridge' ? [['10.66.0.53', 'an address of the host on that link']] : []),
        ] as const) {
          const container = await lab.container();
          const before = await lab.dump(lab.host);
          const { error } = await add(lab, type, container, STATIC, asking(`${ip}/24`));
          const msg = expect.stringContaining(`Cannot give the container address ${ip}/24: it is ${problem}`);
          expect(error).toMatchObject({ code: 7, msg });
          expect(await lab.dump(lab.host)).toMatchObject({ links: before.links, routes: before.routes });
        }
      }
      // The first container was told of no other hardware address.
      const [bridge] = await lab.ip(lab.host, 'link', 'show', 'sec0');
      expect(await ping(lab, first, '10.66.0.1')).toBe(true);
      expect(await lab.ip(first, 'neigh', 'show', '10.66.0.1')).toMatchObject([{ lladdr: bridge?.address }]);
    });
  });

  test.each([
    ['macvlan', { master: 'up0' }],
    ['tap', { kind: 'macvtap', master: 'up0' }],
    ['tap', {}],
    ['host-device', { device: 'up1' }],
  ])('is one of the node on the same link, for %s with %j', async (type, device) => {
    await withHost(async lab => {
      await lab.ip(lab.host, 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'up1');
      await lab.ip(lab.host, 'link', 'set', 'up0', 'up');
      await lab.ip(lab.host, 'addr', 'add', '10.66.0.20/24', 'dev', 'up0');
      // A tap has a program at its other end, not the node.
      const isOnLink = Object.keys(device).length > 0;
      for (const [ip, problem] of [
        ...(isOnLink ? [['10.66.0.20', 'an address of the host on that link']] : []),
        ['10.66.0.1', 'the address of the gateway'],
        ['10.66.0.0', 'the address of the subnet itself'],
        ['10.66.0.255', 'the broadcast address of its subnet'],
      ] as const) {
        const conf = { ...confOf(type, STATIC), ...device, runtimeConfig: { ips: [`${ip}/24`] } };
        const container = await lab.container();
        const { error } = await lab.plugin(type, { command: 'ADD', conf, container });
        expect(error).toMatchObject({ code: 7, msg: expect.stringContaining(`${ip}/24: it is ${problem}`) });
        expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
        expect((await lab.ip(lab.host, 'link', 'show', 'up1'))[0]).toMatchObject({ ifname: 'up1' });
      }
    });
  });
});
