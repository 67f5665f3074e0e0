// What is a finding, and how does a reader see it?

/** `error`: the list does not load or ADD fails; `warning`: it runs, but hardly as it was meant. */
export type Severity = 'error' | 'warning';

/** What a finding is about; stable, for those who filter. */
export type Rule =
  | 'unreadable'
  | 'syntax'
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

/** Something that is wrong at a place; line and column count from 1. */
export interface Finding {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly severity: Severity;
  readonly rule: Rule;
  readonly message: string;
  /** Further lines, such as the versions that each link supports. */
  readonly details?: readonly string[];
}

/** What was looked at, and what was found, by file and place. */
export interface Report {
  readonly files: number;
  readonly findings: readonly Finding[];
}

/** How many findings there are of each severity. */
export function countFindings({ findings }: Report): Record<Severity, number> {
  const of = (severity: Severity) => findings.filter(one => one.severity === severity).length;
  return { error: of('error'), warning: of('warning') };
}

/** `file:line:column: error: message [rule]` for each, as editors understand it, and a line that counts them. */
export function renderReport(report: Report): string {
  const lines = report.findings.flatMap(({ file, line, column, severity, rule, message, details = [] }) => [
    `${file}:${line}:${column}: ${severity}: ${message} [${rule}]`,
    ...details.map(detail => `    ${detail}`),
  ]);
  const { error, warning } = countFindings(report);
  const found =
    error + warning === 0 ? 'nothing wrong' : `${plural(error, 'error')}, ${plural(warning, 'warning')}`;
  return [...lines, `${found} in ${plural(report.files, 'file')}`, ''].join('\n');
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
