// How does a test get a fake host with containers that cannot harm the machine and is always removed?

import { afterAll } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Finished, type RunOptions, run, runOk } from './command.ts';
import { type Dump, type DumpOptions, dumpKernelState } from './dump.ts';
import {
  addNamespace,
  deleteNamespace,
  deleteNamespaces,
  NAMES,
  type Namespace,
  ownLeftovers,
  PREFIX,
  sweepLeftovers,
} from './namespace.ts';
import { type PluginCall, type PluginReply, runPlugin } from './plugin.ts';

export type { Dump } from './dump.ts';
export type { Namespace } from './namespace.ts';

/** A container's namespace, with an id as a runtime would assign it. */
export interface Container extends Namespace {
  readonly id: string;
}

/** A namespace beyond the fake host, connected by a veth: `uplink` here, `outside0` on the host. */
export interface Outside extends Namespace {
  readonly address: { readonly v4: string; readonly v6: string };
  readonly hostAddress: { readonly v4: string; readonly v6: string };
}

/** One object of a tool's JSON output. Tests that need more define their own type. */
// biome-ignore lint/suspicious/noExplicitAny: rows come from ip, tc and nft and are only ever compared
export type Row = Record<string, any>;

/** A fake host, and everything a test does in and around it. Every wait here has a deadline. */
export interface Lab {
  readonly host: Namespace;
  /** An empty directory, removed with the lab: leases, caches, records. */
  readonly tmp: string;
  /** Creates another container namespace, with only its loopback device, which is down. */
  container(): Promise<Container>;
  /** Creates a namespace and routes between it and the host: each is the other's default gateway. */
  outside(): Promise<Outside>;
  /** Runs a program inside a namespace. */
  run(ns: Namespace, argv: readonly string[], options?: RunOptions): Promise<Finished>;
  /** `ip -j -d` inside a namespace; throws if it fails; `[]` if it prints nothing. */
  ip<T = Row[]>(ns: Namespace, ...args: string[]): Promise<T>;
  /** `tc -j -d` inside a namespace; throws if it fails; `[]` if it prints nothing. */
  tc<T = Row[]>(ns: Namespace, ...args: string[]): Promise<T>;
  /** `nft -j` inside a namespace, the rows without the leading metainfo; throws if it fails. */
  nft<T = Row[]>(ns: Namespace, ...args: string[]): Promise<T>;
  /** Reads a key such as `net/ipv4/ip_forward` inside a namespace, or writes it if a value is given. */
  sysctl(ns: Namespace, key: string, value?: string | number): Promise<string>;
  /** Runs a plugin as a runtime would, inside the fake host. */
  plugin(name: string, call: PluginCall): Promise<PluginReply>;
  /** Starts a program inside a namespace and leaves it running; it is killed with the lab at the latest. */
  start(ns: Namespace, argv: readonly string[]): Bun.Subprocess<'ignore', 'pipe', 'pipe'>;
  /** Everything comparable about a namespace, to compare before and after. */
  dump(ns: Namespace, options?: DumpOptions): Promise<Dump>;
  /** Removes one namespace early, as a runtime does when a container dies. */
  remove(ns: Namespace): Promise<void>;
  /** Kills the processes in the lab's namespaces and removes the namespaces and the directory. */
  close(): Promise<void>;
}

/** Three ticks: of the process's start, of the time since boot, and of files. */
const GC_LAG_MS = 30;

/** How `run` and `plugin` of a lab start programs. */
export interface LabOptions {
  /** Without an `nsenter` before them ({@link RunOptions.netns}): for the benchmark, which times them. */
  readonly directly?: boolean;
}

/** Runs the body with a fake host and removes it afterwards, whatever happens. */
export async function withHost<T>(body: (lab: Lab) => Promise<T>, options?: LabOptions): Promise<T> {
  const lab = await createLab(options);
  try {
    return await body(lab);
  } finally {
    await lab.close();
  }
}

/**
 * Call at the top of a file or `describe`: the returned function creates labs, which `afterAll` removes. Not `afterEach`: the tests of
 * a file run beside each other, and one that ends must not remove the labs of the others. In `describeInOrder`, `afterEach` is given
 * where plugins look for an address in all namespaces.
 */
export function useLabs(remove = afterAll): () => Promise<Lab> {
  const made = new Set<Lab>();
  remove(async () => {
    await Promise.all([...made].map(lab => lab.close()));
    made.clear();
  });
  return async () => {
    const lab = await createLab();
    made.add(lab);
    return lab;
  };
}

/** Removes every lab that is still open: those of tests that exceeded their deadline. */
export async function closeLabs(): Promise<void> {
  await Promise.all([...open].map(lab => lab.close()));
}

