// Does static report what it was given, and do main plugins apply it?
import { expect, test } from 'bun:test';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import type { PluginCall } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

const IPAM = {
  type: 'static',
  addresses: [
    { address: '10.10.0.7/24', gateway: '10.10.0.1' },
    { address: 'fd10::07/64', gateway: 'fd10::1' },
  ],
  routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0', gw: 'fd10::1' }],
  dns: { nameservers: ['10.10.0.53'], search: ['example.org'] },
};

function confOf(more: object = {}) {
  return { cniVersion: '1.1.0', name: 'podnet', type: 'bridge', ipam: IPAM, ...more };
}

const NOBODY = { id: 'one', path: '/run/netns/unused' };
const call = (lab: Lab, command: string, more: Partial<PluginCall> = {}) =>
  lab.plugin('static', { command, conf: confOf(), container: NOBODY, ...more });

describeRoot('static', () => {
  test('ADD reports addresses, bridge applies them, CHECK succeeds, DEL does nothing', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf({ bridge: 'br0', isGateway: true });
      const { result } = await call(lab, 'ADD', { conf });
      expect(result).toEqual({
        cniVersion: '1.1.0',
        ips: [
          { address: '10.10.0.7/24', gateway: '10.10.0.1' },
          { address: 'fd10::7/64', gateway: 'fd10::1' },
        ],
        routes: IPAM.routes,
        dns: IPAM.dns,
      });
      const added = await lab.plugin('bridge', { command: 'ADD', conf, container });
      expect(added).toMatchObject({ exitCode: 0, result: { dns: IPAM.dns } });
      for (const address of ['10.10.0.1', 'fd10::1']) expect(await ping(lab, container, address)).toBe(true);
      const prevResult = added.result;
      expect(await call(lab, 'CHECK', { conf, prevResult })).toMatchObject({ exitCode: 0, stdout: '' });
      expect((await call(lab, 'CHECK', { conf })).error?.code).toBe(7);
      for (const verb of ['DEL', 'GC', 'STATUS'])
        expect(await call(lab, verb, { conf })).toMatchObject({ exitCode: 0, stdout: '' });
    });
  });

  test('[1.1.0] DEL and GC succeed with invalid options, ADD and STATUS refuse them', async () => {
    await withHost(async lab => {
      for (const ipam of [
        undefined,
        { type: 'static', addresses: [{ address: '10.1.0.5' }] },
        { addresses: 5 },
      ]) {
        const conf = confOf({ ipam });
        const codes = await Promise.all(
          ['DEL', 'GC', 'ADD', 'STATUS'].map(
            async verb => (await call(lab, verb, { conf })).error?.code ?? 0,
          ),
        );
        expect(codes).toEqual([0, 0, 7, 7]);
      }
    });
  });
});

/** As hosting providers give machines their only address, with a router elsewhere that has a route to it. */
const HOSTED = {
  type: 'static',
  addresses: [
    { address: '203.0.113.7/32', gateway: '198.51.100.254' },
    { address: '2001:db8::7/128', gateway: '2001:db8:ffff::1' },
  ],
  // In the order in which some DHCP servers name them, too: the way to the router comes last.
  routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }, { dst: '192.0.2.0/24', gw: '198.51.100.253' }],
};

/** A router on a link of its own: `up0` of the host leads to it. */
async function withRouter(use: (lab: Lab, container: Container) => Promise<void>): Promise<void> {
  await withHost(async lab => {
    const [router, container] = [await lab.container(), await lab.container()];
    await lab.ip(lab.host, 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'r0', 'netns', router.path);
    await lab.ip(lab.host, 'link', 'set', 'up0', 'up');
    for (const address of ['198.51.100.254/32', '2001:db8:ffff::1/128'])
      await lab.ip(router, 'addr', 'add', address, 'dev', 'r0', 'nodad');
    await lab.ip(router, 'link', 'set', 'r0', 'up');
    for (const dst of ['203.0.113.7/32', '2001:db8::7/128'])
      await lab.ip(router, 'route', 'add', dst, 'dev', 'r0');
    await use(lab, container);
  });
}

describeRoot('a gateway outside of the subnet', () => {
  test.each(['1.0.0', '1.1.0'])('[%s] is reached on the link, by every main plugin', async cniVersion => {
    for (const [type, more] of [
      ['macvlan', { master: 'up0' }],
      ['host-device', { device: 'up0' }],
      ['bridge', { bridge: 'br0', uplinkInterface: 'up0' }],
    ] as const) {
      await withRouter(async (lab, container) => {
        const conf = { cniVersion, name: 'podnet', type, ipam: HOSTED, ...more };
        const { exitCode, result, stdout } = await lab.plugin(type, { command: 'ADD', conf, container });
        expect({ exitCode, stdout: exitCode ? stdout : '' }).toEqual({ exitCode: 0, stdout: '' });
        const reached = async () => {
          for (const address of ['198.51.100.254', '2001:db8:ffff::1'])
            expect(await ping(lab, container, address)).toBe(true);
        };
        await reached();
        const check = (env = {}) =>
          lab.plugin(type, { command: 'CHECK', conf, container, prevResult: result, env });
        expect(await check()).toMatchObject({ exitCode: 0 });
        await lab.ip(container, 'route', 'flush', 'table', 'main');
        expect((await check()).error?.msg).toContain('routes of "eth0"');
        expect(await check({ CATENA_REPAIR: '1' })).toMatchObject({ exitCode: 0 });
        await reached();
      });
    }
  });

  test('is reached through the tables of sbr', async () => {
    await withRouter(async (lab, container) => {
      const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'macvlan', master: 'up0', ipam: HOSTED };
      const { result } = await lab.plugin('macvlan', { command: 'ADD', conf, container });
      const sbr = { cniVersion: '1.1.0', name: 'podnet', type: 'sbr' };
      const call = { conf: sbr, container, prevResult: result };
      expect(await lab.plugin('sbr', { command: 'ADD', ...call })).toMatchObject({ exitCode: 0 });
      expect(await lab.plugin('sbr', { command: 'CHECK', ...call })).toMatchObject({ exitCode: 0 });
      expect(
        (await lab.run(container, ['ping', '-c1', '-W2', '-I203.0.113.7', '198.51.100.254'])).exitCode,
      ).toBe(0);
    });
  });
});
