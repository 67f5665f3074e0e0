// In which state is a process, when did it start, and in which boot of the machine?

import { closeSync, openSync, readdirSync, readFileSync, readlinkSync, readSync } from 'node:fs';
import { attempt, CniError, ErrorCode } from '../cni/errors.ts';
import { GRACE_MS, pause } from '../wait.ts';

/** Longer than any identity. */
const ROOM_BYTES = 128;

let current: string | undefined;

/**
 * Identity of this boot: no kernel state outlives it. `CATENA_BOOT_ID` overrides the kernel's, to test what a restart of the
 * machine does. Empty if the kernel does not report one.
 */
export function bootId(env: Readonly<Record<string, string | undefined>> = process.env): string {
  if (env.CATENA_BOOT_ID) return env.CATENA_BOOT_ID;
  current ??= readBootId();
  return current;
}

/**
 * Reads into a small buffer: the kernel allocates, and
 * clears, one of the same size, which for the usual size takes ten times as long.
 */
function readBootId(): string {
  try {
    const fd = openSync('/proc/sys/kernel/random/boot_id', 'r');
    try {
      const room = Buffer.alloc(ROOM_BYTES);
      return room.toString('latin1', 0, readSync(fd, room)).trim();
    } finally {
      closeSync(fd);
    }
  } catch {
    return '';
  }
}

/**
 * Whether the kernel cannot have anything of the attachment any longer. If one of the two boots is unknown, it may have:
 * taking the attachment down could cut a working container off its network.
 */
export function isOfEarlierBoot(
  { boot }: { readonly boot: string },
  env: Readonly<Record<string, string | undefined>> | undefined,
): boolean {
  const now = bootId(env);
  return now !== '' && boot !== '' && boot !== now;
}

/** Fields of /proc/<pid>/stat (man 5 proc). */
interface ProcessStat {
  /** Field 3: `R`, `S`, `D`, `T` (stopped), `Z` (zombie), `X` (dead), … */
  readonly state: string;
  /** Field 4: process id of the parent. */
  readonly parent: number;
  /** Field 5: process id of the leader of its process group. */
  readonly group: number;
  /** Field 22: when it started, in ticks since boot. */
  readonly start: string;
}

/** Undefined if there is no such process. @throws CniError 5 for want of descriptors or memory */
export function readProcessStat(pid: number): ProcessStat | undefined {
  const text = textOf(`/proc/${pid}/stat`);
  if (text === '') return undefined;
  // The name in parentheses may contain any character.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state = '', parent, group] = fields;
  return { state, parent: Number(parent), group: Number(group), start: fields[19] ?? '' };
}

/** The same for a process that still runs: undefined for a zombie, too, which only waits for its parent. */
export function readRunningStat(pid: number): ProcessStat | undefined {
  const stat = readProcessStat(pid);
  return stat === undefined || stat.state === 'Z' || stat.state === 'X' ? undefined : stat;
}

/**
 * Milliseconds for which a process has run, or waited for a processor to run on (schedstat of its first thread).
 * @returns 0 if the kernel does not say
 */
export function wantedCpuMs(pid: number | undefined): number {
  const [, ran = '0', waited = '0'] =
    /^(\d+) (\d+)/.exec(attempt(() => textOf(`/proc/${pid}/schedstat`)) ?? '') ?? [];
  return (Number(ran) + Number(waited)) / 1e6;
}

/** What a process was started with, as `NAME=value`; nothing if it has ended, or is another user's. @throws CniError 5 as {@link readProcessStat} */
export function environmentOf(pid: number): string[] {
  return textOf(`/proc/${pid}/environ`).split('\0');
}

/** A process, distinguished from a later one with the same number. */
export interface ProcessId {
  readonly pid: number;
  /** When the process started, in ticks since boot, because process ids are reused. Empty if the kernel does not report it. */
  readonly start: string;
  /** The process id namespace in which `pid` is valid, and the time namespace in which `start` is, unless that is the machine's. */
  readonly pidns: string;
}

let own: ProcessId | undefined;

/** This process. */
export function thisProcess(): ProcessId {
  own ??= { pid: process.pid, start: readRunningStat(process.pid)?.start ?? '', pidns: ownPidns() };
  return own;
}

/** Marks a plugin with the process that runs its chain: it does not end with that. */
export const RUNNER_VARIABLE = 'CATENA_RUNNER';

/** The same for a worker, which serves all plugin calls of its runner, for any attachment. */
export const WORKER_VARIABLE = 'CATENA_WORKER_OF';

/** The process as one word, in the name of an operation and in a variable that tells a plugin or worker of it. */
export function processOf({ pid, start }: Pick<ProcessId, 'pid' | 'start'> = thisProcess()): string {
  return `${pid}-${start}`;
}

/**
 * Whether a process is alive; undefined if it cannot be seen: it is in another process id namespace, or this process is out of descriptors
 * or memory.
 */
export function isRunning({ pid, start, pidns }: ProcessId): boolean | undefined {
  if (pidns !== thisProcess().pidns) return undefined;
  const own = attempt(() => ({ stat: readRunningStat(pid) }));
  return own && start !== '' && own.stat?.start === start;
}

