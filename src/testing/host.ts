// How does a plugin author get a fake host with containers to run the plugin on?
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defined } from '../cni/defined.ts';
import { notesDirs } from '../cni/directories.ts';
import type { PluginDefinition } from '../plugin/define.ts';
import { serve } from '../plugin/serve.ts';
import { FAULT_VARIABLE } from '../sys/fault-variable.ts';
import { closeNetns, enter, type Netns, openOwnNetns } from '../sys/netns.ts';
import {
  type CallOptions,
  environmentOf,
  type Plugin,
  type Reply,
  requestOf,
  toReply,
  type Verb,
} from './call.ts';
import { faultIn, withFaults } from './fault.ts';
import { createNamespace, type Namespace, raiseLoopback, removeNamespace } from './namespace.ts';
import { type Finished, killGroup, type RunOptions, runIn } from './run-in.ts';
import { type KernelState, readState } from './state.ts';

/** A container's namespace, with the id that a runtime would give it. */
export interface Container extends Namespace {
  readonly id: string;
}

/** What a state includes or skips besides namespaces and {@link TestHost.dir}. */
export interface Watch {
  readonly dirs?: readonly string[];
  readonly skip?: readonly string[];
  readonly sysctls?: readonly string[];
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
  /** The current state of the host, its containers and {@link TestHost.dir}. */
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
    state({ dirs = [], skip = [], ...watch } = {}) {
      return readState({
        places: new Map([['host', namespace], ...containers]),
        dirs: [dir, ...dirs],
        // The notes that every ADD and GC leave for each other say nothing about a plugin.
        skip: [...Object.values(notesDirs(`${dir}/run`)), ...skip],
        ...watch,
      });
    },
    close() {
      for (const container of containers.values()) removeNamespace(container);
      containers.clear();
      removeNamespace(namespace);
      // Some plugins create a file at the path of a deleted container's namespace.
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
  // Plugins built with this library use these directories for their files.
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
    ...defined({ timeoutMs: call.timeoutMs }),
  });
  killGroup(ended.group);
  const happened = faultIn(ended.stderr);
  const { exitCode, stdout, stderr, durationMs } = ended;
  if (ended.late) throw new Error(`Cannot finish ${verb} of "${plugin}" in time: ${stdout}${stderr}`);
  return toReply({ exitCode, stdout, stderr, durationMs, ...defined({ fault: happened }) });
}

// A namespace belongs to a thread. The calling thread enters the host for the duration of a call, so calls run one after
// another. Work that a plugin passes to other threads (asynchronous file functions on /proc/sys) stays outside.

/** Calls a plugin definition inside the namespace, with the call's environment as that of the process. */
function callInProcess(
  host: Netns,
  definition: PluginDefinition,
  verb: Verb,
  call: CallOptions,
): Promise<Reply> {
  const next = previous.then(() =>
    visiting(host, environmentOf(verb, call), async () => {
      const started = performance.now();
      const env = { ...process.env };
      const invocation = { env, readStdin: () => requestOf(call) };
      const { value, fault } = await withFaults(call.failAt, () => serve(definition, invocation));
      const { exitCode, stdout, log } = value;
      let stderr = '';
      await log.flush(text => {
        stderr += text;
      });
      const durationMs = performance.now() - started;
      return toReply({ exitCode, stdout, stderr, durationMs, ...defined({ fault }) });
    }),
  );
  previous = next.catch(() => {});
  return next;
}

let previous: Promise<unknown> = Promise.resolve();

async function visiting<T>(host: Netns, env: Record<string, string>, visit: () => Promise<T>): Promise<T> {
  const before = { ...process.env };
  const own = openOwnNetns();
  enter(host);
  try {
    for (const name of Object.keys(process.env)) if (name.startsWith('CNI_')) delete process.env[name];
    Object.assign(process.env, env);
    return await visit();
  } finally {
    enter(own);
    closeNetns(own);
    for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name];
    Object.assign(process.env, before);
  }
}
