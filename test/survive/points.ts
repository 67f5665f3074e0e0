// At which requests of a verb can something fail, and in which ways?

import { type Actor, type Call, isReply } from './calls.ts';
import type { Verb } from './ground.ts';

/** Where a fault strikes, as in the table of figures. */
export const GROUPS = ['kernel', 'file', 'boundary'] as const;

/**
 * The fault: the request is refused, or its reply is lost; or a process is killed before it. Of the two processes that work for a
 * verb, the runner alone dies (the worker ends when it has no runner), the worker alone (the runner undoes its work), both, or
 * the runner while the worker continues.
 */
export const STRIKES = ['fails', 'runner killed', 'worker killed', 'both killed', 'worker outlives'] as const;

/** One fault at one request. */
export interface Point {
  readonly verb: Verb;
  readonly group: (typeof GROUPS)[number];
  readonly strike: (typeof STRIKES)[number];
  /** The process that makes the request. */
  readonly actor: Actor;
  readonly syscall: string;
  /** Absent for a temporary name. */
  readonly path?: string;
  /** Which of those calls, from 1. */
  readonly nth: number;
  /** For `fails`: the error. */
  readonly error?: string;
  /** The request, as printed by strace. */
  readonly what: string;
}

/** Every point of a verb, from the requests of a run without a fault. */
export function findPoints(verb: Verb, calls: Readonly<Partial<Record<Actor, readonly Call[]>>>): Point[] {
  return (['runner', 'worker'] as const).flatMap(actor => {
    const all = distinct(calls[actor] ?? []);
    const asked = all.filter(({ peer }) => peer === 'netlink');
    const entered = all.filter(({ path }) => path === NETNS_OF_THREAD);
    const more = [...asked.slice(MAX_ASKED), ...entered.slice(MAX_ENTERED)];
    const repeated = new Set(actor === 'runner' ? more : []);
    return all.filter(call => !repeated.has(call)).flatMap(call => pointsOf(verb, actor, call));
  });
}

/** A point in one line. */
export function describePoint({ verb, actor, strike, error = '', what }: Point): string {
  return `${verb.toUpperCase()} ${strike} ${error} at the ${actor}'s ${what.slice(0, 160)}`;
}

/** GC looks into every namespace of the machine from the runner, with the same requests in each: the first ones suffice. */
const MAX_ASKED = 24;
const MAX_ENTERED = 6;
/** The path by which a thread returns to its namespace. */
const NETNS_OF_THREAD = '/proc/thread-self/ns/net';
/** Caller and callee: executables of ours. */
const EXECUTABLE = /\/dist\/bin\/|^\/proc\/self\/exe$/;

/**
 * Requests that the JavaScript engine makes at any time, our pipe, and namespaces and processes of other programs on the machine.
 */
const NOT_OURS =
  /^\/proc\/(self|\d+)\/(statm|maps|task|comm)$|^\/sys\/|^\/proc\/self\/cgroup|\/gate$|\/dist\/bin$|^\/(var\/)?run\/netns\/(?!\{)|^\/proc\/\d+\/ns\//;

/** Leaves out repeated lookups of an executable, and reads past the end of a file. */
function distinct(calls: readonly Call[]): Call[] {
  const seen = new Set<string>();
  return calls.filter(call => {
    if (call.path !== undefined && NOT_OURS.test(call.path)) return false;
    if (/^(read|pread64|getdents64)$/.test(call.syscall) && / = 0$/.test(call.line)) return false;
    if (/MSG_PEEK/.test(call.line)) return false;
    // The kernel restarted the call while waiting for a lock, which depends on other processes.
    if (/ = \? ERESTART/.test(call.line)) return false;
    if (call.changes || call.path === undefined || !EXECUTABLE.test(call.path)) return true;
    if (seen.has(call.path)) return false;
    seen.add(call.path);
    return true;
  });
}

function pointsOf(verb: Verb, actor: Actor, call: Call): Point[] {
  const group = groupOf(actor, call);
  if (group === undefined) return [];
  const { syscall, path, nth, line } = call;
  // A name that differs between processes can only be counted among all; strace cannot filter renames by path.
  const isFixed = path !== undefined && !OF_ONE_RUN.test(path) && syscall !== 'rename';
  const place = isFixed ? { path, nth: nth.ofPath } : { nth: nth.ofAll };
  const point = { verb, group, actor, syscall, ...place, what: line.replace(/\s+= \S+.*$/, '') } as const;
  const fails: Point[] = group === 'boundary' ? [] : [{ ...point, strike: 'fails', error: errorOf(call) }];
  const isAnswer = syscall.startsWith('recv');
  if (isAnswer || (group === 'file' && !call.changes)) return fails;
  if (actor === 'runner') return [...fails, { ...point, strike: 'runner killed' }];
  const deaths = ['worker killed', 'both killed'] as const;
  const all = group === 'file' ? deaths : ([...deaths, 'worker outlives'] as const);
  return [...fails, ...all.map(strike => ({ ...point, strike }))];
}

/** Names with process ids, of pairs (random), of devices named after the container, and of locks that name a namespace. */
const OF_ONE_RUN = /\.tmp$|^\/proc\/\d+\/|\/veth[0-9a-f]{8}\/|\/bwp[0-9a-f]{12}\/|\/bridge-\d+-/;

function groupOf(actor: Actor, call: Call): Point['group'] | undefined {
  const { syscall, path, peer } = call;
  if (peer === 'netlink') return 'kernel';
  if (path !== undefined) return 'file';
  if (actor === 'runner') return syscall === 'sendto' ? 'boundary' : undefined;
  return isReply(call) ? 'boundary' : undefined;
}

/**
 * The errors of a full, read-only or broken disk, and of a kernel that is out of memory or refuses a parameter. For some
 * parameters EIO means that they have no value.
 */
function errorOf({ syscall, path, peer, changes }: Call): string {
  if (peer === 'netlink') return 'ENOBUFS';
  if (syscall === 'flock') return 'ENOLCK';
  if (path?.startsWith('/proc/')) return changes ? 'EACCES' : 'ENOMEM';
  if (['unlink', 'rmdir', 'utimensat'].includes(syscall)) return 'EROFS';
  return changes ? 'ENOSPC' : 'EIO';
}
