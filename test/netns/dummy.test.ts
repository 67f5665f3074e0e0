// Does a container get a dummy device with its addresses, and does nothing of it remain?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { faultIn } from '../../src/lab/call.ts';
import { deadline } from '../helpers/deadline.ts';
import { failInTurn } from '../helpers/fail-in-turn.ts';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import type { PluginReply } from '../helpers/plugin.ts';
import { describeRoot, requiresLinkKind } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';

const DEADLINE_MS = deadline(120_000);
const ADDRESSES = ['10.60.0.2/24', 'fd60::2/64'];

interface Place {
  readonly lab: Lab;
  readonly container: Container;
}

function confOf(lab: Lab, more: Row = {}): Row {
  const ipam = {
    type: 'host-local',
    ranges: [[{ subnet: '10.60.0.0/24' }], [{ subnet: 'fd60::/64' }]],
    routes: [{ dst: '10.99.0.0/16' }, { dst: '10.98.0.0/16', gw: '10.60.0.9', table: 700 }],
    dataDir: `${lab.tmp}/leases`,
  };
  return { cniVersion: LATEST_SPEC_VERSION, name: 'podnet', type: 'dummy', ipam, ...more };
}

function call(
  { lab, container }: Place,
  command: string,
  conf: Row,
  more: { prevResult?: unknown; args?: string; env?: Record<string, string> } = {},
): Promise<PluginReply> {
  return lab.plugin('dummy', { command, conf, container, timeoutMs: 30_000, ...more });
}

function leasesOf({ tmp }: Lab): string[] {
  const dir = `${tmp}/leases/podnet`;
  return fs.existsSync(dir)
    ? fs
        .readdirSync(dir)
        .filter(name => /^(10\.|fd60)/.test(name))
        .sort()
    : [];
}

async function deviceOf({ lab, container }: Place, name = 'eth0'): Promise<Row | undefined> {
  return (await lab.ip(container, 'addr')).find(({ ifname }) => ifname === name);
}

async function withContainer<T>(body: (place: Place) => Promise<T>): Promise<T> {
  return withHost(async lab => body({ lab, container: await lab.container() }));
}

