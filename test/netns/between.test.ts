// Does the kernel carry packets between the pods of nodes as planned, and is damage by others put right without touching what is theirs?
import { expect, test } from 'bun:test';
import {
  type Applied,
  applyWays,
  findDifferences,
  hostLinksOf,
  removeWays,
} from '../../src/between/apply.ts';
import { type PlanChoices, planWays, type WaysPlan } from '../../src/between/plan.ts';
import { parseCidr, parseIp } from '../../src/net/ip.ts';
import { Tables } from '../../src/netlink/tables.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { type Lab, type Namespace, type Row, withHost } from '../helpers/netns.ts';
import { describeRoot, requiresVxlan } from '../helpers/skip.ts';
import { makeThreeNodes, type TestNode } from '../helpers/three-nodes.ts';
import { echo, startServer } from '../helpers/traffic.ts';

/** Until the addresses of new devices have been found to have no duplicates. */
const DAD_MS = 3_000;

const SETTLED = { changed: [], problems: [] };

function inside<T>(ns: Namespace, work: () => T): T {
  const netns = openNetns(ns.path);
  try {
    return inNetns(netns, work as () => never) as T;
  } finally {
    closeNetns(netns);
  }
}

function planFor(node: TestNode, nodes: readonly TestNode[], choices: Partial<PlanChoices> = {}): WaysPlan {
  const cluster = nodes.map(({ letter, v4, v6, block4, block6 }) => ({
    name: letter,
    addresses: [v4, v6].map(parseIp),
    blocks: [block4, block6].map(parseCidr),
  }));
  return inside(node, () => {
    const all = { own: node.letter, ways: 'auto', vni: 6700, port: 4789, ...choices } as const;
    const plan = planWays(cluster, hostLinksOf(new Tables()), all);
    if (plan === undefined) throw new Error('no plan');
    return plan;
  });
}

function settle(node: TestNode, nodes: readonly TestNode[], choices: Partial<PlanChoices> = {}): Applied {
  const plan = planFor(node, nodes, choices);
  return inside(node, () => applyWays(plan));
}

function differences(node: TestNode, nodes: readonly TestNode[]): string[] {
  const plan = planFor(node, nodes);
  return inside(node, () => findDifferences(plan));
}

/** Everything of ours on a node, as the tools list it. */
async function left(lab: Lab, node: TestNode): Promise<unknown[]> {
  const routes = async (version: string) =>
    lab.ip(node, version, 'route', 'show', 'table', 'all', 'proto', '67');
  const devices = await lab.ip(node, 'link', 'show', 'type', 'vxlan');
  const tables = (await lab.nft(node, 'list', 'tables')).filter((row: Row) => row.table);
  return [...(await routes('-4')), ...(await routes('-6')), ...devices, ...tables];
}

