// How are the findings of `catena validate` shown to people?
import { readFileSync } from 'node:fs';
import { type Colour, painter, type Style } from '../../lab/words.ts';
import { excerptOf } from '../terminal/lines.ts';
import { countFindings, type Finding, type Report, type Severity } from './finding.ts';

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
  const linesOf = reader();
  const lines = report.findings.flatMap(finding => {
    const { file, line, column, severity, rule, message, details = [] } = finding;
    const text = isPlaced(finding) ? linesOf(file)[line - 1] : undefined;
    const excerpt = text === undefined ? [] : excerptOf({ text, line, column, width });
    return [
      `${file}:${line}:${column}: ${paint(HUES[severity], severity)}: ${message} [${rule}]`,
      ...details.map(detail => `    ${detail}`),
      ...excerpt.map((one, i) => (i === 0 ? one : paint(HUES[severity], one))),
    ];
  });
  const { error, warning } = countFindings(report);
  const found =
    error + warning === 0 ? 'no problems' : `${plural(error, 'error')}, ${plural(warning, 'warning')}`;
  return [...lines, `${found} in ${plural(report.files, 'file')}`, ''].join('\n');
}

/** Whether the finding is about a place in the text, and not about the file. */
function isPlaced({ rule }: Finding): boolean {
  return rule !== 'unreadable' && rule !== 'file-name';
}

/** Reads each file once. One that cannot be read now has no lines. */
function reader(): (file: string) => readonly string[] {
  const known = new Map<string, readonly string[]>();
  return file => {
    const lines = known.get(file) ?? read(file);
    known.set(file, lines);
    return lines;
  };
}

function read(file: string): readonly string[] {
  try {
    return readFileSync(file, 'utf8').split('\n');
  } catch {
    return [];
  }
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
