// How does a test run another program: to its end, with a deadline, and without a shell?

import os from 'node:os';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { deadline } from './deadline.ts';

/** What a finished program left. A program ended by a signal has 128 plus the signal's number as exit code. */
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
  /** Default 30,000, on a slow machine more. */
  readonly timeoutMs?: number;
  /**
   * Path of the network namespace that it is started from, without a program in between: for what is timed. Else put
   * `nsenter` before it: a thread that Bun starts during the visit would stay in the namespace.
   */
  readonly netns?: string;
}

/** `PATH` for tests: an ordinary user's own often lacks the directories of ip, nft and iptables. */
export const TEST_PATH = `${process.env.PATH ?? ''}:/usr/local/sbin:/usr/sbin:/sbin`;

/** Runs a program and waits for it; throws only if it cannot start or outlives its deadline. */
export async function run(argv: readonly string[], options: RunOptions = {}): Promise<Finished> {
  const timeoutMs = options.timeoutMs ?? deadline(30_000);
  const child = options.netns === undefined ? spawn(argv, options) : spawnIn(options.netns, argv, options);
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    child.kill('SIGKILL');
  }, timeoutMs);
  try {
    // A grandchild may hold the pipes open after the program itself was killed: exit decides, then the pipes get a moment.
    const output = Promise.all([child.stdout.text(), child.stderr.text()]);
    await child.exited;
    const [stdout, stderr] = await (late
      ? Promise.race([output, Bun.sleep(500).then(() => ['', ''])])
      : output);
    if (late) throw new Error(`Cannot finish "${argv.join(' ')}" within ${timeoutMs} ms: ${stdout}${stderr}`);
    return {
      exitCode: child.exitCode ?? 128 + (os.constants.signals[child.signalCode as NodeJS.Signals] ?? 0),
      stdout: stdout ?? '',
      stderr: stderr ?? '',
    };
  } finally {
    clearTimeout(timer);
  }
}

type Child = Bun.Subprocess<'ignore' | Uint8Array, 'pipe', 'pipe'>;

// A child is where the thread is that starts it, and that is the calling one.
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

/** Like {@link run}, but a non-zero exit code is an error that shows what the program wrote. */
export async function runOk(argv: readonly string[], options: RunOptions = {}): Promise<Finished> {
  const finished = await run(argv, options);
  if (finished.exitCode === 0) return finished;
  const said = `${finished.stderr}${finished.stdout}`.trim();
  throw new Error(`Cannot run "${argv.join(' ')}": exit code ${finished.exitCode}: ${said}`);
}
