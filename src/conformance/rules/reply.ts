// Did every reply of the whole examination conform to the protocol?
import { ErrorCode } from '../../cni/errors.ts';
import { isObject, type JsonObject, tryParse } from '../../cni/json.ts';
import type { Exam, Recorded } from '../exam.ts';
import { describeReply, insist, type Rule } from '../rule.ts';

const ERROR = 'SPEC: Error';

/** Rules examined last, about all calls of the examination. */
export const REPLY_RULES: readonly Rule[] = [
  {
    id: 'reply/only-protocol',
    title: 'standard output contains one JSON object, or nothing',
    level: 'must',
    source: 'SPEC: Overview',
    needs: 'nothing',
    check: exam =>
      forAll(exam, ({ reply }) => reply.stdout.trim() === '' || isObject(tryParse(reply.stdout))),
  },
  {
    id: 'reply/failure-has-error',
    title: 'a failure has a non-zero exit status and an error object on standard output',
    level: 'must',
    source: ERROR,
    needs: 'nothing',
    check: exam =>
      forAll(exam, ({ reply, late }) => {
        const printed = tryParse(reply.stdout);
        const isError = isObject(printed) && typeof printed.code === 'number' && 'msg' in printed;
        return late || (reply.exitCode === 0 ? !isError : isError);
      }),
  },
  {
    id: 'reply/error-form',
    title: 'code is a non-negative number, msg and details are strings',
    level: 'must',
    source: ERROR,
    needs: 'nothing',
    check: exam =>
      forAllErrors(exam, ({ code, msg, details }) => {
        const numbered = typeof code === 'number' && Number.isInteger(code) && code >= 0;
        return (
          numbered &&
          typeof msg === 'string' &&
          msg !== '' &&
          ['string', 'undefined'].includes(typeof details)
        );
      }),
  },
  {
    id: 'reply/error-code',
    title: 'codes below 100 are defined by the specification',
    level: 'should',
    source: ERROR,
    needs: 'nothing',
    check: exam =>
      forAllErrors(
        exam,
        ({ code }) => Number(code) >= 100 || (Object.values(ErrorCode) as unknown[]).includes(code),
      ),
  },
  {
    id: 'reply/error-version',
    title: 'an error has the cniVersion of the configuration',
    level: 'should',
    source: ERROR,
    needs: 'nothing',
    check: exam =>
      forAllErrors(exam, ({ code, cniVersion }, { request }) => {
        const asked = tryParse(request);
        const given = isObject(asked) ? asked.cniVersion : undefined;
        // Problems with the environment are found before the configuration is read.
        return code === ErrorCode.invalidEnvironment || typeof given !== 'string' || cniVersion === given;
      }),
  },
  {
    id: 'reply/quiet',
    title: 'CHECK, DEL, GC and STATUS print nothing when they succeed',
    level: 'should',
    source: 'SPEC: Success',
    needs: 'nothing',
    check: exam =>
      forAll(
        exam,
        ({ verb, reply }) =>
          reply.exitCode !== 0 ||
          !['CHECK', 'DEL', 'GC', 'STATUS'].includes(verb) ||
          reply.stdout.trim() === '',
      ),
  },
  {
    id: 'process/ends',
    title: 'every call ends before its deadline',
    level: 'must',
    source: 'SPEC: Overview',
    needs: 'nothing',
    check(exam) {
      const late = exam.calls.find(call => call.late);
      insist(!late, `${late?.verb} was still running after ${exam.subject.deadlineMs} ms`);
    },
  },
  {
    id: 'process/leaves-none',
    title: 'no process is left running',
    level: 'must',
    source: 'SPEC: Overview',
    needs: 'nothing',
    check(exam) {
      const found = exam.calls.find(({ running }) => running.length);
      insist(!found, `${found?.verb} leaves ${found?.running.join(', ')}`);
    },
  },
];

function forAll(exam: Exam, isRight: (call: Recorded) => boolean): void {
  const wrong = exam.calls.find(call => !isRight(call));
  insist(!wrong, wrong ? `${wrong.verb || 'no CNI_COMMAND'}: ${describeWhole(wrong)}` : '');
}

function forAllErrors(exam: Exam, isRight: (error: JsonObject, call: Recorded) => boolean): void {
  forAll(exam, call => {
    const printed = call.reply.exitCode === 0 ? undefined : tryParse(call.reply.stdout);
    return !isObject(printed) || isRight(printed, call);
  });
}

function describeWhole({ reply }: Recorded): string {
  const printed = JSON.stringify(reply.stdout.trim().replace(/\s+/g, ' ').slice(0, 200));
  return reply.error === undefined && reply.exitCode !== 0 ? describeReply(reply) : `prints ${printed}`;
}
