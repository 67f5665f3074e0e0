// How is a foreign executable started without loading a library for it?
//
// The command and the library start plugins with execa (chain/run/exec-plugin.ts), which takes as long to load as two plugins take to
// start. A plugin of ours that calls a foreign one uses Bun's own spawn(), with the same care: a process group, a deadline,
// limits on what is read. One test suite covers both.

import { retryWhileBusy } from '../chain/run/busy-executable.ts';
import type { ExecOutcome, Invocation, PluginProcess } from '../chain/run/exec-plugin.ts';
import { GRACE_MS, signalGroup } from '../chain/run/process-group.ts';
import {
  drain,
  MAX_STDERR_BYTES,
  MAX_STDOUT_BYTES,
  type Output,
  OutputBuffer,
} from '../chain/run/process-output.ts';
import { defined } from '../cni/defined.ts';
import { startTimer } from '../wait.ts';

/** Like `startPlugin` of `chain/`, except that the process starts only when its request is sent. */
export function startForeign(invocation: Invocation): PluginProcess {
  return {
    send: request =>
      retryWhileBusy(async leftMs => {
        const child = spawn(invocation, request);
        return typeof child === 'string'
          ? { spawnError: child, stdout: '', stderr: '' }
          : converse(child, { ...invocation, deadlineMs: leftMs });
      }, invocation.deadlineMs),
    discard() {},
  };
}

type Child = Bun.Subprocess<Buffer, 'pipe', 'pipe'>;

/** The process, or the kernel's reason why it could not be started. */
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
    signalGroup(child.pid, 'SIGTERM');
    kill = setTimeout(() => signalGroup(child.pid, 'SIGKILL'), GRACE_MS);
  };
  const stdout = collect(child.stdout, MAX_STDOUT_BYTES, () => end('output'));
  const stderr = collect(child.stderr, MAX_STDERR_BYTES);
  const deadline = startTimer(() => end('deadline'), deadlineMs);
  const interrupt = () => end('interrupt');
  abort?.addEventListener('abort', interrupt);
  if (abort?.aborted) interrupt();

  await child.exited;
  clearTimeout(deadline);
  clearTimeout(kill);
  abort?.removeEventListener('abort', interrupt);
  // Kill children that ignored SIGTERM: they must not outlive the plugin.
  if (ended !== undefined) signalGroup(child.pid, 'SIGKILL');
  const closed = await drain([stdout, stderr]);
  if (!closed) for (const stream of [stdout, stderr]) stream.cancel();
  const { exitCode, signalCode } = child;
  return {
    ...(signalCode === null ? { exitCode: exitCode ?? 1 } : { signal: String(signalCode) }),
    ...defined({ ended }),
    stdout: stdout.text(),
    stderr: stderr.text(),
  };
}

/** A stream that need not be read to its end. */
interface Listened extends Output {
  cancel(): void;
}

function collect(stream: ReadableStream<Uint8Array>, limit: number, onOverflow?: () => void): Listened {
  const reader = stream.getReader();
  const buffer = new OutputBuffer(limit, onOverflow);
  const read = async (): Promise<void> => {
    for (let next = await reader.read(); !next.done; next = await reader.read()) buffer.push(next.value);
  };
  return {
    closed: read().catch(() => {}),
    get received() {
      return buffer.received;
    },
    cancel: () => void reader.cancel().catch(() => {}),
    text: () => buffer.text(),
  };
}
