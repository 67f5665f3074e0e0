// How does a plugin author get a fake host with containers to run the plugin on, call it there, and see what exists and has changed?

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { defined } from '../../cni/defined.ts';
import { notesDirs } from '../../cni/directories.ts';
import { ErrorCode, type ErrorReply } from '../../cni/errors.ts';
import { isObject, type JsonObject, tryParse } from '../../cni/json.ts';
import { VALID_ATTACHMENTS } from '../../cni/plugin-config.ts';
import { getLink, setLink } from '../../netlink/rtnl/link.ts';
import { askOn, Tables } from '../../netlink/tables.ts';
import type { PluginDefinition } from '../../plugin/define.ts';
import { serve } from '../../plugin/serve.ts';
import { Errno } from '../../sys/errno.ts';
import { FAULT_NOTE, planFaults, requestCounter } from '../../sys/fault.ts';
import { FAULT_VARIABLE } from '../../sys/fault-variable.ts';
import {
  closeNetns,
  createNetnsAt,
  enter,
  inNetns,
  type Netns,
  openNetns,
  openOwnNetns,
  unmountNetns,
} from '../../sys/netns.ts';
import { startTimer } from '../../wait.ts';
import { diffStates, renderDifference, type State, type StateObject, stateOf } from '../diff.ts';
import { closeLabNetns, type LabNetns, openLabNetns } from '../lab.ts';
import { readFiles, readNetnsState } from '../state.ts';

/** A plugin definition, or the path of a plugin's executable. */
export type Plugin = PluginDefinition | string;

/** The commands of the protocol; a test of the environment may send something else. */
export type Verb = 'ADD' | 'CHECK' | 'DEL' | 'GC' | 'STATUS' | 'VERSION' | (string & {});

/** One call of a plugin. */
export interface CallOptions {
  /** The configuration; a string is passed to standard input unchanged. */
  readonly conf: JsonObject | string;
  readonly container?: { readonly id: string; readonly path: string };
  /** Default `eth0` if there is a container. */
  readonly ifname?: string;
  /** `CNI_ARGS` */
  readonly args?: string;
  /** Added to the configuration as `prevResult`. */
  readonly prevResult?: JsonObject | undefined;
  /** Attachments that GC must keep; added to the configuration. */
  readonly valid?: readonly { readonly containerID: string; readonly ifname: string }[];
  /** `CNI_PATH`: where delegates are looked up. */
  readonly pluginDirs?: readonly string[];
  /** Applied last; undefined removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Number of the request to the kernel that should fail, counted from 1. */
  readonly failAt?: number;
  /** Default 30,000; for executables. */
  readonly timeoutMs?: number;
}

/** The plugin's answer. */
export interface Reply {
  readonly exitCode: number;
  /** Its output on success, if that was a JSON object. */
  readonly result?: JsonObject;
  /** Its output on failure, if that was an error object of the specification. */
  readonly error?: ErrorReply;
  readonly stdout: string;
  readonly stderr: string;
  readonly durationMs: number;
  /** The request that was made to fail, if it was reached. */
  readonly fault?: { readonly request: number; readonly what: string };
}

