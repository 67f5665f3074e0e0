// In what do our links differ from the reference's on purpose, and why?

import type { Finding } from './compare.ts';

/** The two halves of the table. */
export type TableName = 'links' | 'chains';

/** A difference that may occur; it explains a finding when all that it names fits. */
export interface Difference {
  /** Fits the place: `ADD/host/link/br0/mtu`; steps that fail on both sides read `ADD (fails)`. */
  readonly path: RegExp;
  /** Fits the row's name; default every row. */
  readonly rows?: RegExp;
  readonly when?: (finding: Finding) => boolean;
  readonly reason: string;
  /** Where the reference's behaviour is described: the quirk's number in the notes on it, or its version. */
  readonly quirk?: string;
  /** The half in which it has to occur at least once; default both. */
  readonly in?: TableName;
}

/** Every one has to occur, and nothing else may. */
export const DIFFERENCES: readonly Difference[] = [];
