// How does a trial watch the system calls of one process, and interfere with one of them?

import { readLines } from './lines.ts';

/** A watched process: its first thread, which does all that matters; not its children. */
export interface Tracer {
  /** Every line that strace has printed so far. */
  readonly lines: readonly string[];
  /** Settles when a signal has stopped the process, or when it has ended. */
  readonly stopped: Promise<void>;
  /** Settles when the process has ended, or has been released. */
  readonly ended: Promise<void>;
  /** Detaches from the process. */
  release(): Promise<void>;
}

/** What to watch, and what to inject. */
export interface Watched {
  readonly syscalls: string;
  /** Only requests with this path count. */
  readonly path?: string;
  /** In strace's syntax: `error=EIO` or `signal=KILL`, at the nth request that counts. */
  readonly inject?: { readonly what: string; readonly nth: number };
}

const ATTACH_MS = 10_000;

/** Attaches to a running process; settles when all its following requests will be seen. */
export async function attachTracer(pid: number, { syscalls, path, inject }: Watched): Promise<Tracer> {
  const filter = path === undefined ? [] : ['-P', path];
  const fault = inject ? ['-e', `inject=${syscalls}:${inject.what}:when=${inject.nth}`] : [];
  const argv = ['strace', '-yy', '-s', '48', '-e', `trace=${syscalls}`, ...filter, ...fault, '-p', `${pid}`];
  const strace = Bun.spawn(argv, { stdin: 'ignore', stdout: 'ignore', stderr: 'pipe' });
  const lines: string[] = [];
  const attached = Promise.withResolvers<void>();
  const stopped = Promise.withResolvers<void>();
  const hear = (line: string): void => {
    if (/^strace: Process \d+ attached$/.test(line)) attached.resolve();
    else lines.push(line);
    if (line.startsWith('--- stopped by ')) stopped.resolve();
  };
  const reading = readLines(strace.stderr, hear);
  const ended = reading.then(async () => {
    await strace.exited;
    stopped.resolve();
    attached.reject(new Error(`Cannot watch process ${pid}: ${lines.join(' ')}`));
  });
  attached.promise.catch(() => {});
  const late = setTimeout(() => strace.kill('SIGKILL'), ATTACH_MS);
  await attached.promise.finally(() => clearTimeout(late));
  return {
    lines,
    stopped: stopped.promise,
    ended,
    async release() {
      strace.kill('SIGTERM');
      await ended;
    },
  };
}