/** The kernel reports times to user space in ticks of 10 ms on every machine (USER_HZ). */
const TICK_MS = 10;

/**
 * How long ago a process was started, in milliseconds, by the age of this program. /proc/uptime does not tell: lxcfs shows there how long
 * the system container runs, and `subset=pid` hides it.
 */
export function ageMsOf({ start }: Pick<ProcessStat, 'start'>): number {
  return performance.now() + (Number(thisProcess().start) - Number(start)) * TICK_MS;
}

/**
 * When this process was started, in milliseconds since the epoch, and a tick before rather than behind. It may have executed this program
 * long after that: the front waits for a daemon first. Of that time nothing is known where /proc/uptime is not of the machine.
 */
export function startedAt(): number {
  const { start } = thisProcess();
  if (start === '') return performance.timeOrigin;
  const ageMs = Number.parseFloat(textOf('/proc/uptime')) * 1000 - Number(start) * TICK_MS;
  return Date.now() - Math.max(ageMs || 0, performance.now()) - TICK_MS;
}

/** linux/proc_ns.h, PROC_TIME_INIT_INO. In another one, the kernel shows other times at which processes started. */
const MACHINE_TIME = `time:[${0xef_ff_ff_fa}]`;

function ownPidns(): string {
  const [pid = '', time = ''] = ['pid', 'time'].map(kind =>
    attempt(() => readlinkSync(`/proc/self/ns/${kind}`)),
  );
  return time === MACHINE_TIME ? pid : pid + time;
}

/** Long enough for a process to run again that was stopped only briefly, by a debugger or by strace. */
const SECOND_LOOK_MS = 50;

/**
 * Whether a process is stopped, by SIGSTOP or in a frozen cgroup. False for one in a PID namespace that is not visible from here.
 */
export async function isFrozen(one: ProcessId): Promise<boolean> {
  if (!looksFrozen(one)) return false;
  await pause(SECOND_LOOK_MS);
  return looksFrozen(one);
}

function looksFrozen({ pid, start, pidns }: ProcessId): boolean {
  if (isRunning({ pid, start, pidns }) !== true) return false;
  // proc(5): T is "stopped". The wait channel of a process in a frozen cgroup is a function of the freezer, in both cgroup
  // versions.
  return readProcessStat(pid)?.state === 'T' || /freezer|refrigerator/.test(textOf(`/proc/${pid}/wchan`));
}

const SHORTAGES = ['EMFILE', 'ENFILE', 'ENOMEM'];

/** Empty if the process has ended, or may not be looked at. @throws CniError 5 for want of descriptors or memory: it may well be there */
function textOf(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch (cause) {
    if (!SHORTAGES.includes((cause as NodeJS.ErrnoException).code ?? '')) return '';
    throw new CniError(ErrorCode.ioFailure, `Cannot read "${path}": ${(cause as Error).message}`, { cause });
  }
}

/** A killed process may be in the middle of a system call, which it finishes first. */
const LAST_CALL_MS = 300;

/**
 * Kills a process, such as a daemon, and the plugins and workers that it has started, which name it; other children are no business of ours.
 * One in a frozen cgroup ends only when the cgroup is thawed, but it executes no further instruction in user space.
 * @returns true once all of them were killed, and have ended or had {@link LAST_CALL_MS} to do so; false if that is impossible
 */
export async function endFrozen(one: ProcessId): Promise<boolean> {
  const running = isRunning(one);
  if (running === undefined) return false;
  if (!running) return true;
  const marks = [WORKER_VARIABLE, RUNNER_VARIABLE].map(variable => `${variable}=${processOf(one)}`);
  const isOurs = (pid: number) => environmentOf(pid).some(entry => marks.includes(entry));
  try {
    // The parent first: it must not notice that its workers end.
    const own = [one.pid, ...childrenOf(one.pid).filter(isOurs)];
    for (const pid of own) kill(pid);
    for (let left = LAST_CALL_MS; left > 0 && own.some(pid => readRunningStat(pid)); left -= 10)
      await pause(10);
    return true;
  } catch {
    return false;
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

export function childrenOf(parent: number): number[] {
  return processIds().filter(pid => readProcessStat(pid)?.parent === parent);
}

/** Every process that can be seen. */
export function processIds(): number[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .map(Number);
}

/** Sends a signal to the process group of a leader, if a process id is given. A missing group is ignored. */
export function signalGroup(leader: number | undefined, signal: NodeJS.Signals): void {
  if (leader === undefined) return;
  try {
    process.kill(-leader, signal);
  } catch {
    // The group has no process left.
  }
}

/**
 * Ends the process group of a leader: SIGTERM now, SIGKILL {@link GRACE_MS} later.
 * @param onStuck called as long after that: a process that was killed and has not ended waits in the kernel, as for a file server that is
 *   away, and executes nothing
 * @returns a function to be called once the leader has ended
 */
export function endGroup(leader: number | undefined, onStuck: () => void): () => void {
  signalGroup(leader, 'SIGTERM');
  let timer = setTimeout(() => {
    signalGroup(leader, 'SIGKILL');
    timer = setTimeout(onStuck, GRACE_MS);
  }, GRACE_MS);
  return () => clearTimeout(timer);
}
