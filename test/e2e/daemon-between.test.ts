// Do daemons of three nodes keep every pod reachable, while nodes come, go and boot, and others damage what they made?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { CATENA } from '../helpers/catena.ts';
import { type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresVxlan } from '../helpers/skip.ts';
import { makeThreeNodes, type TestNode, writeNodes } from '../helpers/three-nodes.ts';
import { echo, startServer } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

/** A daemon on each node, with directories of its own. */
interface Running {
  readonly dir: string;
  state(): Promise<Row>;
  stop(): Promise<void>;
  settings(more: object): void;
}

async function startOn(lab: Lab, node: TestNode, nodes: string): Promise<Running> {
  const dir = `${lab.tmp}/${node.letter}`;
  fs.mkdirSync(dir, { recursive: true });
  const settings = (more: object) => fs.writeFileSync(`${dir}/daemon.json`, JSON.stringify(more));
  if (!fs.existsSync(`${dir}/daemon.json`)) settings({ nodes });
  const env = [
    'env',
    `CATENA_RUN_DIR=${dir}/run`,
    `CATENA_STATE_DIR=${dir}/state`,
    `CATENA_CNI_CACHE_DIR=${dir}/cni`,
  ];
  const argv = [
    CATENA,
    'daemon',
    '--config',
    `${dir}/daemon.json`,
    '--node-name',
    node.letter,
    '--log',
    `file:${dir}/log`,
  ];
  const child = lab.start(node, [...env, ...argv]);
  const unix = `${dir}/run/catena.sock`;
  const ask = async () =>
    (await fetch('http://catena/v1/state', { unix, signal: AbortSignal.timeout(5_000) })).json();
  await until(() =>
    ask().then(
      () => true,
      () => false,
    ),
  );
  return {
    dir,
    settings,
    async state() {
      return ((await ask()) as Row).between ?? {};
    },
    async stop() {
      child.kill('SIGTERM');
      await child.exited;
    },
  };
}

/** Everything of ours on a node. */
async function left(lab: Lab, node: TestNode): Promise<unknown[]> {
  const routes = (version: string) => lab.ip(node, version, 'route', 'show', 'table', 'all', 'proto', '67');
  const devices = await lab.ip(node, 'link', 'show', 'type', 'vxlan');
  const tables = (await lab.nft(node, 'list', 'tables')).filter((row: Row) => row.table);
  return [...(await routes('-4')), ...(await routes('-6')), ...devices, ...tables];
}

