// How does a test get a daemon that serves one fake host?
import { existsSync } from 'node:fs';
import { CATENA } from './catena.ts';
import { directories, type Lab } from './netns.ts';

/** A daemon inside the fake host, whose run directory is the lab's. */
export interface Daemon {
  readonly pid: number;
  readonly socket: string;
  /** Asks over HTTP. */
  fetch(path: string, init?: RequestInit): Promise<Response>;
  /** Asks it to end, and waits for that. @returns its exit code */
  stop(): Promise<number>;
}

/** Starts one and waits until it listens; the lab ends it at the latest. */
export async function startDaemon(lab: Lab, ...args: string[]): Promise<Daemon> {
  const { CATENA_RUN_DIR = '' } = directories(lab.tmp);
  const socket = `${CATENA_RUN_DIR}/catena.sock`;
  const argv = ['env', ...Object.entries(directories(lab.tmp)).map(pair => pair.join('='))];
  const child = lab.start(lab.host, [...argv, CATENA, 'daemon', ...args]);
  const listening = child.stderr.getReader();
  const first = await Promise.race([listening.read(), Bun.sleep(20_000)]);
  const text = first?.value ? new TextDecoder().decode(first.value) : '';
  if (!text.includes('listening') || !existsSync(socket)) {
    throw new Error(`Cannot start the daemon: it said "${text}"`);
  }
  void drain(listening);
  return {
    pid: child.pid,
    socket,
    fetch: (path, init) =>
      fetch(`http://catena${path}`, { ...init, unix: socket, signal: AbortSignal.timeout(30_000) }),
    async stop() {
      child.kill('SIGTERM');
      return child.exited;
    },
  };
}

async function drain(reader: { read(): Promise<{ done: boolean }> }): Promise<void> {
  while (!(await reader.read()).done);
}
