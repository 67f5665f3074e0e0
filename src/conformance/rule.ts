// What is a rule of the protocol, and what outcomes can it have?
import type { AnswerOf } from '../answers/kinds.ts';
import type { ErrorCode } from '../cni/errors.ts';
import { quote } from '../cni/json.ts';
import type { Reply } from '../testing/call.ts';
import type { Exam } from './exam.ts';

/** What must be given or work before a rule can be examined. */
type Needs = 'nothing' | 'configuration' | 'attachment';

/** One rule, and how it is examined. */
export interface Rule extends Pick<Finding, 'id' | 'title' | 'level' | 'source'> {
  readonly needs: Needs;
  /** Returns when the rule is kept; throws {@link Broken} or {@link Skipped} otherwise. */
  check(exam: Exam): Promise<void> | void;
}

/** What the rules of a table have in common; a row may differ in it. */
interface Usual extends Pick<Rule, 'source' | 'needs'> {
  /** Throws {@link Skipped} when no rule of the table applies. */
  readonly when?: (exam: Exam) => void;
}

/** A rule of a table: `must`, unless it says otherwise. */
export type RuleRow = Pick<Rule, 'id' | 'title' | 'check'> & Partial<Rule>;

/** The rules of a table. */
export function tableOf({ when, ...usual }: Usual, rows: readonly RuleRow[]): Rule[] {
  return rows.map(row => ({
    level: 'must',
    ...usual,
    ...row,
    async check(exam) {
      when?.(exam);
      await row.check(exam);
    },
  }));
}

/** The findings of an examination. */
export type Report = AnswerOf<'Conformance'>;
/** The outcome of one rule. */
export type Finding = Report['rules'][number];

/** The rule is broken; the message says what was observed. */
export class Broken extends Error {}

/** The rule does not apply, or cannot be examined here; the message says why. */
export class Skipped extends Error {}

/** Ends the examination of a rule unless the condition holds. */
export function insist(condition: unknown, seen: string): asserts condition {
  if (!condition) throw new Broken(seen);
}

/** Nothing may be wrong. @param wrong each with what is wrong */
export function insistNone(wrong: readonly string[]): void {
  insist(!wrong.length, wrong.join('; '));
}

/** Ends the examination of a rule that does not apply. */
export function skipUnless(condition: unknown, why: string): asserts condition {
  if (!condition) throw new Skipped(why);
}

/** The plugin must have succeeded. */
export function insistOk(reply: Reply, what: string): void {
  insist(reply.exitCode === 0, `${what}: ${describeReply(reply)}`);
}

/** The plugin must have failed with one of the codes; any code when none is given. */
export function insistError(
  reply: Reply,
  what: string,
  ...codes: (typeof ErrorCode)[keyof typeof ErrorCode][]
): void {
  insist(reply.exitCode !== 0, `${what}: it succeeds`);
  insist(reply.error, `${what}: ${describeReply(reply)}`);
  const { code } = reply.error;
  const expected = `expected ${codes.join(' or ')}`;
  insist(
    !codes.length || (codes as number[]).includes(code),
    `${what}: ${describeReply(reply)}, ${expected}`,
  );
}

/** A short description of a reply. */
export function describeReply({ exitCode, error, stdout, stderr }: Reply): string {
  if (exitCode === 0) return stdout === '' ? 'success' : `success, and prints ${quoteLine(stdout)}`;
  if (error) {
    const details = error.details ? ` (${quoteLine(error.details)})` : '';
    return `code ${error.code} ${quoteLine(error.msg)}${details}`;
  }
  const said = stdout.trim() || stderr.trim();
  return `exit status ${exitCode} without an error object${said === '' ? '' : `, output: ${quoteLine(said)}`}`;
}

function quoteLine(text: string): string {
  return quote(text.trim().replace(/\s+/g, ' '), 200);
}
