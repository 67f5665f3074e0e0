// Does what a pod sends leave by the interface that has the source address, and does the rule go again?

import { expect, test } from 'bun:test';
import { faultIn } from '../../src/lab/call.ts';
import { parseCidr } from '../../src/net/ip.ts';
import { addRule, listRules, removeRule } from '../../src/netlink/rtnl/rule.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { writeChain } from '../helpers/chain.ts';
import { deadline } from '../helpers/deadline.ts';
import { failInTurn } from '../helpers/fail-in-turn.ts';
import {
  type Container,
  type Lab,
  type Namespace,
  type Row,
  untilAddressed,
  useLabs,
} from '../helpers/netns.ts';
import type { PluginReply } from '../helpers/plugin.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { ping } from '../helpers/traffic.ts';

interface Call {
  readonly version?: string;
  readonly ifname?: string;
  readonly conf?: object;
  readonly prevResult?: unknown;
  readonly env?: Record<string, string>;
}

/** Interfaces of the pod, and the networks that they are in; the gateway is the first address. */
const NETS = {
  eth0: { v4: '10.7.0', v6: 'fd00:7:' },
  net1: { v4: '10.8.0', v6: 'fd00:8:' },
} as const;
const FAMILIES = ['v4', 'v6'] as const;
/** For tests that do the same over and over. */
const DEADLINE_MS = deadline(120_000);

