// How does a plugin author get a fake host with containers to run the plugin on, and what exists and has changed there?

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defined } from '../cni/defined.ts';
import { notesDirs } from '../cni/directories.ts';
import { diffStates, renderDifference, type State, type StateObject, stateOf } from '../lab/diff.ts';
import type { Place } from '../lab/lab.ts';
import { readFiles, readPlace } from '../lab/state.ts';
import { getLink, setLink } from '../netlink/rtnl/link.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { askOn, Tables } from '../netlink/tables.ts';
import type { PluginDefinition } from '../plugin/define.ts';
import { serve } from '../plugin/serve.ts';
import { FAULT_VARIABLE } from '../sys/fault-variable.ts';
import {
  closeNetns,
  createNetnsAt,
  enter,
  inNetns,
  type Netns,
  openNetns,
  openOwnNetns,
  unmountNetns,
} from '../sys/netns.ts';
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
import { type Finished, killGroup, killProcess, processesIn, type RunOptions, runIn } from './run-in.ts';

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
  const namespace = createNamespace('h');
  setLink(namespace.route, getLink(namespace.route, 'lo').index, { up: true });
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
    state({ dirs = [], skip = [], sysctls = [] } = {}) {
      // The notes that every ADD and GC leave for each other say nothing about a plugin.
      const notes = Object.values(notesDirs(`${dir}/run`));
      return new Map([
        ...[['host', namespace] as const, ...containers].map(
          ([name, place]) => [name, stateIn(place, sysctls)] as const,
        ),
        ['files', stateOf(readFiles([dir, ...dirs], [...notes, ...skip]).map(withDigest))],
      ]);
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

/** The directory that `ip netns` also uses, so that an interrupted test can be inspected. */
const DIR = '/run/netns';

/** A network namespace of a test. */
export interface Namespace extends Place {
  readonly path: string;
}

/**
 * Creates an empty network namespace.
 * @param role one letter at the end of its name
 * @throws Error when the process lacks permission
 */
function createNamespace(role: string): Namespace {
  removeEarlierNamespaces();
  const name = `cat-${process.pid}-t${++counter}${role}`;
  const path = `${DIR}/${name}`;
  try {
    mkdirSync(DIR, { recursive: true });
    createNetnsAt(path);
  } catch (cause) {
    rmSync(path, { force: true });
    throw new Error(
      'Cannot create a network namespace: run as root, or inside unshare -Urnm with a tmpfs on /run',
      { cause },
    );
  }
  made.add(name);
  const netns = openNetns(path);
  const route = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
  const netfilter = inNetns(netns, () => new NetlinkSocket(NETLINK_NETFILTER));
  return { name, path, netns, route, netfilter };
}

/** A GC on this machine visits every namespace, for less than this time. */
const VISIT_MS = 50;

/** Kills the processes that stay in the namespace, and removes it. */
function removeNamespace({ name, netns, route, netfilter }: Namespace): void {
  if (!made.delete(name)) return;
  const found = processesIn([netns.ino]);
  if (found.length > 0) {
    Bun.sleepSync(VISIT_MS);
    for (const pid of processesIn([netns.ino])) if (found.includes(pid)) killProcess(pid);
  }
  route.close();
  netfilter.close();
  closeNetns(netns);
  unlinkNamespace(name);
}

const made = new Set<string>();
let counter = 0;
let swept = false;

/** Removes the namespaces of test processes that were killed. */
function removeEarlierNamespaces(): void {
  if (swept || !existsSync(DIR)) return;
  swept = true;
  for (const name of readdirSync(DIR)) {
    const [, pid] = /^cat-(\d+)-t/.exec(name) ?? [];
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) unlinkNamespace(name);
  }
}

function unlinkNamespace(name: string): void {
  const path = `${DIR}/${name}`;
  try {
    unmountNetns(path);
  } catch {
    // It is no longer mounted.
  }
  rmSync(path, { force: true });
}

process.on('exit', () => {
  for (const name of made) unlinkNamespace(name);
});

/** The state at one moment, by place: `host`, the names of containers, and `files`. */
export type KernelState = ReadonlyMap<string, State>;

/** The differences, one per line: `host: + veth veth1a2b`, `c1: eth0: mtu 1500 → 1400`. Empty if there are none. */
export function diffKernelStates(before: KernelState, after: KernelState): string[] {
  const names = new Set([...before.keys(), ...after.keys()]);
  return [...names].flatMap(name => {
    const [old, now] = [before.get(name), after.get(name)];
    // A container that was created or removed is not a plugin's doing.
    if (old === undefined || now === undefined) return [];
    return renderDifference(diffStates(old, now)).map(line => `${name}: ${line}`);
  });
}

/** What is in a namespace, without the addresses that the loopback device gets when it first comes up and then keeps. */
function stateIn(place: Namespace, sysctls: readonly string[]): State {
  const state = readPlace(new Tables(askOn(place)), place.netns, sysctls);
  return new Map([...state].filter(([key]) => !/^address (127\.0\.0\.1\/8|::1\/128) on lo$/.test(key)));
}

function withDigest(file: StateObject): StateObject {
  let content = 'unreadable';
  try {
    const bytes = readFileSync(file.key.replace(/^file /, ''));
    content = createHash('sha256').update(bytes).digest('hex').slice(0, 8);
  } catch {
    // It is gone, or may not be read.
  }
  return { ...file, state: { content } };
}
