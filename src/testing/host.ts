// How does a plugin's author get a fake host with containers, and run the plugin on it?
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FAULT_VARIABLE } from '../sys/fault-variable.ts';
import {
  type CallOptions,
  environmentOf,
  type Plugin,
  type Reply,
  requestOf,
  toReply,
  type Verb,
} from './call.ts';
import { faultIn } from './fault.ts';
import { callInProcess } from './in-process.ts';
import { createNamespace, type Namespace, raiseLoopback, removeNamespace } from './namespace.ts';
import { type Finished, killGroup, type RunOptions, runIn } from './run-in.ts';
import { type KernelState, readState } from './state.ts';

/** A container's namespace, with the id a runtime would give it. */
export interface Container extends Namespace {
  readonly id: string;
}

/** What a look at the host takes in besides namespaces and {@link TestHost.dir}. */
export interface Watch {
  readonly dirs?: readonly string[];
  readonly skip?: readonly string[];
  readonly sysctls?: readonly string[];
}

/** A fake host: a network namespace with a loopback device. Its file system is the machine's. */
export interface TestHost {
  readonly namespace: Namespace;
  /** An empty directory that goes with the host: for leases, backups and whatever else a plugin keeps. */
  readonly dir: string;
  /** Makes another container: a loopback device that is down, and nothing else. */
  container(): Container;
  /** Removes a container, as a runtime does in the end. */
  remove(container: Container): void;
  /** Calls a plugin on this host, as a runtime does. */
  call(plugin: Plugin, verb: Verb, options: CallOptions): Promise<Reply>;
  /** Runs any program in a namespace of this host. */
  run(place: Namespace, argv: readonly string[], options?: RunOptions): Promise<Finished>;
  /** The host's namespace and those of its containers. */
  places(): Namespace[];
  /** Everything that is there now on the host, in its containers and in {@link TestHost.dir}. */
  state(watch?: Watch): KernelState;
  /** Removes all of it. */
  close(): void;
}

/** Gives a function a fake host and removes it afterwards, whatever happened. */
export async function withHost<T>(body: (host: TestHost) => Promise<T>): Promise<T> {
  const host = createHost();
  try {
    return await body(host);
  } finally {
    host.close();
  }
}

/** Makes a fake host; whoever calls this closes it. Needs root, or a user namespace with a /run of its own. */
export function createHost(): TestHost {
  const namespace = createNamespace('h');
  raiseLoopback(namespace);
  const dir = mkdtempSync(join(tmpdir(), `cat-${process.pid}-`));
  const containers = new Map<string, Container>();
  const paths: string[] = [];
  return {
    namespace,
    dir,
    container() {
      const made = createNamespace('c');
      const container = { ...made, id: `id-${made.name}` };
      containers.set(container.id, container);
      paths.push(container.path);
      return container;
    },
    remove(container) {
      containers.delete(container.id);
      removeNamespace(container);
    },
    call: (plugin, verb, options) => callOn(namespace, dir, plugin, verb, options),
    run: (place, argv, options) => runIn(place.netns, argv, options),
    places: () => [namespace, ...containers.values()],
    state({ dirs = [], ...watch } = {}) {
      return readState({
        places: new Map([['host', namespace], ...containers]),
        dirs: [dir, ...dirs],
        ...watch,
      });
    },
    close() {
      for (const container of containers.values()) removeNamespace(container);
      containers.clear();
      removeNamespace(namespace);
      // Some plugins make a file where the namespace of a container was.
      for (const path of paths) rmSync(path, { force: true });
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

async function callOn(
  { netns }: Namespace,
  dir: string,
  plugin: Plugin,
  verb: Verb,
  options: CallOptions,
): Promise<Reply> {
  // Plugins built with this library keep their files where these say.
  const own = {
    CATENA_RUN_DIR: `${dir}/run`,
    CATENA_STATE_DIR: `${dir}/state`,
    CATENA_CNI_CACHE_DIR: `${dir}/cni`,
  };
  const call = { ...options, env: { ...own, ...options.env } };
  if (typeof plugin !== 'string') return callInProcess(netns, plugin, verb, call);
  const fault = call.failAt === undefined ? {} : { [FAULT_VARIABLE]: `kernel:${call.failAt}` };
  const ended = await runIn(netns, [plugin], {
    env: { ...environmentOf(verb, call), ...fault },
    stdin: requestOf(call),
    ...(call.timeoutMs === undefined ? {} : { timeoutMs: call.timeoutMs }),
  });
  killGroup(ended.group);
  const happened = faultIn(ended.stderr);
  const { exitCode, stdout, stderr, durationMs } = ended;
  if (ended.late) throw new Error(`Cannot finish ${verb} of "${plugin}" in time: ${stdout}${stderr}`);
  return toReply({ exitCode, stdout, stderr, durationMs, ...(happened ? { fault: happened } : {}) });
}
