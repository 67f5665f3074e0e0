// Which rules of the protocol does an executable keep?

import { describeError } from '../../cni/errors.ts';
import { defined } from '../../cni/json.ts';
import { COLOUR, type Style } from '../words.ts';
import { ADD_RULES, CHAIN_RULES, CHECK_RULES, DEL_RULES, GC_RULES, REFUSE_RULES } from './attachments.ts';
import { ENVIRONMENT_RULES, REPLY_RULES, REQUEST_RULES, VERSION_RULES } from './calls.ts';
import { Broken, Exam, type Finding, type Report, type Rule, Skipped, type Subject } from './exam.ts';

/** Every rule. The rules about all replies come last. */
export const RULES: readonly Rule[] = [
  ...VERSION_RULES,
  ...ENVIRONMENT_RULES,
  ...REQUEST_RULES,
  ...ADD_RULES,
  ...REFUSE_RULES,
  ...CHAIN_RULES,
  ...CHECK_RULES,
  ...DEL_RULES,
  ...GC_RULES,
  ...REPLY_RULES,
];

/**
 * Examines an executable on hosts of its own. They use the machine's file system unless the caller prevents that: if a plugin
 * keeps files, its configuration must say where.
 */
export async function examine(
  subject: Subject,
  tell: (finding: Finding) => void = () => {},
  rules: readonly Rule[] = RULES,
): Promise<Report> {
  const exam = new Exam(subject);
  const findings: Finding[] = [];
  try {
    await exam.begin();
    for (const rule of rules) {
      const finding = await examineRule(exam, rule);
      findings.push(finding);
      tell(finding);
    }
  } finally {
    exam.end();
  }
  const { calls, versions } = exam;
  return {
    executable: subject.executable,
    ok: !findings.some(({ outcome, level }) => outcome === 'broken' && level === 'must'),
    supportedVersions: versions,
    calls: calls.length,
    rules: findings,
  };
}

async function examineRule(exam: Exam, rule: Rule): Promise<Finding> {
  const { id, title, level, source } = rule;
  const find = (outcome: Finding['outcome'], details?: string): Finding => {
    return { id, title, level, source, outcome, ...defined({ details }) };
  };
  const reason = await reasonToSkip(exam, rule);
  if (reason !== undefined) return find('skipped', reason);
  try {
    await rule.check(exam);
    return find('kept');
  } catch (thrown) {
    if (thrown instanceof Broken) return find('broken', thrown.message);
    if (thrown instanceof Skipped) return find('skipped', thrown.message);
    throw new Error(`Cannot examine "${id}": ${describeError(thrown)}`, { cause: thrown });
  }
}

async function reasonToSkip(exam: Exam, { needs }: Rule): Promise<string | undefined> {
  if (needs === 'nothing') return undefined;
  if (exam.subject.conf === undefined) return 'no configuration was given';
  if (needs === 'configuration') return undefined;
  const { added } = await exam.trial();
  return added.exitCode === 0 && added.result ? undefined : 'ADD does not succeed';
}

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
