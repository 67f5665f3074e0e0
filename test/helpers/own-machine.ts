// How does a test file see a machine on which only its own fake hosts exist, whatever else is installed and running?
//
// Each file runs in mount, process id and network namespaces of its own. /run is empty, and so are the directories in which
// container runtimes and CNI keep what they have; /tmp is a directory of this file; no other process exists. A GC of a test
// therefore visits no namespace of another test, and a test finds no list, lease, executable or container of the machine.
import { tmpdir } from 'node:os';
import { run } from './command.ts';
import { ROOT } from './source-tree.ts';

/** Directories of the machine that tests find empty, if they exist. */
const EMPTIED = [
  ...['/etc/cni', '/etc/containers', '/etc/containerd', '/etc/docker', '/etc/catena', '/opt/cni'],
  ...[
    '/usr/share/containers',
    '/var/lib/cni',
    '/var/lib/catena',
    '/var/lib/containers',
    '/var/lib/containerd',
  ],
  ...['/var/lib/docker', '/var/lib/kubelet'],
];

/** Doctor and init judge a list by the version of the runtime that they find. */
const RUNTIMES = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'].flatMap(
  dir => ['podman', 'containerd'].map(name => `${dir}/${name}`),
);

// A file whose directory is missing has to fail: in the machine's /tmp, it would take what other tests have for garbage of processes that
// have ended. The first process stays a shell: it reaps the children of processes that have ended. The resolver's file is often a link into
// /run. The project is mounted at its own path again, in case it is below /tmp.
const SETUP = `
set -e
tmp=$1; root=$2; hidden=$3; shift 3
cd "$root"
resolv=$(cat /etc/resolv.conf 2>/dev/null || :)
file=$(readlink -f /etc/resolv.conf || :)
mount -t tmpfs -o mode=0755 run /run
case "$file" in /run/*) mkdir -p "\${file%/*}"; printf '%s\\n' "$resolv" > "$file";; esac
for dir in ${EMPTIED.join(' ')}; do if [ -d "$dir" ]; then mount -t tmpfs -o mode=0755 empty "$dir"; fi; done
for file in $hidden; do if [ -x "$file" ]; then mount --bind /dev/null "$file"; fi; done
mount --bind "$tmp" /tmp
case "$root" in /tmp/*) mkdir -p "$root"; mount --rbind . "$root";; esac
cd "$root"
ip link set lo up || :
"$@" & wait $!
`;

/** Where test files run. */
export interface OwnMachine {
  /** What the reader should know: less than root's rights, or no namespaces at all. */
  readonly notice: string | undefined;
  /** The words before a command, for which `tmp` is /tmp. */
  prefix(tmp: string, needs?: MachineNeeds): string[];
}

/** What a file must see of the machine itself. */
interface MachineNeeds {
  readonly processes?: boolean;
  /** The programs of container runtimes, where the tests' own cannot be unpacked. */
  readonly runtimes?: boolean;
}

const PROCESSES = ['--pid', '--fork', '--kill-child', '--mount-proc'];

/** Finds out which namespaces this user may make: all, all but one for processes, or none. */
export async function findOwnMachine(): Promise<OwnMachine> {
  const isRoot = process.getuid?.() === 0;
  const user = isRoot ? [] : ['--user', '--map-root-user'];
  for (const processes of [PROCESSES, []]) {
    const unshare = ['unshare', ...user, '--mount', '--propagation', 'private', '--net', ...processes];
    const prefix: OwnMachine['prefix'] = (tmp, needs = {}) => {
      const words = needs.processes ? unshare.filter(word => !PROCESSES.includes(word)) : unshare;
      return [...words, 'sh', '-c', SETUP, 'sh', tmp, ROOT, needs.runtimes ? '' : RUNTIMES.join(' ')];
    };
    const works = await run([...prefix(tmpdir()), 'true']).catch(() => undefined);
    if (works?.exitCode !== 0) continue;
    return { notice: isRoot ? undefined : 'not root: kernel tests run in a user namespace', prefix };
  }
  const who = isRoot ? 'root has no namespaces here' : 'not root, and no user namespaces here';
  return {
    notice: `${who}: kernel tests are skipped; run as root to have them all`,
    prefix: () => [],
  };
}
