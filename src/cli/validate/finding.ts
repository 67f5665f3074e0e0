// What is a finding, and how is it shown?

/** `error`: the conflist does not load, or ADD fails. `warning`: it runs, but probably not as intended. */
export type Severity = 'error' | 'warning';

/** Category of a finding; stable, so that findings can be filtered by it. */
export type Rule =
  | 'unreadable'
  | 'syntax'
  | 'file-name'
  | 'shape'
  | 'option'
  | 'unknown-key'
  | 'reserved-key'
  | 'repeated-key'
  | 'version'
  | 'order'
  | 'capability'
  | 'executable'
  | 'duplicate-name'
  | 'overlap';

/** A problem at a position; line and column count from 1. */
export interface Finding {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly severity: Severity;
  readonly rule: Rule;
  readonly message: string;
  /** Further lines, such as the versions that each plugin supports. */
  readonly details?: readonly string[];
}

/** The number of checked files, and the findings sorted by file and position. */
export interface Report {
  readonly files: number;
  readonly findings: readonly Finding[];
}

/** The number of findings of each severity. */
export function countFindings({ findings }: Report): Record<Severity, number> {
  const of = (severity: Severity) => findings.filter(one => one.severity === severity).length;
  return { error: of('error'), warning: of('warning') };
}
