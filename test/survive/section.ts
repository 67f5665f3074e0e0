// What is one part of `npm run survive`?

/** Something that must never fail, tried very often. */
export interface Section {
  readonly name: string;
  /** Caption of the figure in the last table: `points of failure tried`. */
  readonly counts: string;
  run(form: Form): Promise<Figures>;
}

/** How much is tried. */
export interface Form {
  /** As part of `npm run test:all`: only a sample. */
  readonly short: boolean;
  /** Reports progress to the reader. */
  readonly say: (line: string) => void;
}

/** The outcome. */
export interface Figures {
  readonly tried: number;
  /** A table of its own, for the reader. */
  readonly table: string;
  /** Everything that was lost, leaked, or different from the state reported to the caller. */
  readonly wrong: readonly string[];
}
