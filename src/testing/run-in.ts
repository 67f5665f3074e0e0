// How is a program run inside a namespace, to its end and no longer?
import { constants } from 'node:os';
import { inNetns, type Netns } from '../sys/netns.ts';

/** How to run it. */
export interface RunOptions {
  /** The complete environment; only `PATH` is added. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly stdin?: string;
  readonly cwd?: string;
  /** Default 30,000. */
  readonly timeoutMs?: number;
}

/** How it went. */
export interface Finished {
  /** 128 plus the signal's number for a program that a signal ended. */
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly durationMs: number;
  /** It did not end within its time and was killed, with all that it had started. */
  readonly late: boolean;
  /** Its process group: what it left running is there. */
  readonly group: number;
}

/** Time for what is still in a pipe that a grandchild holds open. */
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
  // What a thread starts is where the thread is; nothing can run in between.
  const child = inNetns(netns, () =>
    Bun.spawn([...argv], {
      env: { PATH: `${process.env.PATH ?? ''}:${SYSTEM_PATH}`, ...env },
      stdin: stdin === undefined ? 'ignore' : new TextEncoder().encode(stdin),
      stdout: 'pipe',
      stderr: 'pipe',
      detached: true,
      ...(cwd === undefined ? {} : { cwd }),
    }),
  );
  let late = false;
  const timer = setTimeout(() => {
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

/** Ends a process group; one that is gone is fine. */
export function killGroup(group: number): void {
  try {
    process.kill(-group, 'SIGKILL');
  } catch {
    // Nobody of it is left.
  }
}

/** Reads a stream as it comes: what arrived counts even when the stream never ends. */
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
