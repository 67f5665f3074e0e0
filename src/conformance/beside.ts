// How does a program run beside the plugin, such as the server that a DHCP client needs?
import { inNetns, type Netns } from '../sys/netns.ts';
import { killGroup } from '../testing/run-in.ts';

/** Time until it is ready. */
const READY_MS = 10_000;

/** A program that runs until it is ended. */
export interface Beside {
  readonly pid: number;
  /** Ends it, with everything that it has started. */
  end(): void;
}

/**
 * Starts an executable in a namespace, and waits until it has written something to its standard error, which says that it is ready.
 * @throws Error with what it wrote when it ended instead, or was not ready in time
 */
export async function startBeside(executable: string, netns: Netns): Promise<Beside> {
  const child = inNetns(netns, () =>
    Bun.spawn([executable], {
      env: { PATH: process.env.PATH },
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: 'pipe',
      detached: true,
    }),
  );
  const end = (): void => killGroup(child.pid);
  const timer = setTimeout(end, READY_MS);
  const reader = child.stderr.getReader();
  const { done } = await reader.read();
  clearTimeout(timer);
  if (done) throw new Error(`Cannot use "${executable}": it ended, or wrote nothing to its standard error`);
  void readOn(reader);
  return { pid: child.pid, end };
}

/** Otherwise the program would wait for the pipe to be read. */
async function readOn(reader: { read(): Promise<{ done: boolean }> }): Promise<void> {
  while (!(await reader.read()).done);
}