/** Creates a fake host, which the caller must close. Prefer {@link withHost} or {@link useLabs}. */
export async function createLab({ directly = false }: LabOptions = {}): Promise<Lab> {
  await sweepOnce();
  const tmp = fs.mkdtempSync(path.join(os.tmpdir(), `${PREFIX}${process.pid}-`));
  const namespaces = new Set<string>();
  const started = new Set<Bun.Subprocess>();
  const host = await addNamespace(namespaces, 'h');
  await runOk(['ip', '-n', host.name, 'link', 'set', 'lo', 'up']);
  const json = async <T>(ns: Namespace, argv: string[]): Promise<T> => {
    const { stdout } = await runOk(within(ns, argv));
    return (stdout.trim() === '' ? [] : JSON.parse(stdout)) as T;
  };
  const runIn = (ns: Namespace, argv: readonly string[], options?: RunOptions): Promise<Finished> =>
    directly ? run(argv, { ...options, netns: ns.path }) : run(inside(ns, argv), options);
  const lab: Lab = {
    host,
    tmp,
    async container() {
      const ns = await addNamespace(namespaces, 'c');
      return { ...ns, id: `id-${ns.name}` };
    },
    async outside() {
      return connectOutside(host, await addNamespace(namespaces, 'o'));
    },
    run: runIn,
    ip: (ns, ...args) => json(ns, ['ip', '-j', '-d', ...args]),
    tc: (ns, ...args) => json(ns, ['tc', '-j', '-d', ...args]),
    nft: async <T>(ns: Namespace, ...args: string[]) => nftRows(await json(ns, ['nft', '-j', ...args])) as T,
    sysctl: (ns, key, value) => sysctl(ns, key, value),
    plugin: async (name, { env, ...call }) => {
      // The kernel counts starts of processes in ticks: what was attached that short a time before GC began may be newer.
      if (call.command === 'GC') await Bun.sleep(GC_LAG_MS);
      const start = (argv: readonly string[], options: RunOptions) => runIn(host, argv, options);
      return runPlugin(start, name, { ...call, env: { ...directories(tmp), ...env } });
    },
    start: (ns, argv) => {
      const child = Bun.spawn(inside(ns, argv), {
        stdin: 'ignore',
        stdout: 'pipe',
        stderr: 'pipe',
        env: { ...process.env },
      });
      started.add(child);
      return child;
    },
    dump: (ns, options) =>
      dumpKernelState(
        (argv, stdin) => runOk(within(ns, argv), stdin === undefined ? {} : { stdin }),
        options,
      ),
    async remove(ns) {
      namespaces.delete(ns.name);
      const ends = ns.name === host.name ? [] : await listEnds(lab, ns);
      await deleteNamespace(ns.name);
      await untilGone(lab, ends);
    },
    async close() {
      open.delete(lab);
      await Promise.all([...started].map(end));
      started.clear();
      await deleteNamespaces([...namespaces]);
      namespaces.clear();
      fs.rmSync(tmp, { recursive: true, force: true });
    },
  };
  open.add(lab);
  return lab;
}

/** Indexes of the host's devices whose other end is in the namespace; none if that is gone. */
async function listEnds({ ip, host }: Lab, ns: Namespace): Promise<number[]> {
  const [here, there] = await Promise.all([ip<Row[]>(host, 'link'), ip<Row[]>(ns, 'link').catch(() => [])]);
  const isPair = (one: Row, far: Row) => far.link_index === one.ifindex && far.ifindex === one.link_index;
  return here.filter(one => there.some(far => isPair(one, far))).map(({ ifindex }) => ifindex);
}

/**
 * Waits until the kernel has deleted devices, which it does some time after a namespace has lost its name; not for long, since a
 * process of the test may be in it.
 */
async function untilGone({ ip, host }: Lab, ends: readonly number[]): Promise<void> {
  const giveUpAt = performance.now() + 2_000;
  while (ends.length > 0 && performance.now() < giveUpAt) {
    const indexes = new Set((await ip<Row[]>(host, 'link')).map(({ ifindex }) => ifindex));
    if (!ends.some(end => indexes.has(end))) return;
    await Bun.sleep(5);
  }
}

// Searching the namespaces for processes would miss one that has not entered its namespace yet.
async function end(child: Bun.Subprocess): Promise<void> {
  child.kill('SIGKILL');
  await child.exited;
}

const open = new Set<Lab>();
let swept: Promise<void> | undefined;

function sweepOnce(): Promise<void> {
  swept ??= sweepLeftovers();
  return swept;
}

