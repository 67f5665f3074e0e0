// Which messages do the starter of a soak and its worker exchange?

import fs from 'node:fs';

/** The worker's instructions, as JSON in its first argument. */
export interface Order {
  /** A conflist as in a file. */
  readonly list: { readonly plugins: readonly object[] } & Readonly<Record<string, unknown>>;
  readonly pluginDirs: readonly string[];
  readonly cacheDir: string;
  readonly tuningDir: string;
  /** Paths of namespaces, which are reused. */
  readonly namespaces: readonly string[];
  /** How many attachments come and go. */
  readonly lives: number;
  readonly sampleEvery: number;
  /** Whether the chain maps ports. */
  readonly ports: boolean;
  /** Whether attachments without DEL at least have a record: tuning's GC cannot find them otherwise. */
  readonly keepsRecords: boolean;
}

/** Calls so far, and the problems found. */
export interface Tally {
  ADD: number;
  CHECK: number;
  DEL: number;
  GC: number;
  /** ADDs that had to fail. */
  failing: number;
  /** Attachments without a DEL, left to GC. */
  abandoned: number;
  readonly problems: string[];
}

/** One line of the worker's standard output. */
export interface Sample extends Tally {
  /** Lives so far, or `end`. */
  readonly lives: string;
  readonly descriptors: number;
  readonly memoryMb: number;
  readonly children: number;
}

/** Writes one line immediately. */
export function sayLine(sample: Sample): void {
  fs.writeSync(1, `${JSON.stringify(sample)}\n`);
}