/** The environment of a call as a runtime sets it, without variables that the call does not specify. */
export function environmentOf(verb: Verb, call: CallOptions): Record<string, string> {
  const all: Record<string, string | undefined> = {
    CNI_COMMAND: verb,
    CNI_CONTAINERID: call.container?.id,
    CNI_NETNS: call.container?.path,
    CNI_IFNAME: call.ifname ?? (call.container && 'eth0'),
    CNI_ARGS: call.args,
    CNI_PATH: call.pluginDirs?.join(':') ?? '',
    ...call.env,
  };
  return Object.fromEntries(
    Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}

/** The text for standard input. */
export function requestOf({ conf, prevResult, valid }: CallOptions): string {
  if (typeof conf === 'string') return conf;
  return JSON.stringify({
    ...conf,
    ...defined({ prevResult, [VALID_ATTACHMENTS]: valid }),
  });
}

/** Parses a plugin's output as result or error. */
export function toReply(ended: Omit<Reply, 'result' | 'error'>): Reply {
  const printed = tryParse(ended.stdout);
  if (!isObject(printed)) return ended;
  if (ended.exitCode === 0) return { ...ended, result: printed };
  const { code = ErrorCode.unknown, msg = '' } = printed;
  if (typeof code !== 'number' || typeof msg !== 'string') return ended;
  return { ...ended, error: { ...printed, code, msg } as ErrorReply };
}

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
export interface Namespace extends LabNetns {
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
  return { ...openLabNetns(name, openNetns(path)), path };
}

/** A GC on this machine visits every namespace, for less than this time. */
const VISIT_MS = 50;

/** Kills the processes that stay in the namespace, and removes it. */
function removeNamespace(place: Namespace): void {
  const { name, netns } = place;
  if (!made.delete(name)) return;
  const found = processesIn([netns.ino]);
  if (found.length > 0) {
    Bun.sleepSync(VISIT_MS);
    for (const pid of processesIn([netns.ino])) if (found.includes(pid)) killProcess(pid);
  }
  closeLabNetns(place);
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
  const state = readNetnsState(new Tables(askOn(place)), place.netns, sysctls);
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

/** Options for running it. */
export interface RunOptions {
  /** The complete environment, to which only `PATH` is added. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly stdin?: string;
  readonly cwd?: string;
  /** Default 30,000. */
  readonly timeoutMs?: number;
}

/** The outcome of a run. */
export interface Finished {
  /** 128 plus the signal's number if a signal ended the program. */
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly durationMs: number;
  /** True when it exceeded its time and was killed, with everything that it had started. */
  readonly late: boolean;
  /** Its process group, which contains any processes that it left running. */
  readonly group: number;
}

/** Time to read the rest of a pipe that a grandchild keeps open. */
const DRAIN_MS = 250;
const SYSTEM_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Runs a program in the namespace, in a process group of its own. Same as: `nsenter --net=<path> -- …` */
export async function runIn(
  netns: Netns,
  argv: readonly string[],
  options: RunOptions = {},
): Promise<Finished> {
  const { env = {}, stdin, cwd, timeoutMs = 30_000 } = options;
  const started = performance.now();
  // A child starts in the thread's namespace; nothing else can run in between.
  const child = inNetns(netns, () =>
    Bun.spawn([...argv], {
      env: { PATH: `${process.env.PATH ?? ''}:${SYSTEM_PATH}`, ...env },
      stdin: stdin === undefined ? 'ignore' : new TextEncoder().encode(stdin),
      stdout: 'pipe',
      stderr: 'pipe',
      detached: true,
      ...defined({ cwd }),
    }),
  );
  let late = false;
  const timer = startTimer(() => {
    late = true;
    killGroup(child.pid);
  }, timeoutMs);
  const [stdout, stderr] = [collect(child.stdout), collect(child.stderr)];
  await child.exited;
  clearTimeout(timer);
  const durationMs = performance.now() - started;
  await Promise.race([Promise.all([stdout.closed, stderr.closed]), Bun.sleep(DRAIN_MS)]);
  return {
    exitCode: child.exitCode ?? 128 + signalNumber(child.signalCode),
    stdout: stdout.text(),
    stderr: stderr.text(),
    durationMs,
    late,
    group: child.pid,
  };
}

/** Kills a process group; a missing one is ignored. */
export function killGroup(group: number): void {
  killProcess(-group);
}

/** Kills a process; a missing one is ignored. */
export function killProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}

/** Reads a stream as it arrives: received data counts even when the stream never ends. */
function collect(stream: ReadableStream<Uint8Array>): { closed: Promise<void>; text(): string } {
  const chunks: Uint8Array[] = [];
  const read = async () => {
    for await (const chunk of stream) chunks.push(chunk);
  };
  return { closed: read().catch(() => {}), text: () => Buffer.concat(chunks).toString() };
}

function signalNumber(signal: string | number | null): number {
  if (typeof signal === 'number') return signal;
  return constants.signals[signal as NodeJS.Signals] ?? 0;
}

/** Processes in the network namespaces, given by inode, except this process. */
export function processesIn(inodes: readonly number[]): number[] {
  return allProcesses().filter(pid => {
    try {
      return inodes.includes(statSync(`/proc/${pid}/ns/net`).ino);
    } catch {
      return false;
    }
  });
}

/** The name of a process's program. */
export function nameOfProcess(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return `process ${pid}`;
  }
}

function allProcesses(): number[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name) && Number(name) !== process.pid)
    .map(Number);
}

/** The request that was made to fail. */
export interface Fault {
  /** Counted from 1. */
  readonly request: number;
  readonly what: string;
}

/**
 * Runs a function while one of this process's requests to the kernel is made to fail: a netlink request, or setting a
 * sysctl. All other requests are real.
 * @param failAt which one, counted from 1; none when undefined
 */
export async function withFaults<T>(
  failAt: number | undefined,
  run: () => T | Promise<T>,
): Promise<{ value: T; fault?: Fault; requests: readonly string[] }> {
  const requests: string[] = [];
  const count = requestCounter();
  let fault: Fault | undefined;
  planFaults(what => {
    const { number, repeated } = count(what);
    if (repeated) return undefined;
    requests.push(what);
    if (number !== failAt) return undefined;
    fault = { request: failAt, what };
    return Errno.EIO;
  });
  try {
    const value = await run();
    return { value, requests, ...defined({ fault }) };
  } finally {
    planFaults(undefined);
  }
}

/** The requests to the kernel that this process makes while a function runs, human-readable. */
export async function listKernelRequests(run: () => unknown): Promise<readonly string[]> {
  return (await withFaults(undefined, run)).requests;
}

/** The fault that an executable reports on standard error. */
export function faultIn(stderr: string): Fault | undefined {
  const [, request, what = ''] = FAULT_NOTE.exec(stderr) ?? [];
  return request === undefined ? undefined : { request: Number(request), what };
}