describeRoot(
  'sbr',
  () => {
    const createLab = useLabs();

    test('ADD moves routes and adds rules, DEL removes the rules', async () => {
      const version = LATEST_SPEC_VERSION;
      const { lab, pod } = await twoInterfaces(createLab);
      const before = await lab.dump(pod);
      expect(await add(lab, pod, { version })).toMatchObject({
        exitCode: 0,
        stderr: '',
        result: prevResultOf(pod, 'net1', version),
      });
      expect(await rulesOf(lab, pod)).toEqual(['10.8.0.2 100', 'fd00:8::2 101']);
      expect(await routesOf(lab, pod, 100)).toEqual([
        '10.8.0.0/24',
        '10.9.0.0/16 via 10.8.0.9',
        'default via 10.8.0.1',
      ]);
      expect(await routesOf(lab, pod, 101)).toEqual(['default via fd00:8::1', 'fd00:8::/64', 'fe80::/64']);
      expect(await routesOf(lab, pod, 'main')).toEqual([
        '10.7.0.0/24',
        'default via 10.7.0.1',
        'default via fd00:7::1',
        'fd00:7::/64',
        'fe80::/64',
        'fe80::/64',
      ]);
      expect(await check(lab, pod, { version })).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await del(lab, pod, { version })).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await rulesOf(lab, pod)).toEqual([]);
      expect(await lab.dump(pod)).toEqual(before);
    });

    test('a table whose routes lead nowhere is left to those who made them', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      const refusing = ['unreachable default table 100', 'blackhole 10.99.0.0/16 table 102'];
      await lab.batch(pod, ...refusing.map(one => `route add ${one}`));
      expect((await add(lab, pod)).exitCode).toBe(0);
      expect(await rulesOf(lab, pod)).toEqual(['10.8.0.2 101', 'fd00:8::2 103']);
      const types = await lab.ip(pod, '-4', 'route', 'show', 'table', 'all');
      expect(types.filter(({ type }) => type === 'unreachable' || type === 'blackhole')).toHaveLength(2);
    });

    test.each([
      ['net1', ['fd00:7::1', 'fd00:8::1']],
      ['eth0', ['fd00:7::1']],
    ] as const)(
      'an IPv6 default that the pod asked for by %s stays, whatever it is shown with',
      async (ifname, kept) => {
        const { lab, pod } = await twoInterfaces(createLab);
        // The kernel shows both as one route, of the origin of the first.
        await lab.batch(
          pod,
          'route del default via fd00:7::1',
          'route del default via fd00:8::1',
          `route append default via fd00:7::1 proto ${ifname === 'eth0' ? 68 : 3}`,
          `route append default via fd00:8::1 proto ${ifname === 'eth0' ? 3 : 68}`,
        );
        expect((await add(lab, pod)).exitCode).toBe(0);
        const routes = await lab.ip(pod, '-6', 'route', 'show', 'default');
        const ways = routes.flatMap(({ gateway, nexthops = [{ gateway }] }) => nexthops);
        expect(ways.map(way => way.gateway).sort()).toEqual([...kept]);
        expect((await check(lab, pod)).exitCode).toBe(0);
      },
    );

    test('routes keep all that belongs to them in their new table, and when they return', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      for (const route of [
        ['10.20.0.0/16', 'via', '172.31.1.1', 'dev', 'net1', 'onlink', 'initcwnd', '20'],
        ['10.21.0.0/16', 'via', 'inet6', 'fe80::1', 'dev', 'net1', 'mtu', '1300'],
      ]) {
        await lab.ip(pod, 'route', 'add', ...route);
      }
      const before = await lab.ip(pod, 'route', 'show', 'table', 'all');
      expect(await add(lab, pod)).toMatchObject({ exitCode: 0, stderr: '' });
      expect(await lab.ip(pod, 'route', 'show', 'table', '100')).toEqual(
        expect.arrayContaining([
          expect.objectContaining({ gateway: '172.31.1.1', flags: ['onlink'], metrics: [{ initcwnd: 20 }] }),
          expect.objectContaining({ via: { family: 'inet6', host: 'fe80::1' }, metrics: [{ mtu: 1300 }] }),
        ]),
      );
      expect(await del(lab, pod)).toMatchObject({ exitCode: 0, stdout: '' });
      const sorted = (rows: Row[]) => rows.map(row => JSON.stringify(row)).sort();
      expect(sorted(await lab.ip(pod, 'route', 'show', 'table', 'all'))).toEqual(sorted(before));
    });

    test.each(FAMILIES)('replies leave through the interface of the request over IP%s', async family => {
      const { lab, pod, client } = await twoInterfaces(createLab);
      const address = { v4: '10.8.0.2', v6: 'fd00:8::2' }[family];
      // The client is behind the gateway of net1; the pod's default route leads elsewhere. Of two, a hash chooses that each boot seeds.
      await lab.batch(pod, 'route del default via fd00:8::1');
      expect(await reaches(lab, client, address)).toBe(false);
      await lab.batch(pod, 'route append default via fd00:8::1');
      expect((await add(lab, pod)).exitCode).toBe(0);
      expect(await ping(lab, client, address)).toBe(true);
      expect(await ping(lab, lab.host, { v4: '10.7.0.2', v6: 'fd00:7::2' }[family])).toBe(true);
      expect(await ping(lab, pod, { v4: '10.7.0.1', v6: 'fd00:7::1' }[family])).toBe(true);
    });

    test('a second ADD changes nothing', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      const before = await lab.dump(pod);
      await add(lab, pod);
      const once = await lab.dump(pod);
      expect((await add(lab, pod)).exitCode).toBe(0);
      expect(await lab.dump(pod)).toEqual(once);
      expect((await check(lab, pod)).exitCode).toBe(0);
      await del(lab, pod);
      expect(await lab.dump(pod)).toEqual(before);
    });

    test('ADD uses tables that no rule or route of either family uses', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      await lab.ip(pod, 'route', 'add', '192.0.2.0/24', 'dev', 'eth0', 'table', '100');
      await lab.ip(pod, '-6', 'route', 'add', 'fd00:99::/64', 'dev', 'eth0', 'table', '101');
      await lab.ip(pod, 'rule', 'add', 'from', '192.0.2.1', 'lookup', '102');
      await add(lab, pod);
      await add(lab, pod, { ifname: 'eth0' });
      expect(await rulesOf(lab, pod)).toEqual([
        '10.7.0.2 105',
        '10.8.0.2 103',
        '192.0.2.1 102',
        'fd00:7::2 106',
        'fd00:8::2 104',
      ]);
      for (const ifname of ['net1', 'eth0']) expect((await check(lab, pod, { ifname })).exitCode).toBe(0);
    });

    test('rules of other programs for the address are theirs: all its packets, or those to a port', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      await lab.batch(pod, 'rule add from 10.8.0.2 ipproto tcp dport 80 lookup 222 pref 10');
      await lab.batch(pod, 'rule add from 10.8.0.2 lookup 223 proto static pref 11');
      expect((await add(lab, pod)).exitCode).toBe(0);
      expect(await routesOf(lab, pod, 100)).toContain('default via 10.8.0.1');
      expect((await check(lab, pod)).exitCode).toBe(0);
      // What does not say who made it may be the reference's, but where one of ours is.
      await lab.batch(pod, 'rule add from 10.8.0.2 lookup 224 pref 12');
      await lab.batch(pod, 'route add 10.99.0.0/16 dev net1 table 224');
      expect((await check(lab, pod)).exitCode).toBe(0);
      expect((await del(lab, pod)).exitCode).toBe(0);
      expect(await rulesOf(lab, pod)).toEqual(['10.8.0.2 222', '10.8.0.2 223', '10.8.0.2 224']);
      expect(await routesOf(lab, pod, 224)).toEqual(['10.99.0.0/16']);
    });

    test('concurrent attachments of one pod use different tables', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      const replies = await Promise.all(['net1', 'eth0'].map(ifname => add(lab, pod, { ifname })));
      expect(replies.map(({ exitCode }) => exitCode)).toEqual([0, 0]);
      const tables = (await rulesOf(lab, pod)).map(rule => rule.split(' ')[1]);
      expect(new Set(tables).size).toBe(4);
    });

    test('two addresses of one family get a table each, with their own routes', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      await lab.ip(pod, 'addr', 'add', '10.88.0.2/24', 'dev', 'net1');
      const one = prevResultOf(pod, 'net1') as { ips: object[] };
      const prevResult = {
        ...one,
        ips: [...one.ips, { address: '10.88.0.2/24', gateway: '10.88.0.1', interface: 1 }],
      };
      expect((await add(lab, pod, { prevResult })).exitCode).toBe(0);
      expect(await rulesOf(lab, pod)).toEqual(['10.8.0.2 100', '10.88.0.2 102', 'fd00:8::2 101']);
      expect(await routesOf(lab, pod, 100)).not.toContain('10.88.0.0/24');
      expect(await routesOf(lab, pod, 102)).toEqual(['10.88.0.0/24', 'default via 10.88.0.1']);
      expect((await check(lab, pod, { prevResult })).exitCode).toBe(0);
    });

    test('with a configured table, only rules are added', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      const before = await lab.dump(pod);
      const conf = { table: 5000 };
      expect((await add(lab, pod, { conf })).exitCode).toBe(0);
      expect((await add(lab, pod, { conf })).exitCode).toBe(0);
      expect(await rulesOf(lab, pod)).toEqual(['10.8.0.2 5000', 'fd00:8::2 5000']);
      expect((await lab.dump(pod)).routes).toEqual(before.routes);
      expect((await check(lab, pod, { conf })).exitCode).toBe(0);
      expect((await check(lab, pod, { conf: { table: 5001 } })).error?.msg).toContain('lookup 5001');
      await lab.ip(pod, 'rule', 'add', 'from', '10.8.0.2', 'lookup', '77');
      expect((await del(lab, pod, { conf })).exitCode).toBe(0);
      expect(await rulesOf(lab, pod)).toEqual(['10.8.0.2 77']);
    });

    test('configured gateways replace those of the result, and those of moved default routes', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      await lab.ip(pod, 'route', 'add', 'default', 'via', '10.8.0.1', 'dev', 'net1', 'metric', '50');
      const conf = { gateways: ['10.8.0.9', 'fd00:8::9'] };
      expect((await add(lab, pod, { conf })).exitCode).toBe(0);
      expect(await routesOf(lab, pod, 100)).toContain('default via 10.8.0.9');
      expect(await routesOf(lab, pod, 100)).not.toContain('default via 10.8.0.1');
      expect(await routesOf(lab, pod, 101)).toContain('default via fd00:8::9');
      expect((await check(lab, pod, { conf })).exitCode).toBe(0);
    });

    test('addSourceHints keeps the subnets in the main table, with a source', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      const conf = { addSourceHints: true };
      expect((await add(lab, pod, { conf })).exitCode).toBe(0);
      const main = await routesOf(lab, pod, 'main');
      expect(main).toContain('10.8.0.0/24');
      expect(main).toContain('fd00:8::/64');
      expect(main).not.toContain('10.9.0.0/16 via 10.8.0.9');
      const [v6] = await lab.ip(pod, '-6', 'route', 'show', 'fd00:8::/64', 'table', 'main');
      expect(v6).toMatchObject({ prefsrc: 'fd00:8::2' });
      expect((await check(lab, pod, { conf })).exitCode).toBe(0);
      expect((await add(lab, pod, { conf })).exitCode).toBe(0);
      expect(await routesOf(lab, pod, 'main')).toEqual(main);
    });

    test('with addSourceHints, two interfaces in one subnet keep their own routes to it', async () => {
      const lab = await createLab();
      const container = await lab.container();
      const ranges = [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]];
      const ipam = { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` };
      const chain = writeChain(lab, {
        cniVersion: LATEST_SPEC_VERSION,
        name: 'podnet',
        plugins: [
          { type: 'bridge', bridge: 'br0', isGateway: true, ipam },
          { type: 'sbr', addSourceHints: true },
        ],
      });
      const main = async () => {
        const [v4, v6] = await Promise.all(
          ['10.88.0.0/24', 'fd88::/64'].map((subnet, i) =>
            lab.ip(container, i ? '-6' : '-4', 'route', 'show', subnet, 'table', 'main'),
          ),
        );
        return [v4, v6].map(routes => routes?.map(({ dev, prefsrc }) => `${dev} ${prefsrc}`).sort());
      };
      const [one, two] = [['eth0 10.88.0.2'], ['eth0 fd88::2']];
      await chain.add(container);
      expect(await main()).toEqual([one, two]);
      await chain.add(container, { args: ['--ifname', 'net1'] });
      expect(await main()).toEqual([
        [...one, 'net1 10.88.0.3'],
        [...two, 'net1 fd88::3'],
      ]);
      for (const ifname of ['eth0', 'net1'])
        expect(await chain.run('check', container, { args: ['--ifname', ifname] })).toMatchObject({
          exitCode: 0,
          stderr: '',
        });
      await chain.run('del', container, { args: ['--ifname', 'net1'] });
      expect(await main()).toEqual([one, two]);
      expect(await chain.run('check', container)).toMatchObject({ exitCode: 0, stderr: '' });
      await lab.run(container, ['ip', 'route', 'del', '10.88.0.0/24', 'dev', 'eth0', 'table', 'main']);
      expect((await chain.run('check', container)).stderr).toContain('that the main table lacks');
    });

    test('addresses of other interfaces are left alone, and without own addresses nothing is done', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      const before = await lab.dump(pod);
      const prevResult = { ...prevResultOf(pod, 'eth0'), cniVersion: LATEST_SPEC_VERSION };
      expect((await add(lab, pod, { prevResult })).exitCode).toBe(0);
      expect(await lab.dump(pod)).toEqual(before);
    });

    test('a failing ADD restores everything', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      const before = await lab.dump(pod);
      // A gateway that the kernel refuses, for the address that comes last.
      const failed = await add(lab, pod, { conf: { gateways: ['10.8.0.9', 'ff02::9'] } });
      expect(failed.exitCode).toBe(1);
      expect(failed.error?.details ?? '').not.toContain('could not be undone');
      expect(await lab.dump(pod)).toEqual(before);
    });

    test(
      'ADD that fails at the nth request restores everything',
      async () => {
        const failed = await failInTurn(async request => {
          const { lab, pod } = await twoInterfaces(createLab);
          const before = await lab.dump(pod);
          const reply = await add(lab, pod, { env: { CATENA_FAULT: `kernel:${request}` } });
          const what = faultIn(reply.stderr)?.what;
          if (reply.exitCode === 0) return what;
          expect(reply.error?.details ?? '').not.toContain('could not be undone');
          expect({ what, state: await lab.dump(pod) }).toEqual({ what, state: before });
          return what;
        });
        const words = failed.join('\n');
        expect(words).toContain('add rule from fd00:8::2/128');
        expect(words).toContain('delete route to 10.8.0.0/24');
      },
      DEADLINE_MS,
    );

    test('DEL succeeds without the interface, repeatedly, and without a namespace, where it creates no file', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      await add(lab, pod);
      await lab.ip(pod, 'link', 'del', 'net1');
      const prevResult = prevResultOf(pod, 'net1');
      expect((await del(lab, pod, { prevResult })).exitCode).toBe(0);
      expect(await rulesOf(lab, pod)).toEqual([]);
      expect((await del(lab, pod)).exitCode).toBe(0);
      expect((await del(lab, { ...pod, path: '' })).exitCode).toBe(0);
      const gone = `${lab.tmp}/gone`;
      expect((await del(lab, { ...pod, path: gone })).exitCode).toBe(0);
      expect(await Bun.file(gone).exists()).toBe(false);
    });

    test('DEL removes rules whose address nothing tells now, and none of other interfaces', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      await add(lab, pod);
      await add(lab, pod, { ifname: 'eth0', prevResult: prevResultOf(pod, 'eth0') });
      await lab.batch(pod, 'rule add from 10.8.0.77 lookup 500');
      const ofEth0 = ['10.7.0.2 102', 'fd00:7::2 103'];
      expect(await rulesOf(lab, pod)).toEqual(
        ['10.8.0.77 500', ...ofEth0, '10.8.0.2 100', 'fd00:8::2 101'].sort(),
      );
      await lab.ip(pod, 'link', 'del', 'net1');
      expect((await del(lab, pod, { prevResult: undefined })).exitCode).toBe(0);
      expect(await rulesOf(lab, pod)).toEqual(['10.8.0.77 500', ...ofEth0].sort());
      // Its routes stand, so another interface's DEL leaves it.
      await lab.ip(pod, 'addr', 'del', '10.7.0.2/24', 'dev', 'eth0');
      await lab.ip(pod, 'route', 'add', '10.9.0.0/16', 'dev', 'eth0', 'table', '102');
      expect((await del(lab, pod, { prevResult: undefined })).exitCode).toBe(0);
      expect(await rulesOf(lab, pod)).toEqual(['10.8.0.77 500', ...ofEth0].sort());
      expect((await del(lab, pod, { ifname: 'eth0', prevResult: undefined })).exitCode).toBe(0);
      expect(await rulesOf(lab, pod)).toEqual(['10.8.0.77 500']);
    });

    test('CHECK names what is missing or has returned', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      const routes = [{ dst: '10.9.0.0/16', gw: '10.8.0.9' }, { dst: '0.0.0.0/0' }];
      const call = { prevResult: { ...prevResultOf(pod, 'net1'), routes } };
      const cases: [string, string][] = [
        ['route del default table 100', '0.0.0.0/0 via 10.8.0.1'],
        ['route del 10.8.0.0/24 table 100', '10.8.0.0/24'],
        ['-6 route del default table 101', '::/0 via fd00:8::1'],
        ['route add 192.0.2.0/24 dev net1', '192.0.2.0/24'],
        ['rule del from 10.8.0.2', 'rule for packets from 10.8.0.2/32'],
        ['-6 rule del from fd00:8::2', 'rule for packets from fd00:8::2/128'],
        // Not for ADD to put back, which knows only what is there.
        ['route del 10.9.0.0/16 table 100', '10.9.0.0/16 via 10.8.0.9'],
      ];
      for (const [command, words] of cases) {
        expect((await add(lab, pod, call)).exitCode).toBe(0);
        expect(await check(lab, pod, call)).toMatchObject({ exitCode: 0 });
        await lab.ip(pod, ...command.split(' '));
        const checked = await check(lab, pod, call);
        expect(checked).toMatchObject({ exitCode: 1, error: { code: 999 } });
        expect(checked.error?.msg).toContain(words);
      }
    });

    test('ADD restores a rule for the table that the address had', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      expect((await add(lab, pod)).exitCode).toBe(0);
      const before = await lab.dump(pod);
      await lab.ip(pod, 'rule', 'del', 'from', '10.8.0.2');
      await lab.ip(pod, '-6', 'rule', 'del', 'from', 'fd00:8::2');
      expect((await add(lab, pod)).exitCode).toBe(0);
      expect(await lab.dump(pod)).toEqual(before);
    });

    test('in a chain, earlier plugins find their routes in the new tables', async () => {
      const lab = await createLab();
      const container = await lab.container();
      const ranges = [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]];
      const ipam = { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` };
      const chain = writeChain(lab, {
        cniVersion: LATEST_SPEC_VERSION,
        name: 'podnet',
        plugins: [{ type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipam }, { type: 'sbr' }],
      });
      await chain.add(container);
      expect(await rulesOf(lab, container)).toEqual(['10.88.0.2 100', 'fd88::2 101']);
      expect(await chain.run('check', container)).toMatchObject({ exitCode: 0, stderr: '' });
      expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stderr: '' });
      expect(await rulesOf(lab, container)).toEqual([]);
    });

    test('invalid input is refused before anything is changed', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      const before = await lab.dump(pod);
      const cases: [Call, string][] = [
        [{ conf: { gateways: ['10.8.0'] } }, '10.8.0'],
        [{ conf: { gateways: ['10.8.0.1', '10.8.0.9'] } }, 'one of IPv4'],
        [{ conf: { table: 254 } }, '254'],
        [{ conf: { table: -1 } }, '-1'],
        [{ prevResult: undefined }, 'prevResult'],
        [{ prevResult: { cniVersion: LATEST_SPEC_VERSION, ips: [] } }, 'no addresses'],
      ];
      for (const [call, words] of cases) {
        const refused = await add(lab, pod, call);
        expect(refused).toMatchObject({ exitCode: 1, error: { code: 7 } });
        expect(refused.error?.msg).toContain(words);
      }
      expect(await lab.dump(pod)).toEqual(before);
    });

    test('GC does nothing, STATUS tests the kernel and leaves nothing', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      const before = await lab.dump(lab.host);
      const conf = confOf({});
      expect((await lab.plugin('sbr', { command: 'GC', conf })).exitCode).toBe(0);
      expect(await lab.plugin('sbr', { command: 'STATUS', conf })).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await lab.dump(lab.host)).toEqual(before);
      const bad = { ...conf, gateways: ['x'] };
      expect((await lab.plugin('sbr', { command: 'STATUS', conf: bad })).error?.code).toBe(7);
      expect(pod.id).not.toBe('');
    });

    test('addRule(), listRules() and removeRule() of both families and any table', async () => {
      const { lab, pod } = await twoInterfaces(createLab);
      withSocket(pod, socket => {
        for (const from of ['10.1.0.0/16', 'fd00:1::2/128'].map(parseCidr)) {
          addRule(socket, { from, table: 100 });
          addRule(socket, { from, table: 70_000, priority: 12 });
        }
      });
      for (const family of ['-4', '-6']) {
        const rules = await lab.ip(pod, family, 'rule');
        expect(rules.map(({ priority, table }) => `${priority} ${table}`)).toEqual(
          expect.arrayContaining(['12 70000', '32765 100']),
        );
      }
      withSocket(pod, socket => {
        const ours = listRules(socket).filter(({ from }) => from !== undefined);
        expect(ours).toHaveLength(4);
        for (const { from, table, priority } of [...ours, ...ours]) {
          if (from) removeRule(socket, { from, table, priority });
        }
      });
      expect(await rulesOf(lab, pod)).toEqual([]);
    });
  },
  requires('ip', 'ping'),
);

