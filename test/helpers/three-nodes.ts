// How does a test get a cluster of three nodes with pods: two on one subnet, one beyond a router?
import fs from 'node:fs';
import { runOk } from './command.ts';
import type { Lab, Namespace } from './netns.ts';

/** A fake host with a pod. */
export interface TestNode extends Namespace {
  readonly letter: 'a' | 'b' | 'c';
  /** Its addresses on the subnet that it shares with others. */
  readonly v4: string;
  readonly v6: string;
  /** Ranges of its pods. */
  readonly block4: string;
  readonly block6: string;
  readonly pod: Namespace;
  readonly pod4: string;
  readonly pod6: string;
}

/** The cluster. */
export interface ThreeNodes {
  readonly nodes: Readonly<Record<'a' | 'b' | 'c', TestNode>>;
  readonly router: Namespace;
  /** A node boots again: every device, route and rule of it is gone, then those that its operator configured are back. */
  boot(node: TestNode): Promise<void>;
  /** Whether the first pod reaches the second one with pings of both IP versions. @returns what failed */
  ping(from: TestNode, to: TestNode): Promise<string[]>;
  /** The same for every pair of pods, those of the same node left out. */
  pingAll(among?: readonly TestNode[]): Promise<string[]>;
}

const DESCRIPTIONS = [
  { letter: 'a', v4: '192.0.2.1', v6: '2001:db8::1', n: 1 },
  { letter: 'b', v4: '192.0.2.2', v6: '2001:db8::2', n: 2 },
  { letter: 'c', v4: '198.51.100.3', v6: '2001:db8:1::3', n: 3 },
] as const;

/** Makes nodes, pods and router. Nothing leads to the pods of another node yet. */
export async function makeThreeNodes(lab: Lab): Promise<ThreeNodes> {
  const router = await lab.container();
  const batch = async (ns: Namespace, lines: string): Promise<void> => {
    await runOk(['ip', '-n', ns.name, '-batch', '-'], { stdin: `${lines.trim()}\n` });
  };
  await lab.sysctl(router, 'net/ipv6/conf/default/accept_dad', 0);
  for (const version of ['ipv4/ip_forward', 'ipv6/conf/all/forwarding'])
    await lab.sysctl(router, `net/${version}`, 1);
  // The router is the switch of the first subnet, too.
  await batch(
    router,
    `
    link set lo up
    link add lan address 02:00:00:00:00:fe type bridge mcast_snooping 0
    address add 192.0.2.254/24 dev lan
    address add 2001:db8::fe/64 dev lan nodad
    link set lan up`,
  );
  const connect = async (node: TestNode): Promise<void> => {
    const { letter, v4, v6, block4, block6 } = node;
    const isNear = letter !== 'c';
    // A machine keeps it when it boots.
    const mac = `02:00:00:00:00:0${letter}`;
    const gateway = isNear ? ['192.0.2.254', '2001:db8::fe'] : ['198.51.100.254', '2001:db8:1::fe'];
    // A router asks for no neighbour before its own address is known to be unique (ndisc_send_ns).
    await lab.sysctl(node, 'net/ipv6/conf/default/accept_dad', 0);
    await lab.sysctl(node, 'net/ipv4/ip_forward', 1);
    await lab.sysctl(node, 'net/ipv6/conf/all/forwarding', 1);
    await batch(
      router,
      `link add to-${letter} type veth peer name eth0 address ${mac} netns ${node.name}
       ${isNear ? `link set to-${letter} master lan` : `address add 198.51.100.254/24 dev to-c`}
       ${isNear ? '' : 'address add 2001:db8:1::fe/64 dev to-c nodad'}
       link set to-${letter} up`,
    );
    const bridge4 = block4.replace('.0/24', '.1/24');
    await batch(
      node,
      `link set lo up
       address add ${v4}/24 dev eth0
       address add ${v6}/64 dev eth0 nodad
       link set eth0 up
       route add default via ${gateway[0]}
       route add default via ${gateway[1]}
       link add cni0 type bridge
       address add ${bridge4} dev cni0
       address add ${block6.replace('::/64', '::1/64')} dev cni0 nodad
       link set cni0 up
       link add pod0 type veth peer name eth0 netns ${node.pod.name}
       link set pod0 master cni0 up`,
    );
    await batch(
      node.pod,
      `link set lo up
       address add ${node.pod4}/24 dev eth0
       address add ${node.pod6}/64 dev eth0 nodad
       link set eth0 up
       route add default via ${bridge4.replace('/24', '')}
       route add default via ${block6.replace('::/64', '::1')}`,
    );
  };
  const made: TestNode[] = [];
  for (const { letter, v4, v6, n } of DESCRIPTIONS) {
    const [host, pod] = [await lab.container(), await lab.container()];
    const node: TestNode = {
      ...host,
      ...{ letter, v4, v6, pod },
      block4: `10.244.${n}.0/24`,
      block6: `fd00:244:${n}::/64`,
      pod4: `10.244.${n}.10`,
      pod6: `fd00:244:${n}::10`,
    };
    await connect(node);
    made.push(node);
  }
  const [a, b, c] = made as [TestNode, TestNode, TestNode];
  const ping = async (from: TestNode, to: TestNode): Promise<string[]> => {
    const tried = await Promise.all(
      [to.pod4, to.pod6].map(async target => {
        // The first ones may wait until a port has its carrier and a neighbour is found.
        const argv = ['ping', '-n', '-c', '5', '-i', '0.3', '-W', '2', target];
        return (await lab.run(from.pod, argv)).exitCode === 0 ? [] : `${from.letter} cannot reach ${target}`;
      }),
    );
    return tried.flat();
  };
  return {
    nodes: { a, b, c },
    router,
    async boot(node) {
      for (const { ifname } of await lab.ip(node, 'link', 'show'))
        if (ifname !== 'lo') await lab.run(node, ['ip', 'link', 'delete', ifname]);
      await lab.run(node, ['ip', 'route', 'flush', 'table', 'all']);
      await lab.run(node, ['ip', '-6', 'route', 'flush', 'table', 'all']);
      await lab.run(node, ['nft', 'flush', 'ruleset']);
      await connect(node);
    },
    ping,
    async pingAll(among = made) {
      const failed = await Promise.all(
        among.flatMap(from => among.filter(to => to !== from).map(to => ping(from, to))),
      );
      return failed.flat();
    },
  };
}

/** What the source of a daemon, or a planner, is told of the nodes. */
export function descriptionOf(nodes: readonly TestNode[]): object[] {
  return nodes.map(({ letter, v4, v6, block4, block6 }) => ({
    name: letter,
    addresses: [v4, v6],
    blocks: [block4, block6],
  }));
}

/** Writes the descriptions as one file each, and removes those of other nodes. */
export function writeNodes(dir: string, nodes: readonly TestNode[]): void {
  fs.mkdirSync(dir, { recursive: true });
  for (const name of fs.readdirSync(dir)) {
    if (nodes.every(({ letter }) => name !== `${letter}.json`)) fs.rmSync(`${dir}/${name}`);
  }
  for (const [i, { letter }] of nodes.entries())
    fs.writeFileSync(`${dir}/${letter}.json`, JSON.stringify(descriptionOf(nodes)[i]));
}
