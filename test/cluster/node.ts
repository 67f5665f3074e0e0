// How does a node of a cluster start: containerd, kubelet and kube-proxy in namespaces of its own?

import { type Machine, openMachine } from '../helpers/machine.ts';
import { gatewayOf, MACHINES, type NodePlace, subnetFile } from './addresses.ts';
import { awaiting } from './awaiting.ts';
import type { Account } from './certificates.ts';
import type { ControlPlane } from './control-plane.ts';
import {
  DOCKER_VERSION,
  DOCKERD,
  dockerLoad,
  dockerPid,
  KUBELET_OPTIONS,
  RUNTIME,
  RUNTIME_SCRIPT,
} from './docker.ts';
import { inGroup, makeGroups } from './groups.ts';
import {
  CONTAINERD_SOCKET,
  containerdConfig,
  KERNEL_SETTINGS,
  kubeletConfig,
  proxyConfig,
} from './kubelet-config.ts';
import { inShell, manual } from './manual.ts';
import type { Programs } from './programs.ts';
import { UPLINK, type Wire } from './wire.ts';

/** What runs the containers of a node. */
export type Runtime = 'containerd' | 'docker';

/** What a node runs. */
export type Service = Runtime | 'kubelet' | 'kube-proxy';

/** A node. */
export interface Node {
  readonly place: NodePlace;
  readonly machine: Machine;
  /** Starts a service, and waits until it answers. */
  start(service: Service): Promise<void>;
  /** Kills a service as a crash would; what it started goes on. */
  kill(service: Service): Promise<void>;
  /** Ends docker as its service does, and with it all containers. */
  stopDocker(): Promise<void>;
  /** The process, in the machine, of a container by its id in the pod's status. @throws Error if there is none */
  pidOf(container: string): Promise<string>;
  /** Ends every process, and starts the services with another boot id and the same disk. */
  reboot(): Promise<void>;
  /** Imports an archive of an image; into containerd, by the manual's command. */
  import(archive: string): Promise<void>;
  close(): Promise<void>;
}

/** What the nodes of one cluster have in common. */
export interface Site {
  readonly wire: Wire;
  readonly programs: Programs;
  readonly control: ControlPlane;
  readonly places: readonly NodePlace[];
  /** kube-proxy's. */
  readonly proxy: Account;
  readonly logs: string;
}

const CONTAINERD_OPTIONS: readonly string[] = [
  ...['--container-runtime=remote', `--container-runtime-endpoint=unix://${CONTAINERD_SOCKET}`],
];

/** Starts a node, which is not ready before it has a network. */
export async function startNode(
  { wire, programs, control, places, proxy, logs }: Site,
  place: NodePlace,
  own: Account,
  runtime: Runtime = 'containerd',
): Promise<Node> {
  const { machine, close } = await openMachine({
    hostname: place.name,
    executables: 'bin',
    uplink: UPLINK,
    files: KERNEL_SETTINGS,
  });
  const { lab } = machine;
  const { authority } = control.secrets;
  const written = async (): Promise<void> => {
    // flanneld's part: the node's subnet, and routes to those of the others.
    machine.write('/run/flannel/subnet.env', subnetFile(place));
    const gateway = gatewayOf(place.address);
    for (const { name, pods, address } of places) {
      const way = gatewayOf(address) === gateway ? address : gateway;
      if (name !== place.name) await lab.run(lab.host, ['ip', 'route', 'replace', pods, 'via', way]);
    }
    // The router's part.
    await lab.run(wire.lab.host, ['ip', 'route', 'replace', place.pods, 'via', place.address]);
  };
  const count = { containerd: 0, docker: 0, kubelet: 0, 'kube-proxy': 0 };
  const argv: Record<Service, string[]> = {
    containerd: ['containerd'],
    docker: DOCKERD,
    kubelet: [
      ...[programs.kubelet, '--config=/etc/kubelet.json', `--hostname-override=${place.name}`],
      ...[`--kubeconfig=${control.kubeconfigOf(own)}`, `--node-ip=${place.address}`],
      ...(runtime === 'docker' ? KUBELET_OPTIONS : CONTAINERD_OPTIONS),
      ...['--root-dir=/var/lib/kubelet', '--cert-dir=/var/lib/kubelet/pki', '--v=2'],
    ],
    'kube-proxy': [
      ...[programs['kube-proxy'], '--config=/etc/kube-proxy.json', `--hostname-override=${place.name}`],
    ],
  };
  const answers: Record<Service, () => Promise<boolean>> = {
    containerd: async () => (await machine.run(['ctr', 'version'])).exitCode === 0,
    docker: async () => (await machine.run(DOCKER_VERSION)).exitCode === 0,
    kubelet: async () => (await control.kubectl.try('get', 'node', place.name)) !== undefined,
    'kube-proxy': async () => true,
  };
  const node: Node = {
    place,
    machine,
    async start(service) {
      const log = `${logs}/${place.name}-${service}-${++count[service]}.log`;
      machine.start(inGroup(machine, service, argv[service]), log);
      await awaiting(`${service} of ${place.name}`, 90, answers[service]);
    },
    async kill(service) {
      // One of them may be a child that has just ended: that all are gone is what counts.
      await machine.run(['kill', '-KILL', ...machine.processes(service)]);
      await awaiting(`${service} to end`, 30, async () => machine.processes(service).length === 0);
    },
    async stopDocker() {
      await machine.ok(['kill', '-TERM', ...machine.processes('dockerd')]);
      await awaiting('docker to end', 60, async () => machine.processes('dockerd').length === 0);
    },
    async pidOf(container) {
      const [, id = ''] = container.split('://');
      if (runtime === 'docker') return machine.ok(dockerPid(id));
      const tasks = (await machine.ok(['ctr', '--namespace', 'k8s.io', 'task', 'ls'])).split('\n');
      const [, pid] = tasks.map(line => line.split(/\s+/)).find(([task]) => task === id) ?? [];
      if (pid === undefined) throw new Error(`Cannot find the container ${container} on ${place.name}`);
      return pid;
    },
    async reboot() {
      await machine.reboot();
      await written();
      for (const service of [runtime, 'kubelet', 'kube-proxy'] as const) await node.start(service);
    },
    async import(archive) {
      const argv = runtime === 'docker' ? dockerLoad(archive) : inShell(manual('import', { archive }), '/');
      await machine.ok(argv, { timeoutMs: 120_000 });
    },
    close,
  };
  try {
    makeGroups(machine);
    await wire.plug(lab.host, place.name, place.address);
    await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
    const serving = await control.secrets.issue(place.name, `/O=system:nodes/CN=system:node:${place.name}`, [
      ...[`DNS:${place.name}`, `IP:${place.address}`],
    ]);
    const config = { address: place.address, cgroup: machine.cgroup, authority, ...serving };
    machine.write('/etc/kubelet.json', kubeletConfig(config));
    machine.write('/etc/kube-proxy.json', proxyConfig(control.kubeconfigOf(proxy)));
    machine.write('/etc/containerd/config.toml', containerdConfig());
    if (runtime === 'docker') {
      machine.write(RUNTIME, RUNTIME_SCRIPT);
      await machine.ok(['chmod', '+x', RUNTIME]);
    }
    machine.write('/etc/resolv.conf', `nameserver ${MACHINES.outside}\n`);
    await written();
    await node.start(runtime);
    return node;
  } catch (error) {
    await close();
    throw error;
  }
}
