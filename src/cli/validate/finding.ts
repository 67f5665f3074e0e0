// What is a finding, and how is it shown?
import { tryRead } from '../../files/read-file.ts';
import { type Colour, count, painter, type Style } from '../../lab/words.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { excerptOf } from '../terminal/lines.ts';

type Shown = AnswerOf<'Validation'>['findings'][number];

/** `error`: the conflist does not load, or ADD fails. `warning`: it runs, but probably not as intended. */
export type Severity = Shown['severity'];

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
export interface Finding extends Shown {
  readonly rule: Rule;
}

/** The number of checked files, and the findings sorted by file and position. */
export interface Report {
  readonly files: number;
  readonly findings: readonly Finding[];
}

export function countFindings({ findings }: Report): Record<Severity, number> {
  const of = (severity: Severity) => findings.filter(one => one.severity === severity).length;
  return { error: of('error'), warning: of('warning') };
}

const HUES: Readonly<Record<Severity, Colour>> = { error: 'red', warning: 'yellow' };

/** Columns where the output is no terminal. */
const PLAIN = 100;

/**
 * For each finding `file:line:column: error: message [rule]`, the format that editors understand, with the line that it is about and
 * a caret below the value. Then a line with the totals.
 * @param width columns of the terminal, if there is one
 */
export function renderValidation(report: Report, { colour }: Style, width = PLAIN): string {
  const paint = painter({ colour });
  // One that cannot be read now has no lines.
  const linesOf = remembering((file: string): readonly string[] => tryRead(file)?.split('\n') ?? []);
  const lines = report.findings.flatMap(finding => {
    const { file, line, column, severity, rule, message, details = [] } = finding;
    const isAboutFile = rule === 'unreadable' || rule === 'file-name';
    const text = isAboutFile ? undefined : linesOf(file)[line - 1];
    const excerpt = text === undefined ? [] : excerptOf({ text, line, column, width });
    return [
      `${file}:${line}:${column}: ${paint(HUES[severity], severity)}: ${message} [${rule}]`,
      ...details.map(detail => `    ${detail}`),
      ...excerpt.map((one, i) => (i === 0 ? one : paint(HUES[severity], one))),
    ];
  });
  const { error, warning } = countFindings(report);
  const found =
    error + warning === 0 ? 'no problems' : `${count(error, 'error')}, ${count(warning, 'warning')}`;
  return [...lines, `${found} in ${count(report.files, 'file')}`, ''].join('\n');
}

/** The function, which is called once for each argument. */
export function remembering<T>(look: (of: string) => T): (of: string) => T {
  const known = new Map<string, T>();
  return of => {
    const found = known.get(of) ?? look(of);
    known.set(of, found);
    return found;
  };
}
