// What do meta plugins cost on a full node, and compared with the reference's on an empty one?
import { startDaemon } from '../helpers/daemon.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, type PluginReply, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { type Contestant, type Samples, settle, takeTurns, timed } from './measure.ts';

/** Plugins whose cost must not depend on what else is on the node. */
export const GROWING = ['portmap', 'firewall'] as const;
type Growing = (typeof GROWING)[number];

const MAPPINGS = 4;
/** Containers below this number fill the nodes; those above are added and deleted. */
const PROBE = 4_000;
/** Filling a node is not measured. */
const AT_ONCE = 4;

/** ADD and DEL of one more container on nodes that already have the given numbers; samples are named after the number. */
export async function measureGrowth(
  link: Growing,
  sizes: readonly number[],
  rounds: number,
): Promise<Samples> {
  return await withNodes(sizes, async nodes => {
    for (const { lab, container, size } of nodes) {
      const all = Array.from({ length: size }, (_, i) => i);
      const worker = async (): Promise<void> => {
        for (let i = all.pop(); i !== undefined; i = all.pop()) await call(lab, link, 'ADD', container, i);
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
    }
    const contestants = nodes.map(({ lab, container, size }) =>
      addAndDelete(`${size}`, (verb, i) => call(lab, link, verb, container, i)),
    );
    return await takeTurns(contestants, rounds);
  });
}

/** ADD and DEL of portmap alone: one port, on a node where the shared rules exist; `warm` means with a daemon. */
export async function measurePortmap(rounds: number): Promise<Samples> {
  return await withNodes([1, 1, 1], async ([own, other, served]) => {
    if (!own || !other || !served) throw new Error('unreachable');
    const contestant = async ({ lab, container }: Node, name: string, binDir = BIN_DIR) => {
      const one = (verb: Verb, i: number) => call(lab, 'portmap', verb, container, i, { binDir, ports: 1 });
      await one('ADD', 0);
      return addAndDelete(name, one);
    };
    const daemon = await startDaemon(served.lab);
    const warm = await contestant(served, 'warm');
    await settle(warm);
    const samples = await takeTurns(
      [await contestant(own, 'ours'), await contestant(other, 'reference', REFERENCE_BIN_DIR), warm],
      rounds,
    );
    await daemon.stop();
    return samples;
  });
}

type Verb = 'ADD' | 'DEL';

interface Node {
  readonly lab: Lab;
  /** Represents all containers: these plugins work on the host. */
  readonly container: Container;
  readonly size: number;
}

async function withNodes<T>(sizes: readonly number[], body: (nodes: Node[]) => Promise<T>): Promise<T> {
  const [size, ...more] = sizes;
  if (size === undefined) return await body([]);
  const withNode = async (lab: Lab): Promise<T> => {
    const container = await lab.container();
    await lab.ip(lab.host, 'link', 'add', 'cni0', 'type', 'bridge');
    await lab.ip(lab.host, 'addr', 'add', '10.96.0.1/16', 'dev', 'cni0');
    await lab.ip(lab.host, 'link', 'set', 'cni0', 'up');
    return await withNodes(more, nodes => body([{ lab, container, size }, ...nodes]));
  };
  return await withHost(withNode, { directly: true });
}

function addAndDelete(name: string, one: (verb: Verb, i: number) => Promise<unknown>): Contestant {
  return {
    name,
    round: async i => ({
      ADD: await timed(() => one('ADD', PROBE + i)),
      DEL: await timed(() => one('DEL', PROBE + i)),
    }),
  };
}

async function call(
  lab: Lab,
  link: Growing,
  command: Verb,
  container: Container,
  i: number,
  { binDir, ports = MAPPINGS }: { binDir?: string; ports?: number } = {},
): Promise<PluginReply> {
  const portMappings = Array.from({ length: ports }, (_, n) => ({
    hostPort: 10_000 + i * MAPPINGS + n,
    containerPort: 80 + n,
    protocol: 'tcp',
  }));
  const reply = await lab.plugin(link, {
    command,
    container: { ...container, id: `container-${i}` },
    conf: {
      cniVersion: '1.0.0',
      name: 'full',
      type: link,
      ...(link === 'portmap' ? { runtimeConfig: { portMappings } } : {}),
    },
    prevResult: {
      cniVersion: '1.0.0',
      interfaces: [{ name: 'cni0' }, { name: 'eth0', sandbox: container.path }],
      ips: [{ address: `10.96.${(i + 2) >> 8}.${(i + 2) & 255}/16`, interface: 1, gateway: '10.96.0.1' }],
    },
    ...(binDir ? { binDir } : {}),
  });
  if (reply.exitCode !== 0) throw new Error(`${link} failed with ${reply.exitCode}: ${reply.stdout}`);
  return reply;
}
