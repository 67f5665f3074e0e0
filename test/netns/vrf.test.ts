// Does an interface join a VRF with all its addresses and routes, and does it return with them?
import { expect, test } from 'bun:test';
import { faultIn } from '../../src/lab/call.ts';
import { connect, type Pod } from '../helpers/connected-pod.ts';
import { deadline } from '../helpers/deadline.ts';
import { failInTurn } from '../helpers/fail-in-turn.ts';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { type PluginReply, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference, requiresVrf } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';

const DEADLINE_MS = deadline(120_000);

interface More {
  readonly conf?: Row;
  readonly cniVersion?: string;
  readonly env?: Record<string, string>;
  readonly binDir?: string;
}

function call(
  lab: Lab,
  pod: Pick<Pod, 'container' | 'ifname' | 'prevResult'>,
  command: string,
  { conf, cniVersion = LATEST_SPEC_VERSION, env = {}, binDir }: More = {},
): Promise<PluginReply> {
  const { container, ifname } = pod;
  // Results of 0.3 and 0.4 differ from later ones in the version of each address only.
  const ips = pod.prevResult.ips.map(ip => (cniVersion < '1.0.0' ? { ...ip, version: '4' } : ip));
  return lab.plugin('vrf', {
    command,
    container,
    ifname,
    env,
    ...(binDir ? { binDir } : {}),
    timeoutMs: 30_000,
    conf: { cniVersion, name: 'podnet', type: 'vrf', vrfname: 'blue', ...conf },
    prevResult: { ...pod.prevResult, cniVersion, ips },
  });
}

/** Adds routes of every sort. Each gateway is on the interface's subnet. */
async function routed(lab: Lab, pod: Pod, n: number): Promise<void> {
  const { container, ifname } = pod;
  await lab.ip(container, 'route', 'add', 'default', 'via', `10.77.${n}.1`);
  await lab.ip(
    container,
    'route',
    'add',
    '10.90.0.0/16',
    'via',
    `10.77.${n}.9`,
    'metric',
    '50',
    'mtu',
    '1400',
  );
  await lab.ip(container, 'route', 'add', '10.91.0.0/16', 'dev', ifname, 'scope', 'link');
  await lab.ip(container, 'route', 'add', '10.92.0.0/16', 'via', `10.77.${n}.9`, 'table', '900');
  await lab.ip(container, '-6', 'route', 'add', 'default', 'via', `fd77:${n}::1`);
  await lab.ip(container, '-6', 'route', 'add', 'fd90::/64', 'via', `fd77:${n}::9`, 'metric', '50');
}

/** Addresses, routes and devices; the kernel keeps its rule for VRFs for good. */
async function stateOf(lab: Lab, container: Container): Promise<unknown> {
  const links = await lab.ip(container, 'addr');
  const families = await Promise.all(
    ['-4', '-6'].map(family => lab.ip(container, family, 'route', 'show', 'table', 'all')),
  );
  return {
    links: links.map(({ ifname, flags, master, addr_info }) => ({
      ifname,
      flags,
      master,
      addresses: addr_info.map(({ local, prefixlen, scope }: Row) => `${local}/${prefixlen} ${scope}`),
    })),
    routes: families.flat().map(textOf).sort(),
  };
}

function textOf({ type, dst, gateway, dev, table, metric, scope, prefsrc, nexthops = [] }: Row): string {
  const ways = nexthops.map((way: Row) => `${way.gateway} ${way.dev}`).sort();
  return [type, dst, gateway, dev, table, metric, scope, prefsrc, ...ways].join(' ');
}

async function routesIn(lab: Lab, container: Container, table: number | string): Promise<string[]> {
  const families = await Promise.all(
    ['-4', '-6'].map(family => lab.ip(container, family, 'route', 'show', 'table', 'all')),
  );
  const kernels = ['local', 'broadcast', 'multicast', 'anycast'];
  return families
    .flat()
    .filter(route => String(route.table ?? 'main') === String(table))
    .filter(({ dst, type }) => !String(dst).startsWith('fe80') && !kernels.includes(type))
    .flatMap(({ type, dst, gateway, dev, nexthops }) =>
      (nexthops ?? [{ gateway, dev }]).map((way: Row) =>
        [type === 'unreachable' ? type : '', dst, way.gateway, way.dev].filter(Boolean).join(' '),
      ),
    )
    .sort();
}

async function tableOf(lab: Lab, container: Container, name = 'blue'): Promise<number | undefined> {
  const links = await lab.ip(container, 'link');
  return links.find(({ ifname }) => ifname === name)?.linkinfo?.info_data?.table;
}

