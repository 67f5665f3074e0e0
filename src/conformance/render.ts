// How are findings rendered, for people and for programs?
import type { AnswerOf } from '../answers/kinds.ts';
import { defined } from '../cni/defined.ts';
import { COLOUR } from '../lab/paint.ts';
import type { Report } from './examine.ts';
import type { Finding } from './rule.ts';
import type { Subject } from './subject.ts';

/** The input of the last line. */
export interface Verdict extends Pick<Report, 'calls' | 'ok'> {
  readonly findings: readonly {
    readonly rule: Pick<Finding['rule'], 'level'>;
    readonly outcome: Finding['outcome'];
  }[];
}

/** Whether to use colours. */
export interface Style {
  readonly colour: boolean;
}

const COLOURS = { kept: 32, broken: 31, skipped: 90 } as const;
const ID_WIDTH = 31;

/** The executable and how it is examined. */
export function renderHeading({ executable, conf, chained }: Omit<Subject, 'watch'>): string {
  const how = chained ? ', as a chained plugin' : '';
  return conf ? `${executable}${how}\n` : `${executable}, without a configuration (--conf or --from)\n`;
}

/** One rule as one line of the table, followed by what was observed. */
export function renderFinding({ rule, outcome, details }: Finding, { colour }: Style): string {
  const word = outcome.padEnd(7);
  const painted = colour ? `${COLOUR}${COLOURS[outcome]}m${word}${COLOUR}0m` : word;
  const line = `${painted}  ${rule.level.padEnd(6)}  ${rule.id.padEnd(ID_WIDTH)}  ${rule.title}\n`;
  if (details === undefined) return line;
  return `${line}${' '.repeat(17)}${outcome === 'broken' ? `${rule.source}; seen: ` : ''}${details}\n`;
}

/** The last line: the number of each outcome. */
export function renderVerdict({ findings, calls, ok }: Verdict): string {
  const number = (outcome: Finding['outcome'], level?: string) =>
    findings.filter(one => one.outcome === outcome && (level === undefined || one.rule.level === level))
      .length;
  const broken = `${number('broken', 'must')} must and ${number('broken', 'should')} should`;
  const counts = `kept ${number('kept')}, broken ${broken}, skipped ${number('skipped')}`;
  return `${ok ? 'conforms' : 'does not conform'}: ${counts}; ${calls} calls\n`;
}

/** The whole report as one JSON object. */
export function reportToJson({ executable, versions, findings, ok, calls }: Report): AnswerOf<'Conformance'> {
  return {
    executable,
    ok,
    supportedVersions: versions,
    calls,
    rules: findings.map(({ rule: { id, title, level, source }, outcome, details }) => ({
      id,
      title,
      level,
      source,
      outcome,
      ...defined({ details }),
    })),
  };
}
