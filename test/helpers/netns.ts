// How does a test get a fake host with containers that cannot harm the machine and is always removed?

import { afterAll } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseIp, renderIp } from '../../src/net/ip.ts';
import { listAddresses } from '../../src/netlink/rtnl/addr.ts';
import { getLink, listLinks, OPERSTATES, setLink } from '../../src/netlink/rtnl/link.ts';
import { decodeRoute, listRouteMessages } from '../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Finished, type RunOptions, run, runOk } from './command.ts';
import { deadline } from './deadline.ts';
import { type Dump, type DumpOptions, dumpKernelState } from './dump.ts';
import {
  addNamespace,
  deleteNamespaces,
  look,
  NAMES,
  type Namespace,
  PREFIX,
  removeOwn,
  sweepLeftovers,
  visit,
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
  /** Commands of `ip` inside a namespace, by one process; throws at the first that fails. */
  batch(ns: Namespace, ...lines: string[]): Promise<void>;
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

/** linux/rtnetlink.h */
const RTN_LOCAL = 2;

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
  const host = addNamespace(namespaces, 'h');
  look(host, route => setLink(route, getLink(route, 'lo').index, { up: true }));
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
      const ns = addNamespace(namespaces, 'c');
      return { ...ns, id: `id-${ns.name}` };
    },
    async outside() {
      return connectOutside(host, addNamespace(namespaces, 'o'));
    },
    run: runIn,
    ip: (ns, ...args) => json(ns, ['ip', '-j', '-d', ...args]),
    batch,
    tc: (ns, ...args) => json(ns, ['tc', '-j', '-d', ...args]),
    nft: async <T>(ns: Namespace, ...args: string[]) => nftRows(await json(ns, ['nft', '-j', ...args])) as T,
    sysctl: async (ns, key, value) => sysctl(ns, key, value),
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
      const ends = ns.name === host.name ? [] : listEnds(host, ns);
      await deleteNamespaces([ns.name]);
      await untilGone(host, ends);
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
function listEnds(host: Namespace, ns: Namespace): number[] {
  if (!fs.existsSync(ns.path)) return [];
  const [here, there] = [look(host, listLinks), look(ns, listLinks)];
  return here.flatMap(({ index, peer }) =>
    there.some(far => peer === far.index && far.peer === index) ? [index] : [],
  );
}

/**
 * Waits until the kernel has deleted devices, which it does some time after a namespace has lost its name; not for long, since a
 * process of the test may be in it.
 */
async function untilGone(host: Namespace, ends: readonly number[]): Promise<void> {
  const giveUpAt = performance.now() + 2_000;
  while (ends.length > 0 && performance.now() < giveUpAt) {
    const there = look(host, listLinks);
    if (!ends.some(end => there.some(({ index }) => index === end))) return;
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

async function batch(ns: Namespace, ...lines: string[]): Promise<void> {
  await runOk(within(ns, ['ip', '-batch', '-']), { stdin: `${lines.join('\n')}\n` });
}

async function connectOutside(host: Namespace, ns: Namespace): Promise<Outside> {
  const address = { v4: '10.201.0.2', v6: 'fd00:201::2' };
  const hostAddress = { v4: '10.201.0.1', v6: 'fd00:201::1' };
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
  const cable = `link add uplink type veth peer outside0 netns ${host.name}`;
  await batch(ns, cable, ...side('uplink', address, hostAddress));
  await batch(host, ...side('outside0', hostAddress, address));
  await untilUp(host, 'outside0');
  await untilLocal(host, hostAddress.v6);
  return { ...ns, address, hostAddress };
}

/** Waits until the kernel has noticed that both ends of a new pair are up, which takes a moment (up to a second). */
export function untilUp(ns: Namespace, device: string): Promise<void> {
  const isUp = (route: NetlinkSocket): boolean =>
    OPERSTATES[getLink(route, device).attrs.operstate ?? 0] === 'up';
  return untilSeen(ns, isUp, `Cannot use "${device}": it did not come up`);
}

/** Waits until the kernel has added the routes of an IPv6 address, which it does in the background. */
export function untilLocal(ns: Namespace, address: string): Promise<void> {
  const { value } = parseIp(address);
  const isLocal = (route: NetlinkSocket): boolean =>
    listRouteMessages(route)
      .map(decodeRoute)
      .some(({ type, dst }) => type === RTN_LOCAL && dst.ip.family === 6 && dst.ip.value === value);
  return untilSeen(ns, isLocal, `Cannot use "${address}": the kernel made no route for it`);
}

/** Waits until the kernel has given a device its IPv6 link-local address and the routes of all its addresses. */
export async function untilAddressed(ns: Namespace, device: string): Promise<void> {
  await untilUp(ns, device);
  let addresses: string[] = [];
  const isAddressed = (route: NetlinkSocket): boolean => {
    addresses = listAddresses(route, getLink(route, device).index)
      .filter(({ cidr }) => cidr.ip.family === 6)
      .map(({ cidr }) => renderIp(cidr.ip));
    return addresses.some(address => address.startsWith('fe80:'));
  };
  await untilSeen(ns, isAddressed, `Cannot use "${device}": it got no link-local address`);
  for (const address of addresses) await untilLocal(ns, address);
}

async function untilSeen(
  ns: Namespace,
  isSo: (route: NetlinkSocket) => boolean,
  problem: string,
): Promise<void> {
  const giveUpAt = performance.now() + deadline(5_000);
  while (!look(ns, isSo)) {
    if (performance.now() > giveUpAt) throw new Error(problem);
    await Bun.sleep(20);
  }
}

function sysctl(ns: Namespace, key: string, value?: string | number): string {
  const file = `/proc/sys/${key.includes('/') ? key : key.replaceAll('.', '/')}`;
  return visit(ns, () => {
    if (value !== undefined) fs.writeFileSync(file, String(value));
    return fs.readFileSync(file, 'utf8').trim();
  });
}

function nftRows(output: { nftables?: Row[] } | never[]): Row[] {
  return ('nftables' in output ? (output.nftables ?? []) : []).filter(row => !('metainfo' in row));
}

// For programs other than `bun test`, which may end at any point; `bun test` does not run such handlers.
process.on('exit', () => {
  for (const lab of open) fs.rmSync(lab.tmp, { recursive: true, force: true });
  removeOwn();
});
