// How is somebody else's executable started without a library being loaded for it?
//
// Loading execa takes as long as the start of two links. Where one of ours calls a foreign link now and then, Bun's own
// spawn() is enough, with the same care: a process group, a deadline, limits on what is read.
import type { ExecOutcome, Invocation, PluginProcess } from '../chain/exec-plugin.ts';

/** Time between SIGTERM and SIGKILL. */
const GRACE_MS = 2_000;
/** The process has ended, but a grandchild holds its pipes open: silence after which nothing more is waited for. */
const QUIET_MS = 250;
/** … and time after which nothing more is waited for, whatever the grandchild still prints. */
const DRAIN_MS = 1_000;
const MAX_STDOUT_BYTES = 16 * 1024 * 1024;
const MAX_STDERR_BYTES = 1024 * 1024;
/** A file just written may be open for writing in a process forked meanwhile, for a moment. */
const BUSY_RETRY_MS = [10, 50, 100, 250, 500, 1000, 1000];

/** What `startPlugin` of `chain/` does, but for starting ahead: the process starts when its request is there. */
export function startForeign(invocation: Invocation): PluginProcess {
  return {
    async send(request) {
      const started = performance.now();
      const elapsed = () => performance.now() - started;
      const { deadlineMs } = invocation;
      for (const pause of [...BUSY_RETRY_MS, undefined]) {
        const child = spawn(invocation, request);
        if (typeof child !== 'string') {
          const outcome = await converse(child, { ...invocation, deadlineMs: deadlineMs - elapsed() });
          return { ...outcome, durationMs: elapsed() };
        }
        const busy = child.startsWith('ETXTBSY');
        if (!busy || pause === undefined || elapsed() + pause > deadlineMs) {
          return { spawnError: child, stdout: '', stderr: '', durationMs: elapsed() };
        }
        await Bun.sleep(pause);
      }
      throw new Error('unreachable');
    },
    discard() {},
  };
}

type Child = Bun.Subprocess<Buffer, 'pipe', 'pipe'>;

/** The process, or the kernel's reason why there is none. */
function spawn({ path, env }: Invocation, request: string): Child | string {
  const set = Object.entries(env).filter(([, value]) => value !== undefined);
  try {
    return Bun.spawn([path], {
      env: Object.fromEntries(set) as Record<string, string>,
      stdin: Buffer.from(request),
      stdout: 'pipe',
      stderr: 'pipe',
      detached: true,
    });
  } catch (cause) {
    const { code = '', message } = cause as NodeJS.ErrnoException;
    return message.startsWith(code) ? message : `${code}: ${message}`;
  }
}

async function converse(
  child: Child,
  { deadlineMs, signal: abort }: Pick<Invocation, 'deadlineMs' | 'signal'>,
): Promise<Omit<ExecOutcome, 'durationMs'>> {
  let ended: ExecOutcome['ended'];
  let kill: Timer | undefined;
  const end = (reason: NonNullable<ExecOutcome['ended']>): void => {
    if (ended !== undefined) return;
    ended = reason;
    endGroup(child, 'SIGTERM');
    kill = setTimeout(() => endGroup(child, 'SIGKILL'), GRACE_MS);
  };
  const stdout = collect(child.stdout, MAX_STDOUT_BYTES, () => end('output'));
  const stderr = collect(child.stderr, MAX_STDERR_BYTES);
  const deadline = setTimeout(() => end('deadline'), Math.max(deadlineMs, 0));
  const interrupt = () => end('interrupt');
  abort?.addEventListener('abort', interrupt);
  if (abort?.aborted) interrupt();

  await child.exited;
  clearTimeout(deadline);
  clearTimeout(kill);
  abort?.removeEventListener('abort', interrupt);
  // Children that ignored SIGTERM must not outlive the plugin we ended.
  if (ended !== undefined) endGroup(child, 'SIGKILL');
  await drain(stdout, stderr);
  const { exitCode, signalCode } = child;
  return {
    ...(signalCode === null ? { exitCode: exitCode ?? 1 } : { signal: String(signalCode) }),
    ...(ended === undefined ? {} : { ended }),
    stdout: stdout.text(),
    stderr: stderr.text(),
  };
}

interface Collector {
  readonly closed: Promise<void>;
  /** Bytes so far. */
  readonly received: number;
  /** Stops to listen. */
  cancel(): void;
  text(): string;
}

/** Keeps the head of a stream and reports the overflow, or, without anyone to report to, keeps its tail. */
function collect(stream: ReadableStream<Uint8Array>, limit: number, onOverflow?: () => void): Collector {
  const reader = stream.getReader();
  let chunks: Uint8Array[] = [];
  let [size, received] = [0, 0];
  const take = (chunk: Uint8Array): void => {
    received += chunk.length;
    if (size > limit && onOverflow) return;
    chunks.push(chunk);
    size += chunk.length;
    if (size > limit && onOverflow) onOverflow();
    else if (size > 2 * limit) {
      chunks = [Buffer.concat(chunks).subarray(-limit)];
      size = limit;
    }
  };
  const read = async (): Promise<void> => {
    for (let next = await reader.read(); !next.done; next = await reader.read()) take(next.value);
  };
  return {
    closed: read().catch(() => {}),
    get received() {
      return received;
    },
    cancel: () => void reader.cancel().catch(() => {}),
    text() {
      const all = Buffer.concat(chunks);
      return (onOverflow ? all.subarray(0, limit) : all.subarray(-limit)).toString();
    },
  };
}

/** Waits until both are closed; not for a grandchild that holds them open without a word. */
async function drain(stdout: Collector, stderr: Collector): Promise<void> {
  let open = true;
  const closed = Promise.all([stdout.closed, stderr.closed]).then(() => {
    open = false;
  });
  const until = performance.now() + DRAIN_MS;
  for (let before = -1; open && performance.now() < until; ) {
    const received = stdout.received + stderr.received;
    if (received === before) break;
    before = received;
    await Promise.race([closed, Bun.sleep(QUIET_MS)]);
  }
  if (!open) return;
  stdout.cancel();
  stderr.cancel();
}

function endGroup({ pid }: Child, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal);
  } catch {
    // Nobody of the group is left.
  }
}
