// How does a process serve one plugin call after the other?

import type { KernelTransaction } from '../chain/run/exec-plugin.ts';
import { withPrevResult } from '../chain/run/segment.ts';
import { workingDirectory } from '../cni/directories.ts';
import { CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { defined, LineSplitter } from '../cni/json.ts';
import { type Exchange, listenToExchanges } from '../netlink/socket.ts';
import type { Done } from '../plugin/define.ts';
import { deleteDevices, Removals } from '../plugin/delete-devices.ts';
import { HostSockets, type PluginLookup, SegmentNetns, type WorkerState } from '../plugin/invocation.ts';
import { replyTo } from '../plugin/serve.ts';
import { readChunk, writeAll } from '../plugin/stdio.ts';
import { compileEagerly, endWithParent, rest } from '../sys/process.ts';
import {
  BEGUN,
  type SegmentRequest,
  STAY_FLAG,
  toLine,
  type WorkerCall,
  type WorkerReply,
  type WorkerRequest,
} from './protocol.ts';

/**
 * Serves calls until standard input ends, one at a time. Each plugin has the process, its environment and its namespaces to
 * itself, as in a separate process.
 * @param plugins the plugins of this executable
 */
export async function runWorker(plugins: PluginLookup): Promise<never> {
  if (process.argv.includes(STAY_FLAG)) {
    compileEagerly();
    endWithParent();
  }
  process.on('uncaughtException', die);
  process.on('unhandledRejection', die);
  const context: WorkerContext = { sockets: new HostSockets(), chains: new Map() };
  const lines = new LineSplitter();
  const chunk = new Uint8Array(1 << 16);
  for (let length = readChunk(chunk); length > 0; length = readChunk(chunk)) {
    for (const line of lines.push(chunk.subarray(0, length))) {
      const request = JSON.parse(line) as WorkerRequest;
      writeAll(1, BEGUN);
      if ('segment' in request)
        await runSegment(request.segment, plugins, context, reply => writeAll(1, toLine(reply)));
      else writeAll(1, toLine(await answer(request, context)));
    }
  }
  // The runner is gone, but deferred work is still done.
  for (const deferred of context.chains.values()) await finish(deferred, false, context.sockets);
  process.exit(0);
}

/** Kept from one call to the next. */
interface WorkerContext {
  readonly sockets: HostSockets;
  /** What the plugins of each chain have deferred. */
  readonly chains: Map<string, Deferred>;
}

/** What waits, and where it was asked for. */
interface Deferred extends Pick<WorkerCall, 'env' | 'cwd'> {
  readonly removals: Removals;
}

/** Calls the plugins of a segment. Writes each reply before the next call begins, so the replies show how far a crash got. */
async function runSegment(
  { calls, chain, threadsResult, stopsAtFailure, tracesKernel }: SegmentRequest,
  plugins: PluginLookup,
  { sockets, chains }: WorkerContext,
  write: (reply: WorkerReply) => void,
): Promise<void> {
  const removals = chains.get(chain)?.removals ?? new Removals();
  const netns = new SegmentNetns();
  const state = { sockets, netns, removals };
  let result: string | undefined;
  try {
    for (const [position, one] of calls.entries()) {
      const stdin = result === undefined ? one.stdin : withPrevResult(one.stdin, result);
      const reply = await noting(tracesKernel, () => call({ ...one, stdin }, plugins, state));
      if (removals.waiting) chains.set(chain, { removals, env: one.env, cwd: one.cwd });
      const isLast = position === calls.length - 1 || (reply.exitCode !== 0 && stopsAtFailure);
      write({
        ...reply,
        ...(removals.waiting ? { removals: removals.indexes } : {}),
        ...(isLast ? {} : { more: true }),
      });
      if (isLast) return;
      if (threadsResult) result = reply.stdout;
    }
  } finally {
    netns.close();
  }
}

async function answer(
  request: Exclude<WorkerRequest, { segment: unknown }>,
  { sockets, chains }: WorkerContext,
): Promise<WorkerReply> {
  if ('rest' in request) return reporting(rest);
  if ('remove' in request) return reporting(() => deleteDevices(sockets.route, request.remove));
  const deferred = chains.get(request.finish);
  chains.delete(request.finish);
  if (deferred === undefined) return DONE;
  return noting(request.tracesKernel, () => finish(deferred, request.removed, sockets));
}

async function call(
  { plugin, env, stdin, cwd }: WorkerCall,
  plugins: PluginLookup,
  worker: WorkerState,
): Promise<WorkerReply> {
  takeEnvironment(env);
  takeDirectory(cwd);
  const definition = await plugins(plugin);
  if (definition === undefined) {
    const reason = 'this executable has no such plugin; call it by a name it was installed with';
    return failed(new CniError(ErrorCode.internal, `Cannot call plugin "${plugin}": ${reason}`));
  }
  return replyTo(definition, { env, readStdin: () => stdin, worker }, plugins);
}

/** In the environment of the calls that have deferred it, as calls of other chains may have followed. */
function finish(
  { removals, env, cwd }: Deferred,
  removed: boolean,
  sockets: HostSockets,
): Promise<WorkerReply> {
  takeEnvironment(env);
  takeDirectory(cwd);
  return reporting(() => removals.perform(() => sockets.route, removed));
}

async function reporting(step: () => Done): Promise<WorkerReply> {
  try {
    await step();
    return DONE;
  } catch (thrown) {
    return failed(toCniError(thrown));
  }
}

const DONE: WorkerReply = { exitCode: 0, stdout: '', stderr: '' };

function failed(error: CniError): WorkerReply {
  return { exitCode: 1, stdout: JSON.stringify(error.toReply()), stderr: '' };
}

/** Copies the call's environment into the process: some code far below a call reads variables, such as the directory of locks. */
function takeEnvironment(env: WorkerCall['env']): void {
  for (const name of Object.keys(process.env)) if (env[name] === undefined) delete process.env[name];
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && process.env[name] !== value) process.env[name] = value;
  }
}

