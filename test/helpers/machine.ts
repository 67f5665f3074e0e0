// How does a container runtime get a machine as its manual describes, while the real one remains unchanged?

import fs from 'node:fs';
import path from 'node:path';
import { tryRead } from '../../src/files/read-file.ts';
import { childrenOf } from './children.ts';
import type { Finished, RunOptions } from './command.ts';
import { deadline } from './deadline.ts';
import type { Dump } from './dump.ts';
import { createLab, type Lab, type Namespace } from './netns.ts';
import { BIN_DIR } from './plugin.ts';
import { RUNTIME_ENV } from './runtimes.ts';

/**
 * A fake host whose processes have their own network, mount, process id and UTS namespaces. In it our executables are in
 * /opt/cni/bin, /etc is a copy, and /run, /var/lib, /var/log and /dev/shm are empty.
 */
export interface Machine {
  readonly lab: Lab;
  /** Name for cgroups, which are removed with the machine. */
  readonly cgroup: string;
  /** Runs a program in the machine, with the runtimes' programs in its `PATH`. */
  run(argv: readonly string[], options?: RunOptions): Promise<Finished>;
  /** Like `run`, but throws the program's output on failure; returns its output without the final newline. */
  ok(argv: readonly string[], options?: RunOptions): Promise<string>;
  /** Starts a program in the machine, which is killed with the machine at the latest; its output is written to a file. */
  start(argv: readonly string[], log: string): Bun.Subprocess;
  /** Path, seen from outside, of a file or socket in the machine. */
  path(file: string): string;
  /** Writes a file in the machine; creates missing directories. */
  write(file: string, content: string): void;
  /** The network namespace of a process in the machine, for use with the lab. */
  netnsOf(pid: number | string): Namespace;
  /** Ids, in the machine, of the processes whose program path ends with one of these. */
  processes(...programs: string[]): string[];
  /** Id, outside, of its first process: for a shell there. */
  init(): number;
  /** Those traces of containers that are in our sets and in files. */
  holds(): Promise<Pick<Traces, 'elements' | 'files'>>;
  /** The current traces of containers. */
  traces(): Promise<Traces>;
  /** Ends everything and starts again with the contents of /etc and /var/lib and another boot id; devices and rules are gone. */
  reboot(): Promise<void>;
  /** The traces once they equal `before`, or after ten seconds, more on a busy machine: runtimes finish their work in the background. */
  settled(before: Traces): Promise<Traces>;
}

/** Where containers leave traces: equal before containers are created and after they are deleted. */
export interface Traces {
  readonly kernel: Dump;
  /** Lines with elements of our tables; the tables themselves may stay. */
  readonly elements: readonly string[];
  readonly files: readonly string[];
  readonly processes: readonly string[];
}

// Created once by plugins, and empty without containers.
const SKELETONS = [
  'inet catena_masquerade',
  'inet catena_portmap',
  'inet catena_firewall',
  'ip filter',
  'ip6 filter',
];
// Locks, what host-local and the reference's host-local keep for the network, and what a daemon leaves.
const KEPT_FILES =
  /\/(lock|boot|last_reserved_ip\.\d|\.catena-[a-z]+|[^/]+\.lock|catena\.sock(\.(seat|wire|calls\..*))?|gc\/[^/]+|traces\/[^/]+|history\/(events|lists)(\.\d)?|caches\/\w+)$/;

/** What one machine has differently from another. */
export interface MachineOptions {
  /** Default `machine`. */
  readonly hostname?: string;
  /** What is bound to /opt/cni/bin, in the lab if it is relative; default our executables. */
  readonly executables?: string;
  /** The device that connects it with others, which a reboot leaves; default that of `lab.outside()`. */
  readonly uplink?: string;
  /** Files that programs of the machine see in place of these: kernel settings that they would change for all. */
  readonly files?: Readonly<Record<string, string>>;
}

/** Runs the body with a machine and removes it afterwards, whatever happens. */
export async function withMachine<T>(body: (machine: Machine) => Promise<T>): Promise<T> {
  const { machine, close } = await openMachine();
  try {
    return await body(machine);
  } finally {
    await close();
  }
}

