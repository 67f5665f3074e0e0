// How are findings rendered, for people and for programs?
import { COLOUR, type Style } from '../lab/paint.ts';
import type { Finding, Report } from './rule.ts';
import type { Subject } from './subject.ts';

const COLOURS = { kept: 32, broken: 31, skipped: 90 } as const;
const ID_WIDTH = 31;

/** The executable and how it is examined. */
export function renderHeading({ executable, conf, chained }: Omit<Subject, 'watch'>): string {
  const how = chained ? ', as a chained plugin' : '';
  return conf ? `${executable}${how}\n` : `${executable}, without a configuration (--conf or --from)\n`;
}

/** One rule as one line of the table, followed by what was observed. */
export function renderFinding(
  { id, title, level, source, outcome, details }: Finding,
  { colour }: Style,
): string {
  const word = outcome.padEnd(7);
  const painted = colour ? `${COLOUR}${COLOURS[outcome]}m${word}${COLOUR}0m` : word;
  const line = `${painted}  ${level.padEnd(6)}  ${id.padEnd(ID_WIDTH)}  ${title}\n`;
  if (details === undefined) return line;
  return `${line}${' '.repeat(17)}${outcome === 'broken' ? `${source}; seen: ` : ''}${details}\n`;
}

/** The last line: the number of each outcome. */
export function renderVerdict({ rules, calls, ok }: Pick<Report, 'rules' | 'calls' | 'ok'>): string {
  const number = (outcome: Finding['outcome'], level?: string) =>
    rules.filter(one => one.outcome === outcome && (level === undefined || one.level === level)).length;
  const broken = `${number('broken', 'must')} must and ${number('broken', 'should')} should`;
  const counts = `kept ${number('kept')}, broken ${broken}, skipped ${number('skipped')}`;
  return `${ok ? 'conforms' : 'does not conform'}: ${counts}; ${calls} calls\n`;
}
