// At which requests of a verb may something go wrong, and in which ways?

import { type Actor, type Call, isReply } from './calls.ts';
import type { Verb } from './ground.ts';

/** Where a fault strikes, as the table of figures has it. */
export const GROUPS = ['kernel', 'file', 'boundary'] as const;

/**
 * What strikes there: the request is refused, or the answer to it is lost; or somebody is killed before it. Of the two who
 * work for a verb the runner alone dies (the worker ends when it has nobody to answer), the worker alone (the runner undoes
 * what it did), both, or the runner while the worker works on.
 */
export const STRIKES = ['fails', 'runner killed', 'worker killed', 'both killed', 'worker outlives'] as const;

/** One fault at one request. */
export interface Point {
  readonly verb: Verb;
  readonly group: (typeof GROUPS)[number];
  readonly strike: (typeof STRIKES)[number];
  /** Who makes the request. */
  readonly actor: Actor;
  readonly syscall: string;
  /** Where it is not of a temporary name. */
  readonly path?: string;
  /** Which of those calls, from 1. */
  readonly nth: number;
  /** For `fails`: the error. */
  readonly error?: string;
  /** The request in the words of strace. */
  readonly what: string;
}

/** Every point of a verb, from what its processes asked when nothing went wrong. */
export function findPoints(verb: Verb, calls: Readonly<Partial<Record<Actor, readonly Call[]>>>): Point[] {
  return (['runner', 'worker', 'reaper'] as const).flatMap(actor => {
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

/** GC looks into every namespace of the machine from the runner; what it asks in the first ones it asks in all. */
const MAX_ASKED = 24;
const MAX_ENTERED = 6;
/** How a thread finds back to its namespace. */
const NETNS_OF_THREAD = '/proc/thread-self/ns/net';
/** What is called and who calls: executables of ours. */
const EXECUTABLE = /\/dist\/bin\/|^\/proc\/self\/exe$/;

/** What the engine asks for itself, when it likes; our pipe; and namespaces and processes of whoever else is on the machine. */
const NOT_OURS =
  /^\/proc\/(self|\d+)\/(statm|maps|task|comm)$|^\/sys\/|^\/proc\/self\/cgroup|\/gate$|\/dist\/bin$|^\/(var\/)?run\/netns\/(?!\{)|^\/proc\/\d+\/ns\//;

/** Looking at an executable again finds nothing new, nor does reading on at the end of a file. */
function distinct(calls: readonly Call[]): Call[] {
  const seen = new Set<string>();
  return calls.filter(call => {
    if (call.path !== undefined && NOT_OURS.test(call.path)) return false;
    if (/^(read|pread64|getdents64)$/.test(call.syscall) && / = 0$/.test(call.line)) return false;
    if (/MSG_PEEK/.test(call.line)) return false;
    // The kernel had it wait for its turn and begin again, which depends on who else is at work.
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
  // A name that is made up for one process can only be counted among all; strace looks for paths of no rename.
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

/** Names with process ids, of pairs (drawn by lot), of devices named after the container, and of locks that name a namespace. */
const OF_ONE_RUN = /\.tmp$|^\/proc\/\d+\/|\/veth[0-9a-f]{8}\/|\/bwp[0-9a-f]{12}\/|\/bridge-\d+-/;

function groupOf(actor: Actor, call: Call): Point['group'] | undefined {
  const { syscall, path, peer } = call;
  if (peer === 'netlink') return 'kernel';
  if (path !== undefined) return 'file';
  if (actor === 'runner') return syscall === 'sendto' ? 'boundary' : undefined;
  return isReply(call) ? 'boundary' : undefined;
}

/**
 * What a disk that is full, read-only or broken says, and a kernel that is out of memory or refuses a parameter. EIO says of
 * some parameters that they have no value.
 */
function errorOf({ syscall, path, peer, changes }: Call): string {
  if (peer === 'netlink') return 'ENOBUFS';
  if (syscall === 'flock') return 'ENOLCK';
  if (path?.startsWith('/proc/')) return changes ? 'EACCES' : 'ENOMEM';
  if (['unlink', 'rmdir', 'utimensat'].includes(syscall)) return 'EROFS';
  return changes ? 'ENOSPC' : 'EIO';
}