/** A fake host shares the machine's file system, so files that plugins keep at default paths are redirected into the lab. */
export function directories(tmp: string): Record<string, string> {
  return {
    CATENA_RUN_DIR: `${tmp}/run`,
    CATENA_STATE_DIR: `${tmp}/state`,
    CATENA_CNI_CACHE_DIR: `${tmp}/cni`,
  };
}

function inside(ns: Namespace, argv: readonly string[]): string[] {
  return ['nsenter', `--net=${ns.path}`, '--', ...argv];
}

/** The same without a second program where `ip` and `tc` can enter the namespace, which takes its name: a run asks tens of thousands of questions. */
function within(ns: Namespace, argv: readonly string[]): readonly string[] {
  const [program = '', ...words] = argv;
  const isNamed = ns.path === path.join(NAMES, ns.name);
  return isNamed && ['ip', 'tc'].includes(program) ? [program, '-n', ns.name, ...words] : inside(ns, argv);
}

async function connectOutside(host: Namespace, ns: Namespace): Promise<Outside> {
  const address = { v4: '10.201.0.2', v6: 'fd00:201::2' };
  const hostAddress = { v4: '10.201.0.1', v6: 'fd00:201::1' };
  const batch = (lines: string[], name: string) => {
    return runOk(['ip', '-n', name, '-batch', '-'], { stdin: `${lines.join('\n')}\n` });
  };
  const side = (device: string, own: typeof address, other: typeof address): string[] => [
    `link set lo up`,
    // No link-local address: it settles later, which would show up as a difference between two dumps.
    `link set ${device} addrgenmode none`,
    `addr add ${own.v4}/24 dev ${device}`,
    `addr add ${own.v6}/64 dev ${device} nodad`,
    `link set ${device} up`,
    `route add default via ${other.v4}`,
    `route add default via ${other.v6}`,
  ];
  await runOk([
    'ip',
    '-n',
    host.name,
    'link',
    'add',
    'outside0',
    'type',
    'veth',
    'peer',
    'uplink',
    'netns',
    ns.name,
  ]);
  await batch(side('uplink', address, hostAddress), ns.name);
  await batch(side('outside0', hostAddress, address), host.name);
  await untilUp(host, 'outside0');
  await untilLocal(host, hostAddress.v6);
  return { ...ns, address, hostAddress };
}

/** Waits until the kernel has noticed that both ends of a new pair are up, which takes a moment (up to a second). */
export async function untilUp(ns: Namespace, device: string): Promise<void> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const { stdout } = await runOk(['ip', '-n', ns.name, '-br', 'link', 'show', device]);
    if (/\sUP\s/.test(stdout)) return;
    await Bun.sleep(20);
  }
  throw new Error(`Cannot use "${device}": it did not come up`);
}

/** Waits until the kernel has added the routes of an IPv6 address, which it does in the background. */
export async function untilLocal(ns: Namespace, address: string): Promise<void> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const { stdout } = await runOk(['ip', '-n', ns.name, '-6', 'route', 'show', 'table', 'local']);
    if (stdout.includes(`local ${address} `)) return;
    await Bun.sleep(20);
  }
  throw new Error(`Cannot use "${address}": the kernel made no route for it`);
}

/** Waits until the kernel has given a device its IPv6 link-local address and the routes of all its addresses. */
export async function untilAddressed(ns: Namespace, device: string): Promise<void> {
  await untilUp(ns, device);
  for (let attempt = 0; attempt < 100; attempt++) {
    const { stdout } = await runOk(['ip', '-n', ns.name, '-6', '-br', 'addr', 'show', device]);
    const addresses = stdout.match(/[\da-f:]+(?=\/\d)/g) ?? [];
    if (addresses.some(address => address.startsWith('fe80:'))) {
      for (const address of addresses) await untilLocal(ns, address);
      return;
    }
    await Bun.sleep(20);
  }
  throw new Error(`Cannot use "${device}": it got no link-local address`);
}

async function sysctl(ns: Namespace, key: string, value?: string | number): Promise<string> {
  const file = `/proc/sys/${key.includes('/') ? key : key.replaceAll('.', '/')}`;
  if (value !== undefined) await runOk(inside(ns, ['tee', file]), { stdin: String(value) });
  return (await runOk(inside(ns, ['cat', file]))).stdout.trim();
}

function nftRows(output: { nftables?: Row[] } | never[]): Row[] {
  return ('nftables' in output ? (output.nftables ?? []) : []).filter(row => !('metainfo' in row));
}

// For programs other than `bun test`, which may end at any point; `bun test` does not run such handlers.
process.on('exit', () => {
  for (const lab of open) fs.rmSync(lab.tmp, { recursive: true, force: true });
  for (const name of ownLeftovers()) Bun.spawnSync(['ip', 'netns', 'delete', name]);
});