/** Directory for calls that name none, once another one was entered. */
let home: string | undefined;

/** Enters the caller's directory, from which relative paths of a configuration start; the root if it no longer exists. */
function takeDirectory(cwd: string | undefined): void {
  const wanted = cwd ?? home;
  if (wanted === undefined) return;
  const current = workingDirectory();
  home ??= current ?? '/';
  try {
    if (current !== wanted) process.chdir(wanted);
  } catch {
    process.chdir('/');
  }
}

/** Unhandled rejection or exception: the state of this process is unknown, so exit. */
function die(thrown: unknown): never {
  writeAll(2, `${thrown instanceof Error ? thrown.stack : String(thrown)}\n`);
  process.exit(1);
}

/** Limit of transactions reported one by one: a GC may need thousands. */
const MAX_TRANSACTIONS = 200;

/** Does the work. If wanted, the reply includes what it did in the kernel; nothing else runs at that time. */
export async function noting(
  wanted: boolean | undefined,
  work: () => Promise<WorkerReply>,
): Promise<WorkerReply> {
  if (!wanted) return work();
  const begin = performance.now();
  const exchanges: Exchange[] = [];
  listenToExchanges(exchange => void exchanges.push(exchange));
  try {
    const reply = await work();
    return { ...reply, transactions: toTransactions(exchanges, begin) };
  } finally {
    listenToExchanges(undefined);
  }
}

/** Transactions above the limit become one row, with their number and total duration. */
export function toTransactions(exchanges: readonly Exchange[], begin: number): KernelTransaction[] {
  const told = exchanges.slice(0, MAX_TRANSACTIONS).map(one => toTransaction(one, begin));
  const [first, ...rest] = exchanges.slice(MAX_TRANSACTIONS);
  const last = rest.at(-1) ?? first;
  if (first === undefined || last === undefined) return told;
  const what = `${rest.length + 1} further transactions`;
  return [...told, toTransaction({ ...first, family: 'all', what, endedAt: last.endedAt }, begin)];
}

function toTransaction(
  { family, what, startedAt, endedAt, refusal }: Exchange,
  begin: number,
): KernelTransaction {
  return {
    family,
    what,
    startMs: round(startedAt - begin),
    durationMs: round(endedAt - startedAt),
    ...defined({ error: refusal }),
  };
}

/** To microseconds: precise enough, and short to send. */
function round(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