interface Scene {
  readonly lab: Lab;
  readonly pod: Container;
  /** Beyond the gateway of net1, at 192.168.8.8 and fd00:88::8; the host's other networks do not lead there. */
  readonly client: Namespace;
}

/** A pod with an interface to the host, which has the default route, and one to a router that is not the host. */
async function twoInterfaces(createLab: () => Promise<Lab>): Promise<Scene> {
  const lab = await createLab();
  const [pod, client] = [await lab.container(), await lab.container()];
  for (const ns of [lab.host, pod, client]) {
    await lab.sysctl(ns, 'net/ipv6/conf/default/accept_dad', 0);
    await lab.batch(ns, 'link set lo up');
  }
  await connect(lab, pod, 'eth0', lab.host);
  await connect(lab, pod, 'net1', client);
  await lab.batch(
    client,
    'addr add 192.168.8.8/32 dev lo',
    'addr add fd00:88::8/128 dev lo nodad',
    // Asked from there, the pod has to answer to an address that only its default route of net1 leads to.
    'route replace 10.8.0.0/24 dev gw src 192.168.8.8',
    'route del fd00:8::/64 dev gw',
    'route add fd00:8::/64 dev gw src fd00:88::8',
  );
  await lab.batch(
    pod,
    'route add default via 10.7.0.1',
    'route add default via fd00:7::1',
    // As a second network with a default gateway does: the kernel makes one route of both.
    'route append default via fd00:8::1',
    'route add 10.9.0.0/16 via 10.8.0.9 dev net1',
  );
  return { lab, pod, client };
}

