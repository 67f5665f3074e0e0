// How does a trial watch what one process asks of the kernel, and interfere with one of these requests?

import { readLines } from './lines.ts';

/** One process that is watched: its first thread, which does all that matters; not its children. */
export interface Tracer {
  /** Every line that strace wrote so far. */
  readonly lines: readonly string[];
  /** Settles when the process has been stopped by a signal, or has ended. */
  readonly stopped: Promise<void>;
  /** Settles when the process has ended, or when it is let go. */
  readonly ended: Promise<void>;
  /** Lets the process go its own way. */
  release(): Promise<void>;
}

/** What is watched, and what happens to one of it. */
export interface Watched {
  readonly syscalls: string;
  /** Only requests with this path count. */
  readonly path?: string;
  /** As strace has it: `error=EIO` or `signal=KILL`, at the nth request that counts. */
  readonly inject?: { readonly what: string; readonly nth: number };
}

const ATTACH_MS = 10_000;

/** Attaches to a running process; settles when nothing that it does will be missed. */
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
