// How does a test use Podman as its manual describes, with our executables?

import { IMAGE, writeImage } from './busybox.ts';
import type { Machine } from './machine.ts';
import { RUNTIME_ENV, requiresRuntime, runtimeProgram } from './runtimes.ts';
import type { Need } from './skip.ts';

/** A container of Podman. */
export interface PodmanContainer {
  readonly id: string;
  /** Process id inside the machine. */
  readonly pid: number;
  /** Path, inside the machine, of its network namespace. */
  readonly netns: string;
  /** Address in each network. */
  readonly addresses: Readonly<Record<string, { readonly v4: string; readonly v6: string }>>;
}

/** Podman on a machine. */
export interface Podman {
  /** Runs a command of podman; throws its output if it fails. */
  run(...args: string[]): Promise<string>;
  /** `podman run --detach` of a container that sleeps. */
  runContainer(name: string, ...options: string[]): Promise<PodmanContainer>;
  inspect(name: string): Promise<PodmanContainer>;
}

/** Needs a Podman that still has the CNI backend, such as Podman 4 of Debian 12. */
export function requiresPodman(): Need {
  const missing = requiresRuntime('podman', 'conmon', 'runc', 'busybox');
  if (missing !== undefined) return missing;
  const { stdout } = Bun.spawnSync(['podman', '--version'], { env: { ...RUNTIME_ENV } });
  return / 4\./.test(String(stdout)) ? undefined : `needs Podman 4, which runs chains: this is ${stdout}`;
}

/** Sets up Podman on a machine: its configuration, and the image. */
export async function startPodman(machine: Machine): Promise<Podman> {
  machine.write('/etc/containers/containers.conf', containersConf());
  machine.write('/etc/containers/storage.conf', STORAGE_CONF);
  machine.write('/etc/containers/policy.json', '{ "default": [{ "type": "insecureAcceptAnything" }] }');
  const run: Podman['run'] = (...args) => machine.ok(['podman', ...args], { timeoutMs: 50_000 });
  const inspect: Podman['inspect'] = async name => {
    const [row] = JSON.parse(await run('inspect', name));
    const networks: Record<string, Record<string, string>> = row.NetworkSettings.Networks ?? {};
    const addresses = Object.entries(networks).map(([network, { IPAddress, GlobalIPv6Address }]) => {
      return [network, { v4: IPAddress ?? '', v6: GlobalIPv6Address ?? '' }];
    });
    return {
      id: row.Id,
      pid: row.State.Pid,
      netns: row.NetworkSettings.SandboxKey,
      addresses: Object.fromEntries(addresses),
    };
  };
  await run('load', '--quiet', '--input', await writeImage(machine.lab.tmp));
  return {
    run,
    inspect,
    async runContainer(name, ...options) {
      await run(
        'run',
        '--detach',
        '--name',
        name,
        '--cgroup-parent',
        `/${machine.cgroup}`,
        ...options,
        IMAGE,
      );
      return inspect(name);
    },
  };
}

// `network_backend` and `cni_plugin_dirs` are what our README requires; the rest lets it run without systemd, and on machines
// with low limits.
function containersConf(): string {
  return `
[containers]
apparmor_profile = "unconfined"
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
conmon_path = ["${runtimeProgram('conmon')}"]
[engine.runtimes]
runc = ["${runtimeProgram('runc')}"]
[network]
network_backend = "cni"
cni_plugin_dirs = ["/opt/cni/bin"]
network_config_dir = "/etc/cni/net.d"
`;
}

// Without overlay file systems, which not every file system supports.
const STORAGE_CONF = `
[storage]
driver = "vfs"
graphroot = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
`;