describeRoot(
  'between nodes',
  () => {
    test('every pod reaches every pod, before and after a node is removed and another boots again', async () => {
      await withHost(async lab => {
        const cluster = await makeThreeNodes(lab);
        const { a, b, c } = cluster.nodes;
        const all = [a, b, c];
        expect(await cluster.pingAll()).not.toEqual([]);
        for (const node of all) expect(settle(node, all).problems).toEqual([]);
        expect(await cluster.pingAll()).toEqual([]);
        for (const node of all) {
          expect(settle(node, all)).toEqual(SETTLED);
          expect(differences(node, all)).toEqual([]);
        }

        // One with its neighbour directly, through the tunnel with the other.
        const routes = await lab.ip(a, 'route', 'show', 'proto', '67');
        expect(routes.map(({ dst, dev, gateway, type }: Row) => [type, dst, dev, gateway])).toEqual([
          ['unreachable', '10.244.1.0/24', undefined, undefined],
          ['unicast', '10.244.2.0/24', 'eth0', '192.0.2.2'],
          ['unicast', '10.244.3.0/24', 'catena-vxlan', '10.244.3.0'],
        ]);
        const exported = await lab.ip(a, 'route', 'show', 'table', '6700');
        expect(exported).toMatchObject([{ type: 'unreachable', dst: '10.244.1.0/24', protocol: '67' }]);
        const exported6 = await lab.ip(a, '-6', 'route', 'show', 'table', '6700');
        expect(exported6).toMatchObject([{ dst: 'fd00:244:1::/64', protocol: '67' }]);
        const [device] = await lab.ip(a, 'link', 'show', 'catena-vxlan');
        expect(device).toMatchObject({
          mtu: 1450,
          ifalias: 'catena: way to other nodes',
          linkinfo: { info_data: { id: 6700, port: 4789, learning: false, local: '192.0.2.1' } },
        });

        // The third node goes: its routes go, the tunnel with them, and the others still reach each other.
        for (const node of [a, b]) expect(settle(node, [a, b]).problems).toEqual([]);
        expect(await lab.ip(a, 'link', 'show', 'type', 'vxlan')).toEqual([]);
        expect(await lab.ip(a, 'route', 'show', '10.244.3.0/24')).toEqual([]);
        expect(await cluster.pingAll([a, b])).toEqual([]);
        for (const node of [a, b]) settle(node, all);
        expect(await cluster.pingAll()).toEqual([]);

        // One boots again: the others need not be told.
        await cluster.boot(c);
        expect(await cluster.ping(a, c)).not.toEqual([]);
        settle(c, all);
        await cluster.boot(a);
        settle(a, all);
        expect(await cluster.pingAll()).toEqual([]);
        for (const node of [b, c]) expect(settle(node, all)).toEqual(SETTLED);

        for (const node of all) {
          expect(inside(node, removeWays).problems).toEqual([]);
          expect(await left(lab, node)).toEqual([]);
        }
      });
    });

    test('TCP passes both ways with full packets, and keeps its source where the node masquerades', async () => {
      await withHost(async lab => {
        const cluster = await makeThreeNodes(lab);
        const { a, b, c } = cluster.nodes;
        const all = [a, b, c];
        for (const node of all) settle(node, all);
        const masquerade = `table inet other { chain post { type nat hook postrouting priority srcnat;
          ip saddr ${a.block4} ip daddr != ${a.block4} masquerade; ip6 saddr ${a.block6} ip6 daddr != ${a.block6} masquerade; }; }`;
        expect((await lab.run(a, ['nft', masquerade])).stderr).toBe('');
        for (const to of [b, c]) {
          const server = await startServer(lab, to.pod, { protocol: 'tcp', port: 8080 });
          for (const address of [to.pod4, to.pod6]) {
            const reply = await echo(lab, a.pod, {
              protocol: 'tcp',
              address,
              port: 8080,
            });
            expect(reply?.text).toBe('hello');
            expect(reply?.peer.replace('::ffff:', '')).toBe(address === to.pod4 ? a.pod4 : a.pod6);
          }
          await server.stop();
          // The largest packets that pass undivided.
          const size = to === b ? 1500 : 1450;
          for (const [address, headers] of [
            [to.pod4, 28],
            [to.pod6, 48],
          ] as const) {
            const sized = (bytes: number) => [
              'ping',
              '-n',
              '-c',
              '1',
              '-W',
              '2',
              '-M',
              'do',
              '-s',
              String(bytes),
              address,
            ];
            expect((await lab.run(a.pod, sized(size - headers))).exitCode).toBe(0);
            expect((await lab.run(a.pod, sized(size - headers + 1))).exitCode).not.toBe(0);
          }
        }
        // Without our rules, the other program would have masqueraded it.
        await lab.run(a, ['nft', 'delete', 'table', 'inet', 'catena_between']);
        const server = await startServer(lab, b.pod, { protocol: 'tcp', port: 8082 });
        const masked = await echo(lab, a.pod, { protocol: 'tcp', address: b.pod4, port: 8082 });
        expect(masked?.peer.replace('::ffff:', '')).toBe(a.v4);
        await server.stop();
        settle(a, all);
        // A node reaches pods of others, too: from its own address, or from that of its tunnel.
        for (const address of [b.pod4, b.pod6, c.pod4, c.pod6])
          expect((await lab.run(a, ['ping', '-n', '-c', '1', '-W', '2', address])).exitCode).toBe(0);
        // What is not between pods is masqueraded as before.
        const outside = await startServer(lab, cluster.router, { protocol: 'tcp', port: 8081 });
        const reply = await echo(lab, a.pod, {
          protocol: 'tcp',
          address: '192.0.2.254',
          port: 8081,
          text: 'x',
        });
        expect(reply?.peer.replace('::ffff:', '')).toBe('192.0.2.1');
        await outside.stop();
      });
    });

    test('each damage by others is told and put right', async () => {
      await withHost(async lab => {
        const cluster = await makeThreeNodes(lab);
        const { a, b, c } = cluster.nodes;
        const all = [a, b, c];
        for (const node of all) settle(node, all);
        const tunnel = 'catena-vxlan';
        const elsewhere = [b.block4, 'via', '192.0.2.254', 'metric', '6700', 'proto', '67'];
        const damages: Readonly<Record<string, string[]>> = {
          'a route is deleted': ['ip', 'route', 'del', b.block4],
          'a route over IPv6 is deleted': ['ip', '-6', 'route', 'del', c.block6],
          'a route leads elsewhere': ['ip', 'route', 'replace', ...elsewhere],
          'a route that leads elsewhere is appended': ['ip', 'route', 'append', ...elsewhere],
          'a route of ours has no reason': [
            'ip',
            'route',
            'add',
            '10.9.0.0/16',
            'via',
            '192.0.2.254',
            'proto',
            '67',
          ],
          'the forwarding is lost': ['bridge', 'fdb', 'del', '0a:c7:c6:33:64:03', 'dev', tunnel, 'dst', c.v4],
          'the forwarding leads elsewhere': [
            'bridge',
            'fdb',
            'replace',
            '0a:c7:c6:33:64:03',
            'dev',
            tunnel,
            'dst',
            '192.0.2.9',
          ],
          'the neighbours are flushed': ['ip', 'neigh', 'flush', 'dev', tunnel, 'nud', 'permanent'],
          'the device is down': ['ip', 'link', 'set', tunnel, 'down'],
          'the device has another MTU': ['ip', 'link', 'set', tunnel, 'mtu', '1400'],
          'the device has another address': ['ip', 'link', 'set', tunnel, 'address', '02:00:00:00:00:01'],
          'the device lost its addresses': ['ip', 'addr', 'flush', 'dev', tunnel, 'scope', 'global'],
          'the device is deleted': ['ip', 'link', 'del', tunnel],
          'the tables of rules are flushed': ['nft', 'flush', 'ruleset'],
          'the export is flushed': ['ip', 'route', 'flush', 'table', '6700'],
        };
        for (const [what, argv] of Object.entries(damages)) {
          const { exitCode, stderr } = await lab.run(a, argv);
          expect([what, exitCode, stderr]).toEqual([what, 0, '']);
          expect([what, differences(a, all).length > 0]).toEqual([what, true]);
          const { changed, problems } = settle(a, all);
          expect([what, changed.length > 0, problems]).toEqual([what, true, []]);
          expect([what, settle(a, all), differences(a, all)]).toEqual([what, SETTLED, []]);
        }
        expect(await cluster.pingAll()).toEqual([]);
      });
    });

    test('what belongs to other programs stays as it is', async () => {
      await withHost(async lab => {
        const cluster = await makeThreeNodes(lab);
        const { a, b, c } = cluster.nodes;
        const all = [a, b, c];
        // As flannel: its device, its routes with no metric, its own port and identifier.
        await lab.run(a, [
          'ip',
          'link',
          'add',
          'flannel.1',
          'type',
          'vxlan',
          'id',
          '1',
          'local',
          a.v4,
          'dstport',
          '8472',
          'nolearning',
        ]);
        await lab.run(a, ['ip', 'link', 'set', 'flannel.1', 'up']);
        await lab.run(a, ['ip', 'route', 'add', c.block4, 'via', '10.244.3.0', 'dev', 'flannel.1', 'onlink']);
        await lab.run(a, ['ip', '-6', 'route', 'add', c.block6, 'via', 'fe80::1', 'dev', 'flannel.1']);
        await lab.run(a, ['bridge', 'fdb', 'add', '02:00:00:00:00:03', 'dev', 'flannel.1', 'dst', c.v4]);
        await Bun.sleep(DAD_MS);
        const before = await lab.dump(a);
        for (const node of all) expect(settle(node, all).problems).toEqual([]);
        expect(await lab.ip(a, 'route', 'get', c.pod4)).toMatchObject([{ dev: 'flannel.1' }]);
        // The other program goes, and our routes take over.
        await lab.run(a, ['ip', 'route', 'del', c.block4, 'dev', 'flannel.1']);
        await lab.run(a, ['ip', '-6', 'route', 'del', c.block6, 'dev', 'flannel.1']);
        expect(await cluster.pingAll()).toEqual([]);
        await lab.run(a, ['ip', 'route', 'add', c.block4, 'via', '10.244.3.0', 'dev', 'flannel.1', 'onlink']);
        await lab.run(a, ['ip', '-6', 'route', 'add', c.block6, 'via', 'fe80::1', 'dev', 'flannel.1']);
        inside(a, removeWays);
        const after = await lab.dump(a);
        expect(after).toEqual(before);

        // A device of our name, and a route with our metric: told, and left.
        await lab.run(a, ['ip', 'link', 'add', 'catena-vxlan', 'type', 'bridge']);
        await lab.run(a, [
          'ip',
          'route',
          'add',
          b.block4,
          'via',
          '192.0.2.254',
          'metric',
          '6700',
          'proto',
          'static',
        ]);
        const { problems } = settle(a, all);
        expect(problems).toEqual([
          'device "catena-vxlan" belongs to another program: no tunnel is made until it is renamed or deleted',
          'cannot add route to 10.244.2.0/24 via 192.0.2.2: another program has one with its metric',
        ]);
        inside(a, removeWays);
        expect(await lab.ip(a, 'route', 'show', b.block4)).toMatchObject([{ gateway: '192.0.2.254' }]);
        expect(await lab.ip(a, 'link', 'show', 'catena-vxlan')).toHaveLength(1);
      });
    });

    test('blocks of one address, blocks that move, and a tunnel between all', async () => {
      await withHost(async lab => {
        const cluster = await makeThreeNodes(lab);
        const { a, b, c } = cluster.nodes;
        const all = [a, b, c];
        for (const node of all)
          expect(settle(node, all, { ways: 'vxlan', vni: 77, port: 8473 }).problems).toEqual([]);
        expect(await cluster.pingAll()).toEqual([]);
        for (const node of all) {
          // Another identifier makes another device.
          expect(settle(node, all).changed[0]).toBe('make again device "catena-vxlan"');
        }
        expect(await cluster.pingAll()).toEqual([]);
        // A part of another's block, or of this node's own, leads where the block does.
        for (const block4 of ['10.244.3.77/32', '10.244.1.77/32']) {
          settle(a, [a, { ...b, block4 }, c]);
          expect(await lab.ip(a, 'route', 'get', '10.244.3.77')).toMatchObject([{ dev: 'catena-vxlan' }]);
          expect(await lab.ip(a, 'route', 'show', '10.244.1.77')).toEqual([]);
        }
        settle(a, [a, { ...b, block4: '10.244.4.77/32' }, c]);
        expect(await lab.ip(a, 'route', 'get', '10.244.4.77')).toMatchObject([{ gateway: b.v4 }]);
        const rules = JSON.stringify(await lab.nft(a, 'list', 'table', 'inet', 'catena_between'));
        expect(rules).toContain('others4_32');
        settle(a, all);
        expect(JSON.stringify(await lab.nft(a, 'list', 'table', 'inet', 'catena_between'))).not.toContain(
          'others4_32',
        );
      });
    });
  },
  requiresVxlan(),
);
