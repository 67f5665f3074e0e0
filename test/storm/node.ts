// How does the driver inside a node start programs and end them, and what runs there besides?

import fs from 'node:fs';
import { stretched } from '../helpers/deadline.ts';
import { socketNamespacesOf } from './socket-namespaces.ts';

/** How a program ended. */
export interface Ended {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly ms: number;
  /** We killed it on purpose. */
  readonly killed: boolean;
  /** It was killed since it outlived its deadline. */
  readonly late: boolean;
}

/** How to start a program. */
export interface RunSpec {
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  /** Kills it on purpose after so long. */
  readonly killMs?: number | undefined;
  readonly deadlineMs?: number;
  /** Its working directory has been deleted. */
  readonly noCwd?: boolean | undefined;
  /** Told of the process once it runs. */
  readonly started?: (pid: number) => void;
}

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
/** What tools and daemons get. */
export const ENVIRONMENT = { PATH, LC_ALL: 'C' } as const;
const DEADLINE_MS = 30_000;
let gone = 0;

/** Runs a program inside the node to its end, or kills it. */
export async function run(argv: readonly string[], spec: RunSpec = {}): Promise<Ended> {
  const started = performance.now();
  const child = Bun.spawn(spec.noCwd ? inDeletedDirectory(argv) : [...argv], {
    cwd: '/',
    env: { ...ENVIRONMENT, ...spec.env },
    stdin: spec.stdin === undefined ? 'ignore' : new TextEncoder().encode(spec.stdin),
    stdout: 'pipe',
    stderr: 'pipe',
  });
  spec.started?.(child.pid);
  let why: 'killed' | 'late' | undefined;
  const end = (reason: 'killed' | 'late') => () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    why = reason;
    child.kill('SIGKILL');
  };
  const timers = [setTimeout(end('late'), stretched(spec.deadlineMs ?? DEADLINE_MS))];
  if (spec.killMs !== undefined) timers.push(setTimeout(end('killed'), spec.killMs));
  const output = Promise.all([child.stdout.text(), child.stderr.text()]);
  await child.exited;
  for (const timer of timers) clearTimeout(timer);
  const ms = performance.now() - started;
  // A process that was left behind may hold the pipes open.
  const [stdout, stderr] = await Promise.race([output, Bun.sleep(2_000).then(() => ['', 'pipes stay open'])]);
  const exitCode = child.exitCode ?? 255;
  const done = { exitCode, stdout: stdout ?? '', stderr: stderr ?? '', ms };
  return { ...done, killed: why === 'killed', late: why === 'late' };
}

/** Runs a tool that must succeed, and returns what it printed. */
export async function tool(argv: readonly string[], stdin?: string): Promise<string> {
  const { exitCode, stdout, stderr } = await run(argv, stdin === undefined ? {} : { stdin });
  if (exitCode === 0) return stdout;
  throw new Error(`Cannot run "${argv.join(' ')}": exit status ${exitCode}: ${stderr}${stdout}`);
}

/** A shell makes the directory and removes it from below itself. */
function inDeletedDirectory(argv: readonly string[]): string[] {
  const dir = `/run/gone-${++gone}`;
  return ['sh', '-c', 'mkdir "$0" && cd "$0" && rmdir "$0" && exec "$@"', dir, ...argv];
}

/** A process of the node. */
export interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly command: string;
  /** It has ended, and its parent does not know yet. */
  readonly zombie: boolean;
}

/** All processes of the node: it has process ids of its own. */
export function processes(): Process[] {
  const pids = fs.readdirSync('/proc').filter(name => /^\d+$/.test(name));
  return pids.flatMap(pid => {
    try {
      const stat = fs.readFileSync(`/proc/${pid}/stat`, 'latin1');
      const [state = '', parent = ''] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const command = fs.readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ').trim();
      return [{ pid: Number(pid), parent: Number(parent), command, zombie: state === 'Z' }];
    } catch {
      return [];
    }
  });
}

/** Sends a signal to one process; it may have ended. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has already ended.
  }
}

/** Waits until it is so, or until the time is over. @returns whether it is so */
export async function waitFor(isSo: () => boolean, withinMs: number, everyMs = 5): Promise<boolean> {
  const giveUpAt = performance.now() + stretched(withinMs);
  while (!isSo()) {
    if (performance.now() > giveUpAt) return false;
    await Bun.sleep(everyMs);
  }
  return true;
}

/** The processes that hold another network namespace than the node's: by a thread in it, a descriptor, or a socket. */
export function holdersOfNamespaces(): string {
  const own = fs.readlinkSync('/proc/self/ns/net');
  const found = processes().flatMap(({ pid, command }) => {
    const threads = linksBelow(pid, 'task', '/ns/net').filter(link => link !== own);
    const open = linksBelow(pid, 'fd', '').filter(link => link.startsWith('net:') && link !== own);
    const sockets = socketNamespacesOf(pid).filter(link => link !== own);
    return [
      ...threads.map(link => `a thread of ${pid} (${command}) is in ${link}`),
      ...open.map(link => `${pid} (${command}) has ${link} open`),
      ...sockets.map(link => `${pid} (${command}) has a socket in ${link}`),
    ];
  });
  return found.length
    ? found.join(', ')
    : 'no thread is in another, no descriptor leads to one, and no socket is in one';
}

function linksBelow(pid: number, kind: 'task' | 'fd', rest: string): string[] {
  try {
    return fs.readdirSync(`/proc/${pid}/${kind}`).flatMap(id => {
      try {
        return [fs.readlinkSync(`/proc/${pid}/${kind}/${id}${rest}`)];
      } catch {
        return [];
      }
    });
  } catch {
    return [];
  }
}