const MOVED = (n: number, ifname: string): string[] => [
  `10.77.${n}.0/24 ${ifname}`,
  `10.90.0.0/16 10.77.${n}.9 ${ifname}`,
  `10.91.0.0/16 ${ifname}`,
  `default 10.77.${n}.1 ${ifname}`,
  `default fd77:${n}::1 ${ifname}`,
  `fd77:${n}::/64 ${ifname}`,
  `fd90::/64 fd77:${n}::9 ${ifname}`,
];

describeRoot(
  'vrf',
  () => {
    test('ADD moves addresses and routes, DEL returns them', async () => {
      const cniVersion = LATEST_SPEC_VERSION;
      await withHost(async lab => {
        const pod = await connect(lab);
        const { container } = pod;
        await routed(lab, pod, 1);
        const before = await stateOf(lab, container);
        const added = await call(lab, pod, 'ADD', { cniVersion });
        expect(added).toMatchObject({
          exitCode: 0,
          stderr: '',
          result: { interfaces: pod.prevResult.interfaces },
        });
        expect(await tableOf(lab, container)).toBe(1);
        const refusals = ['unreachable default', 'unreachable default lo'];
        const inVrf = (await routesIn(lab, container, 1)).filter(route => !refusals.includes(route));
        expect(inVrf).toEqual(MOVED(1, 'eth0'));
        expect(await routesIn(lab, container, 'main')).toEqual([]);
        expect(await routesIn(lab, container, 900)).toEqual(['10.92.0.0/16 10.77.1.9 eth0']);
        expect(await call(lab, pod, 'CHECK', { cniVersion })).toMatchObject({ exitCode: 0, stdout: '' });
        for (let times = 0; times < 2; times++)
          expect(await call(lab, pod, 'DEL', { cniVersion })).toMatchObject({ exitCode: 0, stdout: '' });
        expect(await stateOf(lab, container)).toEqual(before);
      });
    });

    test('[1.1.0] a pod of ptp reaches its gateway through the VRF only, and after DEL without it', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const ipam = {
          type: 'host-local',
          ranges: [[{ subnet: '10.62.0.0/24' }], [{ subnet: 'fd62::/64' }]],
          routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
          dataDir: `${lab.tmp}/leases`,
        };
        const conf = { cniVersion: LATEST_SPEC_VERSION, name: 'podnet', type: 'ptp', ipam };
        const { result } = await lab.plugin('ptp', { command: 'ADD', conf, container });
        const before = await routesIn(lab, container, 'main');
        const pod = { container, ifname: 'eth0', prevResult: result };
        expect(await call(lab, pod, 'ADD')).toMatchObject({ exitCode: 0, stderr: '' });
        const pings = async (address: string, ...options: string[]) =>
          (await lab.run(container, ['ping', '-c1', '-W2', ...options, address])).exitCode === 0;
        for (const gateway of ['10.62.0.1', 'fd62::1']) {
          expect(await pings(gateway, '-I', 'blue')).toBe(true);
          expect(await pings(gateway)).toBe(false);
        }
        const inVrf = await routesIn(lab, container, 1);
        expect(inVrf.filter(route => !route.startsWith('unreachable'))).toEqual(before);
        expect(await call(lab, pod, 'CHECK')).toMatchObject({ exitCode: 0, stdout: '' });
        const check = { command: 'CHECK', conf, container, prevResult: result };
        expect(await lab.plugin('ptp', check)).toMatchObject({ exitCode: 0, stdout: '' });
        expect(await call(lab, pod, 'DEL')).toMatchObject({ exitCode: 0 });
        expect(await routesIn(lab, container, 'main')).toEqual(before);
        expect(await pings('10.62.0.1')).toBe(true);
      });
    });

    test('[1.1.0] takes its own part of a default route that IPv6 combined', async () => {
      await withHost(async lab => {
        const first = await connect(lab, 1);
        const second = await connect(lab, 2, first.container, 'net1');
        await routed(lab, first, 1);
        const { container } = first;
        await lab.ip(container, '-6', 'route', 'append', 'default', 'via', 'fd77:2::1', 'dev', 'net1');
        const before = await stateOf(lab, container);
        expect(await routesIn(lab, container, 'main')).toContain('default fd77:2::1 net1');
        expect(await call(lab, second, 'ADD')).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await routesIn(lab, container, 1)).toContain('default fd77:2::1 net1');
        const left = await routesIn(lab, container, 'main');
        expect(left.filter(route => route.startsWith('default fd77'))).toEqual(['default fd77:1::1 eth0']);
        expect(await call(lab, second, 'DEL')).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await stateOf(lab, container)).toEqual(before);
      });
    });

    test('[1.1.0] ADDs at the same time get a table each, without those in use', async () => {
      await withHost(async lab => {
        const first = await connect(lab, 1);
        const { container } = first;
        const others = [];
        for (const n of [2, 3]) others.push(await connect(lab, n, container, `net${n}`));
        await lab.ip(container, 'rule', 'add', 'fwmark', '7', 'lookup', '2');
        await lab.ip(container, 'route', 'add', 'blackhole', '10.95.0.0/16', 'table', '9');
        await lab.ip(container, 'route', 'add', '10.96.0.0/16', 'dev', 'eth0', 'table', '3');
        const pods = [first, ...others];
        const replies = await Promise.all(
          pods.map((pod, i) => call(lab, pod, 'ADD', { conf: { vrfname: `vrf${i}` } })),
        );
        expect(replies.map(({ exitCode }) => exitCode)).toEqual([0, 0, 0]);
        const tables = await Promise.all(pods.map((_, i) => tableOf(lab, container, `vrf${i}`)));
        expect(tables.sort()).toEqual([1, 4, 5]);
      });
    });

    test('[1.1.0] interfaces share a VRF; it goes with the last one, and a second ADD changes nothing', async () => {
      await withHost(async lab => {
        const first = await connect(lab, 1);
        const { container } = first;
        const second = await connect(lab, 2, container, 'net1');
        const conf = { table: 500 };
        for (const pod of [first, second, first])
          expect(await call(lab, pod, 'ADD', { conf })).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await tableOf(lab, container)).toBe(500);
        expect(await routesIn(lab, container, 500)).toEqual(
          expect.arrayContaining(['10.77.1.0/24 eth0', '10.77.2.0/24 net1']),
        );
        await call(lab, first, 'DEL', { conf });
        expect(await tableOf(lab, container)).toBe(500);
        await lab.ip(container, 'link', 'del', 'net1');
        expect(await call(lab, second, 'DEL', { conf: { vrfname: 'blue' } })).toMatchObject({ exitCode: 0 });
        expect(await tableOf(lab, container)).toBeUndefined();
        expect(await routesIn(lab, container, 500)).toEqual([]);
      });
    });

    test('[1.1.0] DEL without a usable configuration takes the interface out of its VRF', async () => {
      await withHost(async lab => {
        const pod = await connect(lab);
        await call(lab, pod, 'ADD');
        expect(await call(lab, pod, 'DEL', { conf: { vrfname: undefined, table: -1 } })).toMatchObject({
          exitCode: 0,
        });
        expect(await tableOf(lab, pod.container)).toBeUndefined();
      });
    });

    test('[1.1.0] leaves out IPv6 where the kernel has none, and so no rules of it', async () => {
      await withHost(async lab => {
        const pod = await connect(lab);
        // The kernel adds its rules with the first VRF.
        await lab.ip(pod.container, 'link', 'add', 'red', 'type', 'vrf', 'table', '500');
        for (const priority of ['0', '1000', '32766'])
          await lab.ip(pod.container, '-6', 'rule', 'delete', 'priority', priority);
        for (const command of ['ADD', 'CHECK', 'DEL']) {
          expect(await call(lab, pod, command)).toMatchObject({ exitCode: 0 });
          const routes = await lab.ip(pod.container, '-6', 'route', 'show', 'table', 'all');
          expect(routes.filter(({ type }) => type === 'unreachable')).toEqual([]);
        }
      });
    });

    test('[1.1.0] DEL succeeds when the interface is gone, and removes the VRF', async () => {
      await withHost(async lab => {
        const pod = await connect(lab);
        await call(lab, pod, 'ADD');
        await lab.ip(pod.container, 'link', 'del', pod.ifname);
        for (const _ of [1, 2])
          expect(await call(lab, pod, 'DEL')).toMatchObject({ exitCode: 0, stdout: '' });
        expect(await tableOf(lab, pod.container)).toBeUndefined();
      });
    });

    test('[1.1.0] ADD refuses tables and devices of others', async () => {
      await withHost(async lab => {
        const pod = await connect(lab);
        const { container } = pod;
        await lab.ip(container, 'link', 'add', 'red', 'type', 'vrf', 'table', '70');
        await lab.ip(container, 'link', 'add', 'br0', 'type', 'bridge');
        const before = await stateOf(lab, container);
        const refusals: [Row, string][] = [
          [{ table: 70 }, 'VRF "red" has that table'],
          [{ vrfname: 'red', table: 71 }, 'it exists with table 70'],
          [{ vrfname: 'br0' }, 'of kind "bridge"'],
          [{ table: 254 }, "the kernel's"],
        ];
        for (const [conf, words] of refusals) {
          const { error } = await call(lab, pod, 'ADD', { conf });
          expect(error).toMatchObject({ code: 7, msg: expect.stringContaining(words) });
        }
        expect(await stateOf(lab, container)).toEqual(before);
        await lab.ip(container, 'link', 'set', 'eth0', 'master', 'br0');
        expect((await call(lab, pod, 'ADD')).error?.msg).toContain('it belongs to "br0"');
        expect(await tableOf(lab, container)).toBeUndefined();
      });
    });

    test('[1.1.0] CHECK reports what changed, and repair restores it', async () => {
      await withHost(async lab => {
        const pod = await connect(lab);
        const { container } = pod;
        await lab.ip(container, 'route', 'add', 'default', 'via', '10.77.1.1');
        const own = {
          ...pod,
          prevResult: { ...pod.prevResult, routes: [{ dst: '0.0.0.0/0', gw: '10.77.1.1' }] },
        };
        await call(lab, own, 'ADD');
        const changes = [
          ['route', 'del', 'default', 'via', '10.77.1.1', 'table', '1'],
          ['route', 'del', 'unreachable', 'default', 'table', '1'],
          ['rule', 'del', 'pref', '1000'],
          ['link', 'set', 'blue', 'down'],
          ['link', 'set', 'eth0', 'nomaster'],
        ];
        for (const change of changes) {
          await lab.ip(container, ...change);
          expect((await call(lab, own, 'CHECK')).exitCode).toBe(1);
          const { exitCode, stdout } = await call(lab, own, 'CHECK', { env: { CATENA_REPAIR: '1' } });
          expect({ change, exitCode, stdout }).toEqual({ change, exitCode: 0, stdout: '' });
        }
      });
    });

    test(
      'ADD that fails at the nth request leaves addresses and routes where they were',
      async () => {
        const failed = await withHost(async lab => {
          const pod = await connect(lab);
          await routed(lab, pod, 1);
          const before = await stateOf(lab, pod.container);
          return failInTurn(async request => {
            const env = { CATENA_FAULT: `kernel:${request}` };
            const { exitCode, stderr, error } = await call(lab, pod, 'ADD', { env });
            const what = faultIn(stderr)?.what;
            if (exitCode === 0) await call(lab, pod, 'DEL');
            expect(error?.details ?? '').not.toContain('could not be undone');
            expect({ what, state: await stateOf(lab, pod.container) }).toEqual({ what, state: before });
            return what;
          });
        });
        for (const words of ['of kind vrf', 'set master', 'add route to 10.90.0.0/16'])
          expect(failed.join('\n')).toContain(words);
      },
      DEADLINE_MS,
    );
  },
  requiresVrf(),
);