async function connect(lab: Lab, pod: Container, ifname: keyof typeof NETS, other: Namespace): Promise<void> {
  const { v4, v6 } = NETS[ifname];
  await lab.batch(other, `link add gw type veth peer ${ifname} netns ${pod.name}`);
  for (const [ns, device, number] of [
    [other, 'gw', 1],
    [pod, ifname, 2],
  ] as const) {
    await lab.batch(
      ns,
      `addr add ${v4}.${number}/24 dev ${device}`,
      `addr add ${v6}:${number}/64 dev ${device} nodad`,
      `link set ${device} up`,
    );
  }
  for (const [ns, device] of [
    [other, 'gw'],
    [pod, ifname],
  ] as const) {
    await untilAddressed(ns, device);
  }
}

async function reaches(lab: Lab, from: Namespace, address: string): Promise<boolean> {
  return (await lab.run(from, ['ping', '-n', '-q', '-c', '1', '-W', '1', address])).exitCode === 0;
}

function withSocket(ns: Namespace, work: (socket: NetlinkSocket) => void): void {
  const netns = openNetns(ns.path);
  const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
  try {
    work(socket);
  } finally {
    socket.close();
    closeNetns(netns);
  }
}

/** Source and table of every rule that has a source, sorted. */
async function rulesOf(lab: Lab, pod: Namespace): Promise<string[]> {
  const rules = [...(await lab.ip(pod, '-4', 'rule')), ...(await lab.ip(pod, '-6', 'rule'))];
  return rules
    .filter(({ src }) => src !== 'all')
    .map(({ src, table }) => `${src} ${table}`)
    .sort();
}

