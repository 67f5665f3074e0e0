// How much of what a plugin prints is kept, and how long is it waited for?

/** Bytes of standard output; more ends the plugin. */
export const MAX_STDOUT_BYTES = 16 * 1024 * 1024;
/** Bytes of standard error, of which the last are kept. */
export const MAX_STDERR_BYTES = 1024 * 1024;
/** The process has ended, but a grandchild holds its pipes open: silence after which nothing more is waited for. */
const QUIET_MS = 250;
/** ... and time after which nothing more is waited for, whatever the grandchild still prints. */
const DRAIN_MS = 1_000;

/** One stream of a process, as it is being read. */
export interface Output {
  readonly closed: Promise<void>;
  /** Bytes so far. */
  readonly received: number;
  text(): string;
}

/** Keeps the head of a stream and reports the overflow, or, without anyone to report to, keeps its tail. */
export class OutputBuffer {
  readonly #limit: number;
  readonly #onOverflow: (() => void) | undefined;
  #chunks: Uint8Array[] = [];
  #size = 0;
  #received = 0;

  constructor(limit: number, onOverflow?: () => void) {
    this.#limit = limit;
    this.#onOverflow = onOverflow;
  }

  get received(): number {
    return this.#received;
  }

  push(chunk: Uint8Array): void {
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
 * Waits until all streams of a process that has ended are closed; not for a grandchild that holds them open without a
 * word. @returns whether they are
 */
export async function drain(outputs: readonly Output[]): Promise<boolean> {
  let open = true;
  const closed = Promise.all(outputs.map(output => output.closed)).then(() => {
    open = false;
  });
  // Nearly always they are closed by now, and only that has to be heard of.
  await turnOfEvents();
  const until = performance.now() + DRAIN_MS;
  for (let before = -1; open && performance.now() < until; ) {
    const received = outputs.reduce((sum, output) => sum + output.received, 0);
    if (received === before) break;
    before = received;
    await quietOr(closed);
    // A process that was busy meanwhile finds the timer due before it has looked at the pipes.
    if (open) await turnOfEvents();
  }
  return !open;
}

function turnOfEvents(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve));
}

/** node:timers/promises would do, but is one more module to load for every chain. */
async function quietOr(closed: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const quiet = new Promise<void>(resolve => {
    timer = setTimeout(resolve, QUIET_MS);
  });
  await Promise.race([closed, quiet]);
  clearTimeout(timer);
}