describeRoot(
  'dummy',
  () => {
    test('ADD makes the device with addresses and routes, DEL deletes it', async () => {
      await withContainer(async place => {
        const { lab, container } = place;
        const conf = confOf(lab);
        const added = await call(place, 'ADD', conf);
        expect(added).toMatchObject({ exitCode: 0, stderr: '' });
        const { interfaces, ips } = added.result;
        expect(interfaces).toMatchObject([{ name: 'eth0', sandbox: container.path }]);
        expect(interfaces[0].mtu).toBe(1500);
        expect(ips.map((ip: Row) => [ip.address, ip.interface])).toEqual(ADDRESSES.map(one => [one, 0]));
        const device = await deviceOf(place);
        expect(device).toMatchObject({ linkinfo: { info_kind: 'dummy' }, address: interfaces[0].mac });
        expect(device?.flags).toContain('UP');
        expect(device?.addr_info).toMatchObject([
          { local: '10.60.0.2', prefixlen: 24 },
          { local: 'fd60::2', prefixlen: 64 },
          { scope: 'link' },
        ]);
        const routes = await lab.ip(
          container,
          'route',
          'show',
          'table',
          'all',
          'dev',
          'eth0',
          'type',
          'unicast',
        );
        expect(routes).toContainEqual(expect.objectContaining({ dst: '10.98.0.0/16', gateway: '10.60.0.9' }));
        expect(routes).toContainEqual(expect.objectContaining({ dst: '10.99.0.0/16', gateway: '10.60.0.1' }));
        const prevResult = added.result;
        expect(await call(place, 'CHECK', conf, { prevResult })).toMatchObject({ exitCode: 0 });
        for (let times = 0; times < 2; times++)
          expect(await call(place, 'DEL', conf, { prevResult })).toMatchObject({ exitCode: 0, stdout: '' });
        expect(await deviceOf(place)).toBeUndefined();
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test('[1.1.0] without IPAM it is layer 2 only, with the requested hardware address and MTU', async () => {
      await withContainer(async place => {
        const conf = confOf(place.lab, { ipam: undefined, mac: '02:00:00:00:00:0a', mtu: 9000 });
        const sources: [Row, string | undefined, string][] = [
          [{}, undefined, '02:00:00:00:00:0a'],
          [{}, 'MAC=02:00:00:00:00:0b', '02:00:00:00:00:0b'],
          [{ runtimeConfig: { mac: '02:00:00:00:00:0c' } }, 'MAC=02:00:00:00:00:0b', '02:00:00:00:00:0c'],
        ];
        for (const [more, args, mac] of sources) {
          const own = { ...conf, ...more };
          const { exitCode, result } = await call(place, 'ADD', own, args ? { args } : {});
          expect({ exitCode, interfaces: result.interfaces }).toMatchObject({
            exitCode: 0,
            interfaces: [{ mac, mtu: 9000 }],
          });
          expect(await deviceOf(place)).toMatchObject({ address: mac, mtu: 9000 });
          expect(result.ips).toBeUndefined();
          expect(await call(place, 'CHECK', own, { prevResult: result })).toMatchObject({ exitCode: 0 });
          expect(await call(place, 'DEL', own)).toMatchObject({ exitCode: 0 });
        }
      });
    });

    test("[1.1.0] the result has IPAM's resolver settings unless the configuration has some", async () => {
      await withContainer(async place => {
        const ipam = {
          type: 'static',
          addresses: [{ address: '10.60.0.2/24' }],
          dns: { nameservers: ['10.0.0.1'] },
        };
        const conf = confOf(place.lab, { ipam, dns: {} });
        expect((await call(place, 'ADD', conf)).result.dns).toEqual({ nameservers: ['10.0.0.1'] });
        await call(place, 'DEL', conf);
        const own = { ...conf, dns: { nameservers: ['10.0.0.2'] } };
        expect((await call(place, 'ADD', own)).result.dns).toEqual({ nameservers: ['10.0.0.2'] });
      });
    });

    test('[1.1.0] a failing IPAM plugin, or one without addresses, leaves no device', async () => {
      await withContainer(async place => {
        for (const ipam of [{ type: 'host-local' }, { type: 'static', addresses: [] }, { type: 'missing' }]) {
          const { exitCode } = await call(place, 'ADD', confOf(place.lab, { ipam }));
          expect({ ipam, exitCode }).toEqual({ ipam, exitCode: 1 });
          expect(await deviceOf(place)).toBeUndefined();
        }
      });
    });

    test('[1.1.0] ADD refuses a name that is taken; DEL keeps a device of another kind', async () => {
      await withContainer(async place => {
        const { lab, container } = place;
        await lab.ip(container, 'link', 'add', 'eth0', 'type', 'bridge');
        expect((await call(place, 'ADD', confOf(lab))).error).toMatchObject({ code: 4 });
        expect(leasesOf(lab)).toEqual([]);
        const { exitCode, stderr } = await call(place, 'DEL', confOf(lab));
        expect({ exitCode, stderr }).toMatchObject({
          exitCode: 0,
          stderr: expect.stringContaining('bridge'),
        });
        expect(await deviceOf(place)).toMatchObject({ linkinfo: { info_kind: 'bridge' } });
      });
    });

    test('[1.1.0] DEL releases the lease of a container whose namespace is gone', async () => {
      await withContainer(async place => {
        const { lab, container } = place;
        expect(await call(place, 'ADD', confOf(lab))).toMatchObject({ exitCode: 0 });
        expect(leasesOf(lab)).toHaveLength(2);
        await lab.remove(container);
        expect(await call(place, 'DEL', confOf(lab))).toMatchObject({ exitCode: 0, stdout: '' });
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test('[1.1.0] CHECK reports what changed, and repair restores it', async () => {
      await withContainer(async place => {
        const { lab, container } = place;
        const conf = confOf(lab);
        const { result: prevResult } = await call(place, 'ADD', conf);
        const changes = [
          ['addr', 'del', '10.60.0.2/24', 'dev', 'eth0'],
          ['addr', 'del', 'fd60::2/64', 'dev', 'eth0'],
          ['route', 'del', '10.98.0.0/16', 'table', '700'],
          ['link', 'set', 'eth0', 'down'],
          ['link', 'set', 'eth0', 'mtu', '1300'],
          ['link', 'set', 'eth0', 'address', '02:00:00:00:00:0f'],
        ];
        for (const change of changes) {
          await lab.ip(container, ...change);
          expect(await call(place, 'CHECK', conf, { prevResult })).toMatchObject({ exitCode: 1 });
          const env = { CATENA_REPAIR: '1' };
          const { exitCode, stdout } = await call(place, 'CHECK', conf, { prevResult, env });
          expect({ change, exitCode, stdout }).toEqual({ change, exitCode: 0, stdout: '' });
        }
      });
    });

    test('[1.1.0] GC releases leases that the runtime does not list; STATUS works', async () => {
      await withContainer(async place => {
        const { lab, container } = place;
        // GC keeps a lease while an interface has its address, be it one of another test.
        const ranges = [[{ subnet: '10.61.0.0/24' }], [{ subnet: 'fd60:1::/64' }]];
        const ipam = { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` };
        const conf = confOf(lab, { ipam });
        await call(place, 'ADD', conf);
        expect(leasesOf(lab)).toEqual(['10.61.0.2', 'fd60:1::2']);
        await lab.ip(container, 'link', 'del', 'eth0');
        const gc = { ...conf, 'cni.dev/valid-attachments': [] };
        expect(await lab.plugin('dummy', { command: 'GC', conf: gc })).toMatchObject({ exitCode: 0 });
        expect(leasesOf(lab)).toEqual([]);
        expect(await lab.plugin('dummy', { command: 'STATUS', conf })).toMatchObject({
          exitCode: 0,
          stdout: '',
        });
      });
    });

    test(
      'ADD that fails at the nth request leaves nothing',
      async () => {
        const failed = await withContainer(async place => {
          const { lab, container } = place;
          // The first time that it comes up the kernel gives it an address, which stays.
          for (const state of ['up', 'down']) await lab.ip(container, 'link', 'set', 'lo', state);
          const before = await lab.dump(container);
          return failInTurn(async request => {
            const env = { CATENA_FAULT: `kernel:${request}` };
            const { exitCode, stderr } = await call(place, 'ADD', confOf(lab), { env });
            const what = faultIn(stderr)?.what;
            if (exitCode === 0) await call(place, 'DEL', confOf(lab));
            expect({ what, leases: leasesOf(lab) }).toEqual({ what, leases: [] });
            expect({ what, dump: await lab.dump(container) }).toEqual({ what, dump: before });
            return what;
          });
        });
        for (const words of ['of kind dummy', 'add address fd60::', 'add route to 10.98.0.0/16'])
          expect(failed.join('\n')).toContain(words);
      },
      DEADLINE_MS,
    );
  },
  requiresLinkKind('dummy'),
);

const lacksDummy =
  requiresLinkKind('dummy') === undefined ? 'needs a kernel without dummy devices' : undefined;

describeRoot(
  'dummy on a kernel without such devices',
  () => {
    test('[1.1.0] STATUS and ADD say so, and ADD leaves nothing', async () => {
      await withContainer(async place => {
        const { lab } = place;
        const { error } = await lab.plugin('dummy', { command: 'STATUS', conf: confOf(lab) });
        expect(error).toMatchObject({ code: 50, msg: expect.stringContaining('kind dummy') });
        expect(await call(place, 'ADD', confOf(lab))).toMatchObject({ exitCode: 1 });
        expect(leasesOf(lab)).toEqual([]);
        expect(await call(place, 'DEL', confOf(lab))).toMatchObject({ exitCode: 0, stdout: '' });
      });
    });
  },
  lacksDummy,
);