/** Unicast routes of a table, sorted. */
async function routesOf(lab: Lab, pod: Namespace, table: number | 'main'): Promise<string[]> {
  const show = (family: string): Promise<Row[]> =>
    // A table that nothing was ever put into is an error for `ip`, unless all are shown.
    lab.ip(pod, family, 'route', 'show', 'table', 'all', 'type', 'unicast');
  const rows = [...(await show('-4')), ...(await show('-6'))];
  return rows
    .filter(row => String(row.table ?? 'main') === String(table))
    .map(({ dst, gateway }) => (gateway ? `${dst} via ${gateway}` : dst))
    .sort();
}

function prevResultOf(
  pod: Container,
  ifname: keyof typeof NETS,
  version: string = LATEST_SPEC_VERSION,
): object {
  const { v4, v6 } = NETS[ifname];
  const family = version < '1.0.0' ? [{ version: '4' }, { version: '6' }] : [{}, {}];
  return {
    cniVersion: version,
    interfaces: [{ name: 'host0' }, { name: ifname, sandbox: pod.path }],
    ips: [
      { ...family[0], address: `${v4}.2/24`, gateway: `${v4}.1`, interface: 1 },
      { ...family[1], address: `${v6}:2/64`, gateway: `${v6}:1`, interface: 1 },
    ],
  };
}

function confOf({ version = LATEST_SPEC_VERSION, conf }: Call): object {
  return { cniVersion: version, name: 'podnet', type: 'sbr', ...conf };
}

function run(
  command: string,
  lab: Lab,
  pod: Container,
  call: Call,
  prevResult: unknown,
): Promise<PluginReply> {
  const { ifname = 'net1', env = {} } = call;
  return lab.plugin('sbr', { command, container: pod, ifname, conf: confOf(call), prevResult, env });
}

function add(lab: Lab, pod: Container, call: Call = {}): Promise<PluginReply> {
  const ifname = (call.ifname ?? 'net1') as keyof typeof NETS;
  const prevResult = 'prevResult' in call ? call.prevResult : prevResultOf(pod, ifname, call.version);
  return run('ADD', lab, pod, call, prevResult);
}

function check(lab: Lab, pod: Container, call: Call = {}): Promise<PluginReply> {
  const ifname = (call.ifname ?? 'net1') as keyof typeof NETS;
  return run('CHECK', lab, pod, call, call.prevResult ?? prevResultOf(pod, ifname, call.version));
}

function del(lab: Lab, pod: Container, call: Call = {}): Promise<PluginReply> {
  return run('DEL', lab, pod, call, call.prevResult);
}
