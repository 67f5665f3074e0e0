// Which data do the machine and its guest exchange?

/** The guest's instructions. */
export interface Plan {
  /** The repository: the guest sees it under the same path. */
  readonly root: string;
  readonly runs: readonly FileRun[];
  /** How many times longer the tests' deadlines are. */
  readonly slowness: number;
}

/** One test file, or the benchmark. */
export interface FileRun {
  readonly file: string;
  /** Arguments of the benchmark, which is the file then. */
  readonly bench?: readonly string[];
  /** A pattern for the titles of tests; default all. */
  readonly only?: string;
}

/** The outcome of one test file; a line of JSON on the guest's second serial port. */
export interface FileReport {
  readonly file: string;
  readonly exitCode: number;
  readonly seconds: number;
  /** The output of the run. */
  readonly output: string;
  /** Bun's report of each test; empty if the run did not get that far. */
  readonly junit: string;
}
