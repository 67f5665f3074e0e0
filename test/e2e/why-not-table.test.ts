// Does `catena why-not` name the first hop that stops a port, and does the command that it prints mend it?
//
// Each cause is made in the kernel, and real packets tell that the port does not answer, and that it does behind the command.
import { expect, test } from 'bun:test';
import { CATENA } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { deadline } from '../helpers/deadline.ts';
import { expectGenerated, table } from '../helpers/generated.ts';
import { type Container, directories, type Lab, type Outside, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { echo, type Server, startServer } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

interface Node {
  readonly lab: Lab;
  readonly web: Container;
  readonly outside: Outside;
  /** The end on the node of the container's pair. */
  readonly port: string;
  /** Runs a command line in the host's namespace, as an operator pastes it. */
  paste(line: string): Promise<void>;
  server: Server;
}

/** A cause for which the port does not answer, and the hop that is named. */
interface Cause {
  readonly cause: string;
  readonly hop: string;
  readonly at: 'node' | 'container';
  /** Address of the client. */
  readonly from?: string;
  make(node: Node): unknown;
  /** Where no command can, such as to start a server. */
  mend?(node: Node): unknown;
}

const FORWARD = 'type filter hook forward priority 0;';
const serve = (node: Node) => async () => {
  await node.server.stop();
  node.server = await startServer(node.lab, node.web, { protocol: 'tcp', port: 80, seconds: 100 });
};

const CAUSES: readonly Cause[] = [
  {
    ...{ cause: 'no process listens', hop: 'listener', at: 'container' },
    make: ({ server }) => server.stop(),
    mend: node => serve(node)(),
  },
  {
    ...{ cause: 'the server listens on 127.0.0.1', hop: 'listener', at: 'container' },
    async make(node) {
      await node.lab.ip(node.web, 'link', 'set', 'lo', 'up');
      await node.server.stop();
      const local = { protocol: 'tcp', port: 80, address: '127.0.0.1', seconds: 100 } as const;
      node.server = await startServer(node.lab, node.web, local);
    },
    mend: node => serve(node)(),
  },
  {
    ...{ cause: 'rules flushed', hop: 'translation', at: 'node' },
    make: ({ paste }) => paste('nft flush ruleset'),
  },
  {
    ...{ cause: 'a foreign rule drops forwarded packets', hop: 'rules', at: 'node' },
    make: ({ paste }) =>
      paste(
        `nft 'table inet fw { chain pods { oifname "br0" tcp dport 80 drop; }; chain forward { ${FORWARD} ct state established accept; jump pods; }; }'`,
      ),
  },
  {
    ...{ cause: 'the policy that Docker sets', hop: 'rules', at: 'node' },
    make: ({ paste }) =>
      paste(
        'nft delete table inet fw; iptables -P FORWARD DROP && iptables -N DOCKER-USER && iptables -A FORWARD -j DOCKER-USER && iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT && iptables -A FORWARD -i docker0 -j ACCEPT',
      ),
  },
  {
    ...{ cause: 'a foreign DNAT of the same port', hop: 'translation', at: 'node' },
    make: ({ paste }) =>
      paste(
        `nft 'table ip other { chain pre { type nat hook prerouting priority -110; tcp dport 8080 dnat to 10.9.9.9:80; }; }'`,
      ),
  },
  {
    ...{ cause: '`ip_forward` set to 0', hop: 'forwarding', at: 'node' },
    make: ({ paste }) => paste('sysctl -qw net.ipv4.ip_forward=0'),
  },
  {
    ...{ cause: 'the default route in the container deleted', hop: 'reply', at: 'container' },
    make: ({ lab, web }) => lab.run(web, ['ip', 'route', 'del', 'default']),
  },
  {
    ...{ cause: 'the bridge has lost its address', hop: 'route', at: 'node' },
    make: ({ paste }) => paste('ip addr del 10.88.0.1/16 dev br0'),
  },
  {
    ...{ cause: 'the bridge is down', hop: 'device', at: 'node' },
    make: ({ paste }) => paste('ip link set br0 down'),
  },
  {
    ...{ cause: "the node's end of the pair is down", hop: 'device', at: 'node' },
    make: ({ paste, port }) => paste(`ip link set ${port} down`),
  },
  {
    ...{ cause: "the container's interface is down", hop: 'device', at: 'container' },
    make: ({ lab, web }) => lab.run(web, ['ip', 'link', 'set', 'eth0', 'down']),
  },
  {
    ...{ cause: 'a limit of one byte per second', hop: 'queue', at: 'node' },
    make: ({ paste, port }) =>
      paste(`tc qdisc replace dev ${port} root handle 1: tbf rate 8bit burst 10 limit 10`),
  },
  {
    ...{ cause: 'the same with classes', hop: 'queue', at: 'node' },
    make: ({ paste, port }) =>
      paste(
        `tc qdisc del dev ${port} root && tc qdisc add dev ${port} root handle 1: htb default 1 && tc class add dev ${port} parent 1: classid 1:1 htb rate 8bit burst 1 cburst 1`,
      ),
  },
  {
    ...{ cause: 'the device that limits what it sends is gone', hop: 'reply', at: 'node' },
    make: ({ paste }) => paste('ip link del $(ip -br link show type ifb | cut -d" " -f1)'),
  },
  {
    ...{ cause: 'a fixed neighbour entry from an earlier container', hop: 'neighbour', at: 'node' },
    make: ({ paste }) => paste('ip neigh replace 10.88.0.2 lladdr 02:00:00:00:00:99 dev br0 nud permanent'),
  },
  {
    ...{ cause: 'a route that drops', hop: 'route', at: 'node' },
    // Of several that would, the longest does.
    make: ({ paste }) =>
      paste('ip route add unreachable 10.64.0.0/10 && ip route add blackhole 10.88.0.2/32'),
    mend: ({ paste }) =>
      paste('ip route del blackhole 10.88.0.2/32 && ip route del unreachable 10.64.0.0/10'),
  },
  {
    ...{ cause: 'a routing rule that drops', hop: 'route', at: 'node' },
    make: ({ paste }) => paste('ip rule add to 10.88.0.0/16 priority 10 blackhole'),
  },
  {
    ...{ cause: 'a routing rule that drops what containers send', hop: 'reply', at: 'node' },
    make: ({ paste }) => paste('ip rule add from 10.88.0.0/16 priority 10 prohibit'),
  },
  {
    ...{ cause: 'the bridge deleted', hop: 'route', at: 'node' },
    make: ({ paste }) => paste('ip link del br0'),
  },
  {
    ...{ cause: 'the device of the container deleted', hop: 'device', at: 'container' },
    make: ({ paste, port }) => paste(`ip link del ${port}`),
  },
  {
    ...{ cause: 'a firewall inside the container', hop: 'rules', at: 'container' },
    make: ({ lab, web }) =>
      lab.run(web, [
        'nft',
        'table inet own { chain input { type filter hook input priority 0; policy drop; ct state established accept; }; }',
      ]),
  },
  {
    ...{ cause: 'the route back to the client leads through a second uplink', hop: 'route', at: 'node' },
    from: '10.202.0.1',
    async make({ lab, outside, paste }) {
      const uplink = `ip link add outside1 type veth peer name uplink1 netns ${outside.name}`;
      await paste(`${uplink} && ip addr add 10.203.0.1/24 dev outside1 && ip link set outside1 up`);
      const client =
        'ip link set uplink1 up && ip addr add 10.203.0.2/24 dev uplink1 && ip addr add 10.202.0.1/32 dev uplink && ip route replace 10.201.0.0/24 dev uplink src 10.202.0.1';
      await lab.run(outside, ['sh', '-c', client]);
      await paste(
        'ip route add 10.202.0.1/32 via 10.203.0.2 && sysctl -qw net.ipv4.conf.outside0.rp_filter=1',
      );
    },
  },
];

/** The cause whose walk the page shows in full. */
const SHOWN = 'the policy that Docker sets';

describeRoot(
  'why-not, for a port that does not answer',
  () => {
    test(
      'names the first hop for each cause; its command lets the port answer',
      () =>
        withHost(async lab => {
          const web = await lab.container();
          const outside = await lab.outside();
          const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];
          await writeChain(lab, fullChain(lab, { rate: 100_000_000 })).add(web, { cap: { portMappings } });
          const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
          const paste = async (line: string) => {
            const argv = ['sh', '-c', line.replaceAll('catena ', `${CATENA} `)];
            const { exitCode, stderr } = await lab.run(lab.host, argv, { env, timeoutMs: 50_000 });
            if (exitCode !== 0) throw new Error(`${line}: ${stderr}`);
          };
          const [pair] = await lab.ip(lab.host, 'link', 'show', 'master', 'br0');
          const server = await startServer(lab, web, { protocol: 'tcp', port: 80, seconds: 100 });
          const node: Node = { lab, web, outside, port: pair?.ifname, paste, server };
          const { v4: address } = outside.hostAddress;
          const answers = async (timeoutMs = 600) =>
            (await echo(lab, outside, { protocol: 'tcp', address, port: 8080, timeoutMs })) !== undefined;
          const ask = async (from = 'outside') => {
            const argv = [CATENA, 'why-not', from, ':8080', '--json'];
            const { exitCode, stdout, stderr } = await lab.run(lab.host, argv, { env, timeoutMs: 50_000 });
            if (stdout === '') throw new Error(stderr);
            return { exitCode, ...JSON.parse(stdout) };
          };
          const about = (text: string) =>
            text
              .replaceAll(web.id, '<id>')
              .replaceAll(web.path, '<netns>')
              .replaceAll(/veth[0-9a-f]+/g, 'veth…')
              .replaceAll(/(handle|rule) \d+/g, '$1 <n>')
              .replaceAll(/has [0-9a-f:]{17}/g, 'has <mac>');

          const rows: string[][] = [];
          let shown = { stdout: '' };
          expect(await answers()).toBe(true);
          const sound = await ask();
          expect(sound).toMatchObject({ exitCode: 0, outcome: 'arrives', simulated: true });
          for (const { cause, hop, at, from, make, mend } of CAUSES) {
            await make(node);
            expect([cause, await answers()]).toEqual([cause, false]);
            const { exitCode, outcome, hops } = await ask(from);
            const last = hops.at(-1);
            if (cause === SHOWN) shown = await lab.run(lab.host, [CATENA, 'why-not', ':8080'], { env });
            const found = {
              cause,
              exitCode,
              outcome,
              hop: last.name,
              at: last.at === 'node' ? 'node' : 'container',
            };
            expect(found).toEqual({ cause, exitCode: 1, outcome: 'stopped', hop, at });
            if (mend) await mend(node);
            else await paste(last.mend);
            // The kernel takes up a carrier (of the bridge, too) once a second, a hundred of the whole machine at a time (net/core/link_watch.c).
            await until(() => answers(1_000)).catch(() => {});
            expect([cause, last.mend, await answers()]).toEqual([cause, last.mend, true]);
            rows.push([cause, `${last.name} (${at})`, about(last.evidence), about(last.mend ?? '')]);
          }
          await node.server.stop();
          const walk = about(shown.stdout).trimEnd().split('\n');
          expectGenerated('src/node/packet/README.md', 'walk', [
            '```',
            '$ catena why-not :8080',
            ...walk,
            '```',
          ]);
          expectGenerated(
            'src/node/packet/README.md',
            'causes',
            table(['cause', 'hop', 'evidence', 'mend'], rows),
          );
        }),
      deadline(110_000),
    );
  },
  requires('iptables'),
);
