// How is a verb played: by a chain or by one plugin, what did each plugin do, and what was there after it?
import { constants } from 'node:os';
import type { Conflist } from '../chain/config/conflist.ts';
import { collectGarbage } from '../chain/records/collect-garbage.ts';
import { startProcess } from '../chain/run/exec-plugin.ts';
import { addNetwork, checkNetwork, deleteNetwork, networkStatus } from '../chain/run/run.ts';
import type { Attachment, PluginEvent, Runtime } from '../chain/run/runtime.ts';
import type { Exec } from '../chain/run/segment.ts';
import { defined, type JsonObject } from '../cni/json.ts';
import { atLeast, SINCE } from '../cni/result.ts';
import { signalGroup } from '../files/process-stat.ts';
import { handOver } from '../node/handover/hand-over.ts';
import type { PluginDefinition } from '../plugin/define.ts';
import { serve } from '../plugin/serve.ts';
import { Errno } from '../sys/errno.ts';
import { FAULT_VARIABLE, planFaults, requestCounter } from '../sys/fault.ts';
import { closeNetns, enter, inNetns, type Netns, openOwnNetns } from '../sys/netns.ts';
import { openPipes } from '../sys/pipes.ts';
import { startTimer } from '../wait.ts';
import {
  type CallOptions,
  environmentOf,
  type Fault,
  faultIn,
  type Reply,
  requestOf,
  toReply,
  type Verb,
} from './call.ts';

/** A verb as it was played. */
export interface Play<Sight, Value> {
  readonly plugins: readonly { readonly event: PluginEvent; readonly sight: Sight }[];
  /** Without the time that looking took. */
  readonly durationMs: number;
  readonly sight: Sight;
  /** What the verb returned, or why it failed. */
  readonly value?: Value;
  readonly error?: unknown;
}

/** Plays one verb, and looks after each of its plugins. */
export async function play<Sight, Value>(
  verb: (hook: Pick<Runtime, 'onPlugin'>) => Promise<Value>,
  look: () => Sight,
): Promise<Play<Sight, Value>> {
  const plugins: Play<Sight, Value>['plugins'][number][] = [];
  const started = performance.now();
  let lookedMs = 0;
  const onPlugin = (event: PluginEvent) => {
    const looking = performance.now();
    plugins.push({ event, sight: look() });
    lookedMs += performance.now() - looking;
  };
  const end = () => ({ plugins, durationMs: performance.now() - started - lookedMs, sight: look() });
  try {
    const value = await verb({ onPlugin });
    return { ...end(), value };
  } catch (error) {
    return { ...end(), error };
  }
}

/** What a runtime asks of a chain. */
export type ChainVerb = 'ADD' | 'CHECK' | 'DEL' | 'GC' | 'STATUS' | 'hand over';

/** Runs a verb over a chain. A verb that the list's version does not have does nothing. @returns the result of ADD */
export async function runChain(
  verb: ChainVerb,
  list: Conflist,
  attachment: Attachment,
  runtime: Runtime,
): Promise<JsonObject | undefined> {
  const { version } = list;
  if (verb === 'ADD') return await addNetwork(list, attachment, runtime);
  if (verb === 'CHECK' && atLeast(version, SINCE.check)) await checkNetwork(list, attachment, runtime);
  if (verb === 'DEL') await deleteNetwork(list, attachment, runtime);
  if (verb === 'STATUS' && atLeast(version, SINCE.status)) await networkStatus(list, runtime);
  if (verb === 'GC') {
    const valid = [{ containerID: attachment.containerId, ifname: attachment.ifname }];
    await collectGarbage(list, { valid }, runtime);
  }
  if (verb === 'hand over') await handOver(list, { network: list.name, ...attachment }, 'do', runtime);
  return undefined;
}

/** Runs another executable in the place of the one that was found. */
export function execInstead(choose: (request: string, found: string) => string): Exec {
  return ({ request, path, ...call }) => startProcess({ ...call, path: choose(request, path) }).send(request);
}

/**
 * Calls an executable as a runtime does.
 * @param look runs when the executable has ended, before the processes that it left running are ended
 */
export async function callExecutable(
  netns: Netns,
  executable: string,
  verb: Verb,
  call: CallOptions,
  look?: () => void,
): Promise<{ readonly reply: Reply; readonly late: boolean }> {
  const fault = call.failAt === undefined ? {} : { [FAULT_VARIABLE]: `kernel:${call.failAt}` };
  const { late, group, ...ended } = await runIn(netns, [executable], {
    env: { ...environmentOf(verb, call), ...fault },
    stdin: requestOf(call),
    ...defined({ timeoutMs: call.timeoutMs }),
  });
  look?.();
  signalGroup(group, 'SIGKILL');
  return { late, reply: toReply({ ...ended, ...defined({ fault: faultIn(ended.stderr) }) }) };
}

