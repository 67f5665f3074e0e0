// How much of a plugin's output is kept, and how long do we wait for it?

/** Bytes of standard output; more ends the plugin. */
export const MAX_STDOUT_BYTES = 16 * 1024 * 1024;
/** Bytes of standard error that are kept, from its end. */
export const MAX_STDERR_BYTES = 1024 * 1024;
/** After the process has ended, a grandchild may hold its pipes open: stop waiting after this much silence ... */
const QUIET_MS = 250;
/** ... and after this time in any case, even if the grandchild still prints. */
const DRAIN_MS = 1_000;

/** One stream of a process while it is read: keeps its head and reports an overflow; without an overflow handler, keeps its tail. */
export class Output {
  readonly closed: Promise<void>;
  readonly #limit: number;
  readonly #onOverflow: (() => void) | undefined;
  #chunks: Uint8Array[] = [];
  #size = 0;
  #received = 0;

  constructor(stream: NodeJS.ReadableStream, limit: number, onOverflow?: () => void) {
    this.#limit = limit;
    this.#onOverflow = onOverflow;
    stream.on('data', (chunk: Buffer) => this.#push(chunk));
    this.closed = new Promise(resolve => {
      for (const end of ['end', 'close', 'error']) stream.on(end, () => resolve());
    });
  }

  /** Bytes so far. */
  get received(): number {
    return this.#received;
  }

  #push(chunk: Uint8Array): void {
    const limit = this.#limit;
    this.#received += chunk.length;
    if (this.#size > limit && this.#onOverflow) return;
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    if (this.#size > limit && this.#onOverflow) this.#onOverflow();
    else if (this.#size > 2 * limit) {
      this.#chunks = [Buffer.concat(this.#chunks).subarray(-limit)];
      this.#size = limit;
    }
  }

  text(): string {
    const all = Buffer.concat(this.#chunks);
    return (this.#onOverflow ? all.subarray(0, this.#limit) : all.subarray(-this.#limit)).toString();
  }
}

/**
 * Waits until all streams of an ended process are closed, but not for a grandchild that holds them open silently.
 * @returns whether they are closed
 */
export async function drain(outputs: readonly Output[]): Promise<boolean> {
  let open = true;
  const closed = Promise.all(outputs.map(output => output.closed)).then(() => {
    open = false;
  });
  // Usually they are already closed, and the event loop only has to report it.
  await turnOfEvents();
  const until = performance.now() + DRAIN_MS;
  for (let before = -1; open && performance.now() < until; ) {
    const received = outputs.reduce((sum, output) => sum + output.received, 0);
    if (received === before) break;
    before = received;
    await quietOr(closed);
    // If this process was busy, the timer fires before the pipes have been read.
    if (open) await turnOfEvents();
  }
  return !open;
}

function turnOfEvents(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve));
}

/** A race with a timer. node:timers/promises would be one more module to load for every chain. */
async function quietOr(closed: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const quiet = new Promise<void>(resolve => {
    timer = setTimeout(resolve, QUIET_MS);
  });
  await Promise.race([closed, quiet]);
  clearTimeout(timer);
}

/** Sends a signal to the process group of a leader, if a process id is given. A missing group is ignored. */
export function signalGroup(leader: number | undefined, signal: NodeJS.Signals): void {
  if (leader === undefined) return;
  try {
    process.kill(-leader, signal);
  } catch {
    // The group has no process left.
  }
}
