// Which versions of the specification does the libcni of each installed runtime know?
//
// A libcni older than 1.2 lets the plugins do their work and then refuses a result of 1.1.0, so a list that says only 1.1.0 fails for
// every container. It reads `cniVersion` alone; newer ones also read `cniVersions`.
import type { JsonObject } from '../../cni/json.ts';
import { atLeast, isSpecVersion, type SpecVersion } from '../../cni/result.ts';
import { tryRead } from '../../files/read-file.ts';

type KnownRuntime = 'containerd' | 'dockershim' | 'podman';

export interface InstalledRuntime {
  readonly runtime: KnownRuntime;
  /** As it says itself: `podman 4.3.1`. */
  readonly program: string;
  /** The newest version that its libcni knows. */
  readonly newest: SpecVersion;
}

const PROGRAM_DIRS = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];
const DEADLINE_MS = 2_000;

/**
 * Releases with libcni 1.2 or newer, from their go.mod: containerd 2.0 and podman 5.2 were the first ones. CRI-O is not asked: which of
 * its releases has which libcni was not looked up.
 */
const KNOWS_110: readonly [KnownRuntime, program: string, major: number, minor: number][] = [
  ['containerd', 'containerd', 2, 0],
  ['podman', 'podman', 5, 2],
];

let found: readonly InstalledRuntime[] | undefined;

/** The installed runtimes whose libcni is known, each asked once per process with a deadline. */
export function installedRuntimes(): readonly InstalledRuntime[] {
  found ??= [
    ...KNOWS_110.flatMap(([runtime, name, ...since]) => askProgram(runtime, name, since) ?? []),
    ...dockershimIn(tryRead('/proc/net/unix')),
  ];
  return found;
}

/**
 * What a kubelet before 1.24 has for docker listens under this name; its libcni is one of before 1.0.0.
 * @param sockets of this network namespace, as the kernel lists them
 */
export function dockershimIn(sockets = ''): readonly InstalledRuntime[] {
  const listens = /\/dockershim\.sock$/m.test(sockets);
  return listens ? [{ runtime: 'dockershim', program: 'the dockershim of kubelet', newest: '0.4.0' }] : [];
}

function askProgram(
  runtime: KnownRuntime,
  name: string,
  since: readonly [number, number],
): InstalledRuntime | undefined {
  const path = Bun.which(name, { PATH: PROGRAM_DIRS.join(':') });
  if (path === null) return undefined;
  const asked = Bun.spawnSync([path, '--version'], {
    stdin: 'ignore',
    stderr: 'ignore',
    timeout: DEADLINE_MS,
  });
  return versionIn(runtime, name, asked.stdout.toString(), since);
}

/** @param said `podman version 4.3.1`, `containerd github.com/containerd/containerd 1.6.20~ds1 …` */
export function versionIn(
  runtime: KnownRuntime,
  name: string,
  said: string,
  [major, minor]: readonly [number, number],
): InstalledRuntime | undefined {
  const [, version = '', own, second] = /\sv?((\d+)\.(\d+)\.\d+)/.exec(said) ?? [];
  if (own === undefined) return undefined;
  const isNew = Number(own) > major || (Number(own) === major && Number(second) >= minor);
  return { runtime, program: `${name} ${version}`, newest: isNew ? '1.1.0' : '1.0.0' };
}

/** Why a runtime refuses the results of a list, if it does, and what to write instead. */
export function refusalOf(
  list: JsonObject | string,
  { program, newest }: InstalledRuntime,
): string | undefined {
  const { cniVersion } = typeof list === 'string' ? (JSON.parse(list) as JsonObject) : list;
  if (typeof cniVersion !== 'string' || !isSpecVersion(cniVersion) || atLeast(newest, cniVersion))
    return undefined;
  return `${program} refuses results of ${cniVersion}, since its libcni knows CNI up to ${newest}: write "cniVersion": "${newest}" and "cniVersions": ["${newest}", "${cniVersion}"]`;
}