/** Starts a machine, which the caller must close. Prefer {@link withMachine}. */
export async function openMachine(
  options: MachineOptions = {},
): Promise<{ machine: Machine; close: () => Promise<void> }> {
  const lab = await createLab();
  const running = describeMachine(lab, options);
  const close = async (): Promise<void> => {
    await running.end();
    await removeCgroups(running.view.cgroup);
    await lab.close();
  };
  try {
    await running.start();
    // As on every dual-stack node. Set here, since it adds routes.
    await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
    return { machine: running.view, close };
  } catch (error) {
    await close();
    throw error;
  }
}

const STATE_DIRS = [
  '/var/lib/cni',
  '/var/lib/catena',
  '/run/netns',
  '/run/cni',
  '/run/catena',
  '/run/libpod/exits',
];
const PROJECT = path.resolve(BIN_DIR, '../..');
const UNSHARE = ['--mount', '--uts', '--pid', '--fork', '--kill-child', '--mount-proc'];

// The project is mounted at its own path again, in case it is below a directory that was replaced. The shell stays as the first
// process: it reaps the children of processes that have ended.
const SETUP = `
set -e
cd "$1"
if ! [ -d "$2/etc" ]; then
  mkdir "$2/etc" "$2/lib" "$2/log"
  cp -a /etc/. "$2/etc" || echo "some files of /etc changed during the copy" >&2
  rm -rf "$2/etc/cni" "$2/etc/containers" "$2/etc/containerd"
  mkdir -p "$2/etc/cni/net.d"
fi
for dir in /run /opt /dev/shm /usr/share/containers; do
  # The last has the defaults of a Podman that the machine may have.
  if [ -d $dir ]; then mount -t tmpfs tmpfs $dir; fi
done
mount --bind "$2/etc" /etc
mount --bind "$2/lib" /var/lib
mount --bind "$2/log" /var/log
hostname "$5"
mkdir -p /run/netns /run/lock /run/sys
echo "$3" > /run/boot_id && mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
mount -t sysfs sysfs /run/sys
mount --rbind /sys/fs/cgroup /run/sys/fs/cgroup
mount --move /run/sys /sys
mkdir -p "$1" && mount --rbind . "$1"
mkdir -p /opt/cni/bin "$4"
mount --bind "$4" /opt/cni/bin
shift 5
while [ $# -gt 0 ]; do mount --bind "$1" "$2"; shift 2; done
echo ready
sleep infinity & wait
`;

async function initProcess(init: Bun.Subprocess<'ignore', 'pipe', 'pipe'>): Promise<number> {
  const { value } = await init.stdout.getReader().read();
  if (new TextDecoder().decode(value).trim() !== 'ready') {
    throw new Error(`Cannot make a machine for runtimes: ${await init.stderr.text()}`);
  }
  return Number(childrenOf(init.pid)[0]);
}

interface Running {
  readonly view: Machine;
  start(): Promise<void>;
  end(): Promise<void>;
}

