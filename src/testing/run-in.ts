// How is a program run to completion inside a namespace, with a timeout, and which processes run there?

import { readdirSync, readFileSync, statSync } from 'node:fs';
import { constants } from 'node:os';
import { defined } from '../cni/defined.ts';
import { inNetns, type Netns } from '../sys/netns.ts';
import { startTimer } from '../wait.ts';

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