describeRoot(
  'daemons between nodes',
  () => {
    test('connect pods, through removal and boot of a node, and leave nothing when turned off', async () => {
      await withHost(async lab => {
        const cluster = await makeThreeNodes(lab);
        const { a, b, c } = cluster.nodes;
        const all = [a, b, c];
        const nodes = `${lab.tmp}/nodes`;
        writeNodes(nodes, all);
        const [onA, onB, onC] = await Promise.all(all.map(node => startOn(lab, node, nodes)));
        if (!onA || !onB || !onC) throw new Error('a daemon is missing');
        const ready = async (running: Running, wanted: object) =>
          until(async () => Bun.deepMatch(wanted, await running.state()));
        for (const running of [onA, onB, onC]) await ready(running, { nodes: 2, routes: 4, problems: [] });
        expect(await cluster.pingAll()).toEqual([]);
        expect((await onA.state()).tunnels).toEqual({ 'catena-vxlan': 1450 });

        // A node goes.
        writeNodes(nodes, [a, b]);
        for (const running of [onA, onB])
          await ready(running, { nodes: 1, routes: 2, tunnels: {}, problems: [] });
        expect(await lab.ip(a, 'link', 'show', 'type', 'vxlan')).toEqual([]);
        expect(await cluster.pingAll([a, b])).toEqual([]);
        await ready(onC, {
          problems: ['this node, "c", is not among the 2 nodes: what was made before stays as it is'],
        });

        // A file that is half written changes nothing; whole, the node is back.
        fs.writeFileSync(`${nodes}/c.json`, '{"name": "c", "addr');
        await until(async () => String((await onA.state()).problems).includes('c.json'));
        expect(await cluster.pingAll([a, b])).toEqual([]);
        writeNodes(nodes, all);
        for (const running of [onA, onB, onC]) await ready(running, { nodes: 2, routes: 4, problems: [] });
        expect(await cluster.pingAll()).toEqual([]);

        // A node boots again: its kernel and run directory are empty.
        await onC.stop();
        expect(await cluster.ping(a, c)).toEqual([]);
        fs.rmSync(`${onC.dir}/run`, { recursive: true });
        await cluster.boot(c);
        expect(await cluster.ping(a, c)).not.toEqual([]);
        const againOnC = await startOn(lab, c, nodes);
        await ready(againOnC, { nodes: 2, routes: 4, problems: [] });
        expect(await cluster.pingAll()).toEqual([]);

        // A daemon that ends keeps what it made, and the next one finds it as it should be, even before it is told of nodes.
        await onB.stop();
        expect(await cluster.pingAll()).toEqual([]);
        fs.renameSync(nodes, `${nodes}.away`);
        await lab.run(b, ['ip', 'route', 'del', a.block4]);
        const againOnB = await startOn(lab, b, nodes);
        await until(async () => (await lab.ip(b, 'route', 'show', a.block4)).length === 1);
        await until(async () => String((await againOnB.state()).problems).includes('no such file'));
        expect(await cluster.pingAll()).toEqual([]);
        fs.renameSync(`${nodes}.away`, nodes);
        await ready(againOnB, { problems: [] });

        // The doctor sees what is missing while no daemon repairs it.
        const doctor = async () => {
          const argv = ['env', `CATENA_RUN_DIR=${againOnB.dir}/run`, CATENA, 'doctor', '--json', '--all'];
          const { stdout } = await lab.run(b, argv);
          const { findings } = JSON.parse(stdout) as { findings: Row[] };
          return findings.filter(({ id }) => id === 'network.nodes').map(({ found }) => found);
        };
        expect(await doctor()).toEqual(['4 routes lead to 2 other nodes']);
        await againOnB.stop();
        await lab.run(b, ['ip', 'route', 'del', c.block4]);
        expect(await doctor()).toEqual([
          'pods of other nodes are not reached as planned: missing: route to 10.244.3.0/24 via 10.244.3.0',
        ]);

        // Turned off, nothing stays; on a daemon that starts with other settings, too.
        onA.settings({});
        await until(async () => (await left(lab, a)).length === 0);
        againOnB.settings({});
        const offOnB = await startOn(lab, b, nodes);
        await until(async () => (await left(lab, b)).length === 0);
        await Promise.all([onA, offOnB, againOnC].map(one => one.stop()));
        // And what a daemon left, `uninstall --purge` removes.
        expect((await left(lab, c)).length).toBeGreaterThan(0);
        const env = ['env', `CATENA_RUN_DIR=${onC.dir}/run`, `CATENA_STATE_DIR=${onC.dir}/state`];
        const places = ['--bin-dir', `${onC.dir}/bin`, '--conf-dir', `${onC.dir}/net.d`];
        const purged = await lab.run(c, [
          ...env,
          `CATENA_CNI_CACHE_DIR=${onC.dir}/cni`,
          CATENA,
          'uninstall',
          '--purge',
          ...places,
        ]);
        expect([purged.exitCode, purged.stderr]).toEqual([0, '']);
        expect(await left(lab, c)).toEqual([]);
        expect(fs.existsSync(`${onC.dir}/run/between.json`)).toBe(false);
      });
    });

    test('pods of our own chain keep their source, fit the tunnel, and are told which route is missing', async () => {
      await withHost(async lab => {
        const cluster = await makeThreeNodes(lab);
        const { a, b, c } = cluster.nodes;
        const nodes = `${lab.tmp}/nodes`;
        writeNodes(nodes, [a, b, c]);
        const [onA] = await Promise.all([a, b, c].map(node => startOn(lab, node, nodes)));
        await until(async () => (await cluster.pingAll()).length === 0);
        const dir = `${lab.tmp}/a`;
        const env = {
          CATENA_RUN_DIR: `${dir}/run`,
          CATENA_STATE_DIR: `${dir}/state`,
          CATENA_CNI_CACHE_DIR: `${dir}/cni`,
          NETCONFPATH: `${dir}/net.d`,
          CNI_PATH: BIN_DIR,
        };
        const catena = async (...words: string[]) => {
          const finished = await lab.run(a, [CATENA, ...words], { env });
          return { ...finished, text: finished.stdout + finished.stderr };
        };
        const server = await startServer(lab, c.pod, { protocol: 'tcp', port: 8080 });
        fs.mkdirSync(`${dir}/net.d`);
        for (const [i, ipMasqBackend] of ['nftables', 'iptables'].entries()) {
          const name = `pods${i}`;
          const range = (subnet: string, rangeStart: string) => [{ subnet, rangeStart }];
          const ranges = [range(a.block4, `10.244.1.10${i}`), range(a.block6, `fd00:244:1::10${i}`)];
          const routes = [{ dst: '0.0.0.0/0' }, { dst: '::/0' }];
          const ipam = { type: 'host-local', dataDir: `${dir}/leases-${i}`, ranges, routes };
          const plugin = { type: 'ptp', ipMasq: true, ipMasqBackend, mtu: 'auto', ipam };
          const list = { cniVersion: '1.1.0', name, plugins: [plugin] };
          fs.writeFileSync(`${dir}/net.d/${name}.conflist`, JSON.stringify(list));
          const pod = await lab.container();
          const added = await catena('add', name, pod.path);
          expect([added.exitCode, added.stderr]).toEqual([0, '']);
          expect(await lab.ip(pod, 'link', 'show', 'eth0')).toMatchObject([{ mtu: 1450 }]);
          for (const [address, own] of [
            [c.pod4, `10.244.1.10${i}`],
            [c.pod6, `fd00:244:1::10${i}`],
          ] as const) {
            const reply = await echo(lab, pod, { protocol: 'tcp', address, port: 8080, timeoutMs: 5_000 });
            expect([ipMasqBackend, reply?.peer.replace('::ffff:', '')]).toEqual([ipMasqBackend, own]);
          }
          // The way is simulated as far as this node knows it.
          const why = await catena('why-not', `10.244.1.10${i}`, `${c.pod4}:8080`);
          expect(why.text).toContain(`a pod of node "c" has ${c.pod4}: what is there is not known here`);
          expect([why.exitCode, why.text.includes('not masqueraded')]).toEqual([3, false]);
          if (i === 0) await catena('del', name, pod.path);
        }
        await server.stop();
        await onA?.stop();
        await lab.run(a, ['ip', 'route', 'del', c.block4]);
        const lost = await catena('why-not', '10.244.1.101', `${c.pod4}:8080`);
        expect([lost.exitCode, lost.text.split('\n').filter(line => line.startsWith('✗'))]).toEqual([
          1,
          [
            '✗ route        node: 10.244.3.10 is an address of node "c", but no route leads to its block 10.244.3.0/24: the packet leaves through "eth0" with a wider one',
          ],
        ]);
        expect(lost.text).toContain('mend: catena daemon --status');
      });
    });

    test('repair what others damage', async () => {
      await withHost(async lab => {
        const cluster = await makeThreeNodes(lab);
        const { a, b, c } = cluster.nodes;
        const nodes = `${lab.tmp}/nodes`;
        writeNodes(nodes, [a, b, c]);
        const [running] = await Promise.all([a, b, c].map(node => startOn(lab, node, nodes)));
        await until(async () => (await cluster.pingAll()).length === 0);
        const tunnel = 'catena-vxlan';
        const damages: Readonly<Record<string, string[]>> = {
          'a route deleted': ['ip', 'route', 'del', b.block4],
          'routes over IPv6 flushed': ['ip', '-6', 'route', 'flush', 'proto', '67'],
          'forwarding flushed': ['bridge', 'fdb', 'flush', 'dev', tunnel],
          'neighbours flushed': ['ip', 'neigh', 'flush', 'dev', tunnel, 'nud', 'permanent'],
          'device down': ['ip', 'link', 'set', tunnel, 'down'],
          'device deleted': ['ip', 'link', 'del', tunnel],
          'another MTU': ['ip', 'link', 'set', tunnel, 'mtu', '1300'],
          'uplink down and up': [
            'sh',
            '-c',
            'ip link set eth0 down; ip link set eth0 up; ip route add default via 192.0.2.254; ip addr add 2001:db8::1/64 dev eth0 nodad; ip route add default via 2001:db8::fe',
          ],
          'rules flushed': ['nft', 'flush', 'ruleset'],
          'export flushed': ['ip', 'route', 'flush', 'table', '6700'],
        };
        const snapshot = async () => {
          const found = JSON.stringify([
            await left(lab, a),
            (await lab.run(a, ['ip', 'neigh', 'show', 'dev', tunnel, 'nud', 'permanent'])).stdout
              .split('\n')
              .sort(),
            (await lab.run(a, ['ip', '-6', 'neigh', 'show', 'dev', tunnel, 'nud', 'permanent'])).stdout
              .split('\n')
              .sort(),
            (await lab.run(a, ['bridge', 'fdb', 'show', 'dev', tunnel])).stdout,
            (await lab.nft(a, 'list', 'ruleset')).length,
          ]);
          // A device that is made again has another index, and a table another handle.
          return found.replace(/"(handle|ifindex|promiscuity)":\d+/g, '');
        };
        const before = await snapshot();
        const times: string[] = [];
        for (const [what, argv] of Object.entries(damages)) {
          const at = performance.now();
          const { stderr } = await lab.run(a, argv);
          expect([what, stderr]).toEqual([what, '']);
          await until(async () => (await snapshot()) === before).catch(async () => {
            expect([what, await snapshot()]).toEqual([what, before]);
          });
          times.push(`${what}: ${Math.round(performance.now() - at)} ms`);
        }
        process.stdout.write(`repaired, with the time to look:\n  ${times.join('\n  ')}\n`);
        expect(await cluster.pingAll()).toEqual([]);
        expect((await running?.state())?.changes.repaired).toBeGreaterThanOrEqual(
          Object.keys(damages).length - 1,
        );
      });
    });
  },
  requiresVxlan(),
);
