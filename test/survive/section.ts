// What is one part of `npm run survive`?

/** Something that must not go wrong, tried very often. */
export interface Section {
  readonly name: string;
  /** The figure in the last table: `points of failure tried`. */
  readonly counts: string;
  run(form: Form): Promise<Figures>;
}

/** How much is tried. */
export interface Form {
  /** As within `npm test`: a sample. */
  readonly short: boolean;
  /** Tells the reader how far it is. */
  readonly say: (line: string) => void;
}

/** What came of it. */
export interface Figures {
  readonly tried: number;
  /** A table of its own, for the reader. */
  readonly table: string;
  /** Everything that was lost, left behind, or not as somebody was told. */
  readonly wrong: readonly string[];
}
