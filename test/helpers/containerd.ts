// How does a test use containerd as its manual describes, with our executables?

import { IMAGE, writeImage } from './busybox.ts';
import { type Cri, connectCri } from './cri.ts';
import { deadline } from './deadline.ts';
import { type Machine, withMachine } from './machine.ts';
import type { Outside, Row } from './netns.ts';
import { requiresRuntime } from './runtimes.ts';
import type { Need } from './skip.ts';

/** containerd on a machine. */
export interface Containerd {
  /** Runs a command of `ctr`; throws its output if it fails. */
  ctr(...args: string[]): Promise<string>;
  /** Starts `ctr run --cni`, which runs until the container ends; see `Machine.start`. */
  startContainer(name: string): Bun.Subprocess;
  /** Process id, inside the machine, of a container once it is running. */
  pidOf(name: string): Promise<number>;
  /** A new connection to the interface that kubelet uses. */
  cri(): Cri;
  /** Kills the daemon as a crash would; containers keep running. */
  kill(): Promise<void>;
  /** Starts the daemon, and waits until it responds. */
  start(): Promise<void>;
  /** The daemon's log. */
  log(): Promise<string>;
}

/** A machine on which containerd runs. */
export interface ContainerdNode {
  readonly machine: Machine;
  readonly containerd: Containerd;
  readonly outside: Outside;
}

/** Needs containerd and the programs that it starts. */
export function requiresContainerd(): Need {
  return requiresRuntime('containerd', 'ctr', 'containerd-shim-runc-v2', 'runc', 'busybox');
}

// Without overlay file systems, which not every file system supports, and without features that a container may lack.
const config = (networks: number) => `
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
    max_conf_num = ${networks}
`;
const SOCKET = '/run/containerd/containerd.sock';

/** Runs the body with a machine on which containerd runs; each pod gets all of the given networks. */
export async function withContainerd(
  lists: readonly Row[],
  body: (node: ContainerdNode) => Promise<void>,
): Promise<void> {
  await withMachine(async machine => {
    for (const list of lists) machine.write(`/etc/cni/net.d/${list.name}.conflist`, JSON.stringify(list));
    const outside = await machine.lab.outside();
    await body({ machine, containerd: await startContainerd(machine, lists.length), outside });
  });
}

/**
 * Starts containerd on a machine, with an image. Each pod gets that many networks of /etc/cni/net.d, which must have been written
 * before.
 */
async function startContainerd(machine: Machine, networks: number): Promise<Containerd> {
  machine.write('/etc/containerd/config.toml', config(networks));
  // Containers of `ctr` have their cgroups under the name of their namespace.
  const ctr: Containerd['ctr'] = (...args) => {
    return machine.ok(['ctr', '--namespace', machine.cgroup, ...args], { timeoutMs: 50_000 });
  };
  const log = `${machine.lab.tmp}/containerd.log`;
  let daemon: Bun.Subprocess | undefined;
  const containerd: Containerd = {
    ctr,
    startContainer(name) {
      const argv = ['ctr', '--namespace', machine.cgroup, 'run', '--cni', '--rm', '--snapshotter', 'native'];
      return machine.start([...argv, IMAGE, name], `${machine.lab.tmp}/${name}.log`);
    },
    pidOf: name =>
      eventually(`container "${name}"`, async () => {
        const rows = (await ctr('task', 'ls')).split('\n').map(row => row.split(/\s+/));
        const [, pid, state] = rows.find(([id]) => id === name) ?? [];
        return state === 'RUNNING' ? Number(pid) : undefined;
      }),
    cri: () => connectCri(machine.path(SOCKET), `/${machine.cgroup}`),
    async kill() {
      await machine.ok(['kill', '-KILL', ...machine.processes('containerd')]);
      await daemon?.exited;
    },
    async start() {
      daemon = machine.start(['containerd'], log);
      // The socket exists before the services behind it; the pods' one is the last.
      await eventually('containerd', async () => {
        const cri = containerd.cri();
        const status = await cri.networkStatus().catch(() => undefined);
        cri.close();
        return status;
      });
    },
    log: () => Bun.file(log).text(),
  };
  const archive = await writeImage(machine.lab.tmp);
  await containerd.start();
  // One for the containers of `ctr`, one for pods.
  for (const namespace of [machine.cgroup, 'k8s.io']) {
    await machine.ok([
      'ctr',
      '--namespace',
      namespace,
      'image',
      'import',
      '--snapshotter',
      'native',
      archive,
    ]);
  }
  return containerd;
}

/** Waits until something is found; throws after 20 seconds, later on a busy machine. */
export async function eventually<T>(what: string, find: () => Promise<T | undefined>): Promise<T> {
  const giveUpAt = Date.now() + deadline(20_000);
  for (;;) {
    const found = await find();
    if (found !== undefined) return found;
    if (Date.now() > giveUpAt) throw new Error(`Cannot go on: there is no ${what}`);
    await Bun.sleep(100);
  }
}
