// How does a test run another program to completion, with a deadline and without a shell?

import os from 'node:os';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { deadline } from './deadline.ts';

/** The outcome of a program. If a signal ended it, the exit code is 128 plus the signal's number. */
export interface Finished {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** How to run a program; the environment replaces ours except for `PATH`. */
export interface RunOptions {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly stdin?: string;
  readonly cwd?: string;
  /** Default 30,000; more on a slow or busy machine, as for a time that is given. */
  readonly timeoutMs?: number;
  /**
   * Path of the network namespace to start it in, without a program in between: for what is timed. Otherwise prefix the command
   * with `nsenter`: a thread that Bun starts during the visit would stay in the namespace.
   */
  readonly netns?: string;
}

/** `PATH` for tests: an ordinary user's own often lacks the directories of ip, nft and iptables. */
export const TEST_PATH = `${process.env.PATH ?? ''}:/usr/local/sbin:/usr/sbin:/sbin`;

/** Runs a program and waits for it; throws only if it cannot start or exceeds its deadline. */
export async function run(argv: readonly string[], options: RunOptions = {}): Promise<Finished> {
  const timeoutMs = deadline(options.timeoutMs ?? 30_000);
  const child = options.netns === undefined ? spawn(argv, options) : spawnIn(options.netns, argv, options);
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    child.kill('SIGKILL');
  }, timeoutMs);
  try {
    // A grandchild may keep the pipes open after the program itself was killed: wait for the exit, then briefly for the pipes.
    const output = Promise.all([child.stdout.text(), child.stderr.text()]);
    await child.exited;
    const [stdout, stderr] = await (late
      ? Promise.race([output, Bun.sleep(500).then(() => ['', ''])])
      : output);
    if (late) throw new Error(`Cannot finish "${argv.join(' ')}" within ${timeoutMs} ms: ${stdout}${stderr}`);
    return {
      exitCode: exitCodeOf(child),
      stdout: stdout ?? '',
      stderr: stderr ?? '',
    };
  } finally {
    clearTimeout(timer);
  }
}

/** The exit code of a program that has ended: 128 plus the signal's number if a signal ended it. */
export function exitCodeOf({ exitCode, signalCode }: Bun.Subprocess): number {
  return exitCode ?? 128 + (os.constants.signals[signalCode as NodeJS.Signals] ?? 0);
}

type Child = Bun.Subprocess<'ignore' | Uint8Array, 'pipe', 'pipe'>;

// A child starts in the namespace of the thread that spawns it, which is the calling one.
function spawnIn(path: string, argv: readonly string[], options: RunOptions): Child {
  const netns = openNetns(path);
  try {
    return inNetns(netns, () => spawn(argv, options));
  } finally {
    closeNetns(netns);
  }
}

function spawn(argv: readonly string[], { env, stdin, cwd }: RunOptions): Child {
  return Bun.spawn([...argv], {
    env: { PATH: TEST_PATH, LC_ALL: 'C', ...env },
    stdin: stdin === undefined ? 'ignore' : new TextEncoder().encode(stdin),
    stdout: 'pipe',
    stderr: 'pipe',
    ...(cwd === undefined ? {} : { cwd }),
  });
}

/** Like {@link run}, but a non-zero exit code is an error that includes the program's output. */
export async function runOk(argv: readonly string[], options: RunOptions = {}): Promise<Finished> {
  const finished = await run(argv, options);
  if (finished.exitCode === 0) return finished;
  const said = `${finished.stderr}${finished.stdout}`.trim();
  throw new Error(`Cannot run "${argv.join(' ')}": exit code ${finished.exitCode}: ${said}`);
}
