// How does a plugin author get a fake host with containers to run the plugin on, call it there, and see what exists and has changed?
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { notesDirs } from '../../cni/directories.ts';
import { attempt } from '../../cni/errors.ts';
import { processIds } from '../../files/process-stat.ts';
import { getLink, setLink } from '../../netlink/rtnl/link.ts';
import type { CallOptions, Reply, Verb } from '../call.ts';
import type { KernelState } from '../diff.ts';
import {
  createNamespace,
  endLasting,
  type Namespace,
  NETNS_DIR,
  removeNamespace,
  removePath,
} from '../host.ts';
import { callPlugin, type Finished, type Plugin, type RunOptions, runIn } from '../play.ts';
import { readPlaces, type Watch } from '../state.ts';

/** A container's namespace, with the id that a runtime would give it. */
export interface Container extends Namespace {
  readonly id: string;
}

/** A fake host: a network namespace with a loopback device. It uses the machine's file system. */
export interface TestHost {
  readonly namespace: Namespace;
  /** A directory that is deleted with the host: for leases, backups and other files of a plugin. */
  readonly dir: string;
  /** Creates another container, which only has a loopback device that is down. */
  container(): Container;
  /** Removes a container, as a runtime does at the end. */
  remove(container: Container): void;
  /** Calls a plugin on this host, as a runtime does. */
  call(plugin: Plugin, verb: Verb, options: CallOptions): Promise<Reply>;
  /** Runs any program in a namespace of this host. */
  run(place: Namespace, argv: readonly string[], options?: RunOptions): Promise<Finished>;
  /** The host's namespace and those of its containers. */
  places(): Namespace[];
  /**
   * Devices, addresses, routes, rules, traffic control, nf_tables and sysctls of the host and its containers, and the files of
   * {@link TestHost.dir}, without what the kernel creates itself.
   */
  state(watch?: Watch): KernelState;
  /** Removes the host and everything on it. */
  close(): void;
}

/** Passes a fake host to a function and always removes it afterwards. */
export async function withHost<T>(body: (host: TestHost) => Promise<T>): Promise<T> {
  const host = createHost();
  try {
    return await body(host);
  } finally {
    host.close();
  }
}

/** Creates a fake host, which the caller must close. Needs root, or a user namespace with a /run of its own. */
export function createHost(): TestHost {
  const namespace = createOwn('h');
  setLink(namespace.route, getLink(namespace.route, 'lo').index, { up: true });
  const dir = mkdtempSync(join(tmpdir(), `cat-${process.pid}-`));
  const containers = new Map<string, Container>();
  const paths: string[] = [];
  return {
    namespace,
    dir,
    container() {
      const made = createOwn('c');
      const container = { ...made, id: `id-${made.name}` };
      containers.set(container.id, container);
      paths.push(container.path);
      return container;
    },
    remove(container) {
      containers.delete(container.id);
      removeOwn(container);
    },
    // Plugins built with this library use these directories for their files.
    call: (plugin, verb, options) =>
      callPlugin(namespace.netns, plugin, verb, {
        ...options,
        env: {
          CATENA_RUN_DIR: `${dir}/run`,
          CATENA_STATE_DIR: `${dir}/state`,
          CATENA_CNI_CACHE_DIR: `${dir}/cni`,
          ...options.env,
        },
      }),
    run: (place, argv, options) => runIn(place.netns, argv, options),
    places: () => [namespace, ...containers.values()],
    state({ dirs = [], skip = [], sysctls = [] } = {}) {
      // The notes that every ADD and GC leave for each other say nothing about a plugin.
      const notes = Object.values(notesDirs(`${dir}/run`));
      const watch = { dirs: [dir, ...dirs], skip: [...notes, ...skip], sysctls };
      return readPlaces([['host', namespace], ...containers], watch);
    },
    close() {
      for (const place of [...containers.values(), namespace]) removeOwn(place);
      containers.clear();
      // Some plugins create a file at the path of a deleted container's namespace.
      for (const path of paths) rmSync(path, { force: true });
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/**
 * Creates a namespace that an interrupted test can be inspected by.
 * @param role one letter at the end of its name
 * @throws Error when the process lacks permission
 */
function createOwn(role: string): Namespace {
  removeEarlier();
  const name = `cat-${process.pid}-t${++counter}${role}`;
  const path = join(NETNS_DIR, name);
  try {
    const place = createNamespace(name);
    made.add(path);
    return place;
  } catch (cause) {
    rmSync(path, { force: true });
    throw new Error(
      'Cannot create a network namespace: run as root, or inside unshare -Urnm with a tmpfs on /run',
      { cause },
    );
  }
}

/** Ends the processes that stay in the namespace, and removes it. */
function removeOwn(place: Namespace): void {
  if (!made.delete(place.path)) return;
  endProcessesIn([place]);
  removeNamespace(place);
}

const made = new Set<string>();
let counter = 0;
let swept = false;

/** Removes the namespaces of test processes that were killed. */
function removeEarlier(): void {
  if (swept || !existsSync(NETNS_DIR)) return;
  swept = true;
  for (const name of readdirSync(NETNS_DIR)) {
    const [, pid] = /^cat-(\d+)-t/.exec(name) ?? [];
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) removePath(join(NETNS_DIR, name));
  }
}

process.on('exit', () => {
  for (const path of made) removePath(path);
});

/** Kills the processes that stay in namespaces, but for this one and those beside it. @returns the names of their programs */
export function endProcessesIn(
  places: readonly Namespace[],
  beside: ReadonlySet<number> = new Set(),
): string[] {
  return endLasting(() => processesIn(places).filter(pid => !beside.has(pid)));
}

function processesIn(places: readonly Namespace[]): number[] {
  const inodes = places.map(({ netns }) => netns.ino);
  return processIds().filter(pid => {
    const ino = pid === process.pid ? undefined : attempt(() => statSync(`/proc/${pid}/ns/net`).ino);
    return ino !== undefined && inodes.includes(ino);
  });
}
