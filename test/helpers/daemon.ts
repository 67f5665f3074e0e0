// How does a test get a daemon that serves one fake host?

import { existsSync } from 'node:fs';
import { CATENA } from './catena.ts';
import { directories, type Lab } from './netns.ts';
import { until } from './until.ts';

/** A daemon inside the fake host, with the lab's run directory. */
export interface Daemon {
  readonly pid: number;
  readonly socket: string;
  /** Its exit code, once it has ended. */
  readonly exited: Promise<number>;
  /** Its standard error so far. */
  said(): string;
  /** Sends a request over HTTP. */
  fetch(path: string, init?: RequestInit): Promise<Response>;
  /** Asks it to end, and waits for that. @returns its exit code */
  stop(): Promise<number>;
}

/** Starts one and waits until it listens; it is ended with the lab at the latest. */
export function startDaemon(lab: Lab, ...args: string[]): Promise<Daemon> {
  return startDaemonIn(lab, process.cwd(), ...args);
}

/** The same, with the given working directory. */
export function startDaemonIn(lab: Lab, cwd: string, ...args: string[]): Promise<Daemon> {
  return startDaemonWith(lab, { cwd }, ...args);
}

/** The same, with further variables of the environment. */
export async function startDaemonWith(
  lab: Lab,
  { cwd = process.cwd(), env = {} }: { cwd?: string; env?: Readonly<Record<string, string>> },
  ...args: string[]
): Promise<Daemon> {
  const { CATENA_RUN_DIR = '' } = directories(lab.tmp);
  const socket = `${CATENA_RUN_DIR}/catena.sock`;
  const variables = Object.entries({ ...directories(lab.tmp), ...env }).map(pair => pair.join('='));
  const argv = ['env', `--chdir=${cwd}`, ...variables];
  const child = lab.start(lab.host, [...argv, CATENA, 'daemon', ...args]);
  let text = '';
  let hasEnded = false;
  void drain(child.stderr.getReader(), more => {
    text += more;
  }).finally(() => {
    hasEnded = true;
  });
  // What it says first may come in parts, and need not be that.
  const isListening = () => text.includes('listening') && existsSync(socket);
  await until(() => isListening() || hasEnded).catch(() => undefined);
  if (!isListening()) throw new Error(`Cannot start the daemon: it said "${text}"`);
  return {
    pid: child.pid,
    socket,
    exited: child.exited,
    said: () => text,
    fetch: (path, init) =>
      fetch(`http://catena${path}`, { ...init, unix: socket, signal: AbortSignal.timeout(30_000) }),
    async stop() {
      child.kill('SIGTERM');
      return child.exited;
    },
  };
}

async function drain(
  reader: { read(): Promise<{ done: boolean; value?: Uint8Array | undefined }> },
  take: (text: string) => void,
): Promise<void> {
  const decoder = new TextDecoder();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    take(decoder.decode(value, { stream: true }));
  }
}