function describeMachine(lab: Lab, options: MachineOptions): Running {
  const { hostname = 'machine', uplink = 'outside0' } = options;
  const executables = path.resolve(lab.tmp, options.executables ?? BIN_DIR);
  // Written once: a reboot finds them again.
  const replaced = Object.entries(options.files ?? {}).flatMap(([file, content], i) => {
    fs.writeFileSync(`${lab.tmp}/replaced-${i}`, content);
    return [`${lab.tmp}/replaced-${i}`, file];
  });
  let unshare: Bun.Subprocess<'ignore', 'pipe', 'pipe'> | undefined;
  let init = 0;
  const start = async (): Promise<void> => {
    const words = [PROJECT, lab.tmp, crypto.randomUUID(), executables, hostname, ...replaced];
    unshare = lab.start(lab.host, ['unshare', ...UNSHARE, 'sh', '-c', SETUP, 'sh', ...words]);
    init = await initProcess(unshare);
  };
  const end = async (): Promise<void> => {
    if (unshare) await endProcesses(unshare);
    unshare = undefined;
  };
  const root = (file: string): string => `/proc/${init}/root${file}`;
  const inside = (argv: readonly string[]): string[] => {
    return ['nsenter', `--target=${init}`, '--net', '--mount', '--uts', '--pid', '--wdns=/', '--', ...argv];
  };
  const run: Machine['run'] = (argv, options) => {
    return lab.run(lab.host, inside(argv), { ...options, env: { ...RUNTIME_ENV, ...options?.env } });
  };
  const ok: Machine['ok'] = async (argv, options) => {
    const { exitCode, stdout, stderr } = await run(argv, options);
    if (exitCode === 0) return stdout.trimEnd();
    throw new Error(`Cannot run "${argv.join(' ')}": exit code ${exitCode}: ${stderr}${stdout}`);
  };
  const holds: Machine['holds'] = async () => ({
    elements: (await ok(['nft', 'list', 'ruleset'])).split('\n').filter(line => line.includes('elements =')),
    files: STATE_DIRS.flatMap(dir => filesBelow(root(''), dir)).filter(file => !KEPT_FILES.test(file)),
  });
  const traces = async (): Promise<Traces> => ({
    kernel: await lab.dump(lab.host, { ignoreTables: SKELETONS }),
    ...(await holds()),
    processes: commandLines(root('/proc')),
  });
  const view: Machine = {
    lab,
    // Process ids, of which the lab's names are made, are those of one test file; cgroups are the machine's.
    cgroup: `${lab.host.name}-${crypto.randomUUID().slice(0, 8)}`,
    run,
    ok,
    holds,
    traces,
    start: (argv, log) =>
      Bun.spawn(inside(argv), {
        env: { LC_ALL: 'C', ...RUNTIME_ENV },
        stdin: 'ignore',
        stdout: Bun.file(log),
        stderr: Bun.file(log),
      }),
    path: root,
    init: () => init,
    write(file, content) {
      fs.mkdirSync(path.dirname(root(file)), { recursive: true });
      fs.writeFileSync(root(file), content);
    },
    processes: (...programs) => {
      const program = (pid: string): string => tryRead(root(`/proc/${pid}/cmdline`))?.split('\0')[0] ?? '';
      return pidsIn(root('/proc')).filter(pid => programs.some(end => program(pid).endsWith(end)));
    },
    netnsOf: pid => ({ name: `of process ${pid}`, path: root(`/proc/${pid}/ns/net`) }),
    async settled(before) {
      const giveUpAt = Date.now() + deadline(10_000);
      for (;;) {
        const now = await traces();
        if (Bun.deepEquals(now, before) || Date.now() > giveUpAt) return now;
        await Bun.sleep(200);
      }
    },
    async reboot() {
      await end();
      await lab.run(lab.host, ['nft', 'flush', 'ruleset']);
      for (const { ifname } of await lab.ip(lab.host, 'link')) {
        if (ifname !== 'lo' && ifname !== uplink) await lab.run(lab.host, ['ip', 'link', 'del', ifname]);
      }
      await start();
    },
  };
  return { view, start, end };
}

function filesBelow(root: string, dir: string): string[] {
  if (!fs.existsSync(root + dir)) return [];
  const entries = fs.readdirSync(root + dir, { withFileTypes: true, recursive: true });
  return entries
    .filter(entry => !entry.isDirectory())
    .map(entry => path.join(entry.parentPath, entry.name).slice(root.length))
    .sort();
}

// Without the shell, which is the first process.
function pidsIn(proc: string): string[] {
  return fs.readdirSync(proc).filter(name => /^\d+$/.test(name) && name !== '1');
}

function commandLines(proc: string): string[] {
  return pidsIn(proc)
    .map(pid => (tryRead(`${proc}/${pid}/cmdline`) ?? '').replaceAll('\0', ' '))
    .sort();
}

// Killing the first process kills all others of its namespace, and `unshare` waits for it.
async function endProcesses(unshare: Bun.Subprocess): Promise<void> {
  const [first] = childrenOf(unshare.pid);
  if (first === undefined) unshare.kill('SIGKILL');
  else process.kill(first, 'SIGKILL');
  await unshare.exited;
}

// Deepest first: a cgroup that contains cgroups cannot be removed, nor one in which a process is still about to end. The two versions of
// cgroups have different directories.
async function removeCgroups(name: string): Promise<void> {
  const find = (): string[] => fs.globSync(`/sys/fs/cgroup/{,*/}${name}{,/**/}`);
  for (let passes = 1, left = find(); left.length > 0; left = find(), passes++) {
    for (const dir of left.sort((a, b) => b.length - a.length)) {
      if (!fs.existsSync(dir) || !fs.statSync(dir).isDirectory()) continue;
      try {
        fs.rmdirSync(dir);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EBUSY' || passes > 250) throw error;
      }
    }
    await Bun.sleep(20);
  }
}
