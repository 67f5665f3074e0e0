// What do a runner and a worker say to each other?
import type { KernelTransaction } from '../chain/exec-plugin.ts';

/**
 * Argument with which our executable becomes a worker: a process that serves the calls of any of its links one after
 * the other, each from a line on standard input to a line on standard output.
 */
export const WORKER_FLAG = '--worker';

/** Further argument of a worker that will serve many chains: its code is worth being compiled. */
export const STAY_FLAG = '--stay';

/** What a runner asks of a worker. */
export type WorkerRequest =
  | { readonly call: LinkCall }
  /** Deletes devices of the host, those that are gone already excepted. */
  | { readonly remove: readonly number[] }
  /** Gives memory back that calls have left: nobody is waiting. */
  | { readonly rest: true }
  /** Does what the links of a chain have put off; their devices are deleted here unless they are gone. */
  | { readonly finish: string; readonly removed: boolean; readonly noted?: boolean | undefined };

/** One call of a link: what its own process would get. */
export interface LinkCall {
  readonly link: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Standard input. */
  readonly request: string;
  /** Working directory, which relative paths of a configuration start from; the worker's own unless given. */
  readonly cwd?: string | undefined;
  /** Names the run of a chain that it belongs to: what its links put off is finished together. */
  readonly chain: string;
  /** Names the call among those of its runner. */
  readonly id: number;
  /**
   * It was sent before the call of this name was answered: that one's result becomes its `prevResult`, and when that one
   * failed, it is not made.
   */
  readonly follows?: number | undefined;
  /** Tell what it did in the kernel. */
  readonly noted?: boolean | undefined;
}

/** What a process of its own would leave behind. */
export interface WorkerReply {
  readonly exitCode: number;
  readonly stdout: string;
  /** Log lines; what is written to standard error past the log comes there. */
  readonly stderr: string;
  /** Indexes of the host's devices that the chain wants gone before what it has put off is done; DEL and GC only. */
  readonly removals?: readonly number[];
  /** It was not made, because the call in front of it failed. */
  readonly skipped?: boolean;
  /** What was done in the kernel, when that was asked. */
  readonly transactions?: readonly KernelTransaction[];
}

/** A message as a line. JSON escapes every line break, so that one ends a message and nothing else does. */
export function toLine(message: WorkerRequest | WorkerReply): string {
  return `${JSON.stringify(message)}\n`;
}

/** Splits what arrives into lines, whatever its pieces are. */
export class LineSplitter {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  #pieces: string[] = [];

  /** @returns the lines that this piece ends, without their ends */
  push(piece: Uint8Array): string[] {
    const text = this.#decoder.decode(piece, { stream: true });
    const end = text.lastIndexOf('\n');
    if (end < 0) {
      this.#pieces.push(text);
      return [];
    }
    const whole = this.#pieces.join('') + text.slice(0, end);
    this.#pieces = [text.slice(end + 1)];
    return whole.split('\n');
  }
}