describeRoot(
  'vrf and the reference',
  () => {
    test.each([
      ['theirs, ours', REFERENCE_BIN_DIR, undefined],
      ['ours, theirs', undefined, REFERENCE_BIN_DIR],
    ] as const)('[1.0.0] CHECK and DEL work on an attachment of the other: %s', async (_, adds, others) => {
      await withHost(async lab => {
        const pod = await connect(lab);
        const by = (binDir: string | undefined) => ({ cniVersion: '1.0.0', ...(binDir ? { binDir } : {}) });
        expect(await call(lab, pod, 'ADD', by(adds))).toMatchObject({ exitCode: 0 });
        for (const verb of ['CHECK', 'DEL'])
          expect({ verb, ...(await call(lab, pod, verb, by(others))) }).toMatchObject({ verb, exitCode: 0 });
        expect(await tableOf(lab, pod.container)).toBeUndefined();
      });
    });

    test('[1.0.0] ADD joins a VRF that the reference made, and repair completes one', async () => {
      await withHost(async lab => {
        const pod = await connect(lab);
        const theirs = { cniVersion: '1.0.0', binDir: REFERENCE_BIN_DIR };
        const refusing = async () => (await routesIn(lab, pod.container, 1)).includes('unreachable default');
        await call(lab, pod, 'ADD', theirs);
        expect(await refusing()).toBe(false);
        const repair = { cniVersion: '1.0.0', env: { CATENA_REPAIR: '1' } };
        expect(await call(lab, pod, 'CHECK', repair)).toMatchObject({ exitCode: 0 });
        expect(await refusing()).toBe(true);
        const second = await connect(lab, 2, pod.container, 'net1');
        expect(await call(lab, second, 'ADD', { cniVersion: '1.0.0' })).toMatchObject({ exitCode: 0 });
        for (const one of [second, pod])
          expect(await call(lab, one, 'DEL', theirs)).toMatchObject({ exitCode: 0 });
        expect(await tableOf(lab, pod.container)).toBeUndefined();
      });
    });
  },
  requiresVrf(),
  requiresReference('vrf'),
);