/** A plugin definition, or the path of a plugin's executable. */
export type Plugin = PluginDefinition | string;

/** Calls a plugin as a runtime does. @throws Error when an executable does not end in time */
export async function callPlugin(
  netns: Netns,
  plugin: Plugin,
  verb: Verb,
  call: CallOptions,
): Promise<Reply> {
  if (typeof plugin !== 'string') return callInProcess(netns, plugin, verb, call);
  const { late, reply } = await callExecutable(netns, plugin, verb, call);
  if (late) throw new Error(`Cannot finish ${verb} of "${plugin}" in time: ${reply.stdout}${reply.stderr}`);
  return reply;
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
  /** 128 plus the signal's number if a signal ended the program: SIGKILL if it printed more than 16 MiB. */
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
  const pipes = openPipes();
  if (!pipes) throw new Error(`Cannot start "${argv[0]}": there are no descriptors left for its pipes`);
  const [theirStdin, theirStdout, theirStderr] = pipes.theirs;
  // A child starts in the thread's namespace; nothing else can run in between.
  const spawn = () =>
    Bun.spawn([...argv], {
      env: { PATH: `${process.env.PATH ?? ''}:${SYSTEM_PATH}`, ...env },
      stdin: stdin === undefined ? 'ignore' : theirStdin,
      stdout: theirStdout,
      stderr: theirStderr,
      detached: true,
      ...defined({ cwd }),
    });
  const child = pipes.start(() => inNetns(netns, spawn));
  let late = false;
  const end = () => signalGroup(child.pid, 'SIGKILL');
  const timer = startTimer(() => {
    late = true;
    end();
  }, timeoutMs);
  pipes.stdin.end(stdin ?? '');
  const [stdout, stderr] = [collect(pipes.stdout, end), collect(pipes.stderr, end)];
  await child.exited;
  clearTimeout(timer);
  const durationMs = performance.now() - started;
  await Promise.race([Promise.all([stdout.closed, stderr.closed]), Bun.sleep(DRAIN_MS)]);
  pipes.destroy();
  const { exitCode, signalCode } = child;
  return {
    exitCode:
      exitCode ?? 128 + (typeof signalCode === 'string' ? constants.signals[signalCode] : (signalCode ?? 0)),
    stdout: stdout.text(),
    stderr: stderr.text(),
    durationMs,
    late,
    group: child.pid,
  };
}

/** Time until it is ready. */
const READY_MS = 10_000;

/**
 * Starts an executable in a namespace, as leader of a process group that the caller ends, and waits until it has written something to
 * its standard error, which says that it is ready.
 * @throws Error when it ended instead, or was not ready in time
 */
export async function startBeside(executable: string, netns: Netns): Promise<{ readonly pid: number }> {
  const child = inNetns(netns, () =>
    Bun.spawn([executable], {
      env: { PATH: process.env.PATH },
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: 'pipe',
      detached: true,
    }),
  );
  const late = Promise.withResolvers<void>();
  const timer = setTimeout(late.resolve, READY_MS);
  const stderr = collect(child.stderr);
  await Promise.race([stderr.begun, stderr.closed, late.promise]);
  clearTimeout(timer);
  if (stderr.text() !== '') return child;
  signalGroup(child.pid, 'SIGKILL');
  throw new Error(
    `Cannot use "${executable}" beside the plugin: it ended, or wrote nothing to its standard error within ${READY_MS / 1000} s; it has to write there when it is ready`,
  );
}

/** The runner, too, reads no more of a plugin, and kills it. */
const MOST_BYTES = 16 << 20;

/**
 * Reads a stream as it arrives: received data counts even when the stream never ends.
 * @param onFlood called once there is more than {@link MOST_BYTES}, after which nothing is read
 */
function collect(stream: AsyncIterable<Uint8Array>, onFlood: () => void = () => {}) {
  const chunks: Uint8Array[] = [];
  const begun = Promise.withResolvers<void>();
  const read = async () => {
    let total = 0;
    for await (const chunk of stream) {
      chunks.push(chunk);
      begun.resolve();
      total += chunk.length;
      if (total > MOST_BYTES) return onFlood();
    }
  };
  const closed = read().catch(() => {});
  return { begun: begun.promise, closed, text: () => Buffer.concat(chunks).toString() };
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
