// Are invalid configurations refused, and those of a version that does not have the command?
import { ErrorCode } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { atLeast, SINCE, type SpecVersion } from '../../cni/version.ts';
import type { Exam } from '../exam.ts';
import { describeReply, insist, insistError, type Rule, skipUnless } from '../rule.ts';
import { confOf } from '../subject.ts';

const ERRORS = 'SPEC: Error';
const NO_JSON = ['', '{', '[]', '"text"', '{"name": "a"} {"name": "b"}', 'name: a'];
const BAD_NAMES = ['../escape', '-begins', 'has space', 'has/slash'];

/** Rules about standard input. */
export const REQUEST_RULES: readonly Rule[] = [
  {
    id: 'request/not-json',
    title: 'input that is not one JSON object is rejected with code 6',
    level: 'must',
    source: ERRORS,
    needs: 'nothing',
    async check(exam) {
      for (const conf of NO_JSON) {
        const what = `standard input ${JSON.stringify(conf)}`;
        insistError(await exam.ask('ADD', { conf }), what, ErrorCode.decodingFailure);
      }
    },
  },
  {
    id: 'request/no-name',
    title: 'a configuration without a name is rejected with code 7',
    level: 'must',
    source: ERRORS,
    needs: 'nothing',
    async check(exam) {
      for (const name of [undefined, '']) {
        insistError(await addWith(exam, { name }), `name ${JSON.stringify(name)}`, ErrorCode.invalidConfig);
      }
    },
  },
  {
    id: 'request/bad-name',
    title: 'an invalid network name is rejected with code 7',
    level: 'must',
    source: 'SPEC: Configuration format',
    needs: 'nothing',
    async check(exam) {
      for (const name of BAD_NAMES) {
        insistError(await addWith(exam, { name }), `name ${JSON.stringify(name)}`, ErrorCode.invalidConfig);
      }
    },
  },
  {
    id: 'request/version',
    title: 'an unsupported version is rejected with code 1',
    level: 'must',
    source: ERRORS,
    needs: 'nothing',
    async check(exam) {
      for (const cniVersion of ['9.9.9', '1.0', 'nonsense']) {
        const what = `cniVersion ${JSON.stringify(cniVersion)}`;
        // A text that is not a version at all may also count as undecodable.
        const codes = [
          ErrorCode.incompatibleVersion,
          ...(cniVersion === 'nonsense' ? [ErrorCode.decodingFailure] : []),
        ];
        insistError(await addWith(exam, { cniVersion }), what, ...codes);
      }
    },
  },
  {
    id: 'request/version-names-supported',
    title: 'that error names the supported versions',
    level: 'should',
    source: 'reference skeleton',
    needs: 'nothing',
    async check(exam) {
      const reply = await addWith(exam, { cniVersion: '9.9.9' });
      const said = `${reply.error?.msg} ${reply.error?.details ?? ''}`;
      insist(
        exam.versions.every(version => said.includes(version)),
        describeReply(reply),
      );
    },
  },
  {
    id: 'request/version-type',
    title: 'a cniVersion that is not a string is rejected with code 6',
    level: 'should',
    source: 'reference skeleton',
    needs: 'nothing',
    async check(exam) {
      insistError(await addWith(exam, { cniVersion: 1 }), 'cniVersion 1', ErrorCode.decodingFailure);
    },
  },
  gate('CHECK', SINCE.check, '0.3.1'),
  gate('GC', SINCE.gc, '1.0.0'),
  gate('STATUS', SINCE.status, '1.0.0'),
];

/** The command must be refused for a configuration of a version that does not have it. */
function gate(verb: 'CHECK' | 'GC' | 'STATUS', since: SpecVersion, older: SpecVersion): Rule {
  return {
    id: `request/gate-${verb.toLowerCase()}`,
    title: `${verb} is rejected for versions before ${since}`,
    level: 'must',
    source: `SPEC: ${verb}`,
    needs: 'nothing',
    async check(exam) {
      skipUnless(exam.versions.includes(older), `it does not support ${older}`);
      const known = exam.versions.some(version => atLeast(version, since));
      // A plugin that never supported the command may treat it as unknown.
      const codes = [ErrorCode.incompatibleVersion, ...(known ? [] : [ErrorCode.invalidEnvironment])];
      const reply = await exam.ask(verb, { conf: confOf(exam.subject, older) });
      insistError(reply, `${verb} with ${older}`, ...codes);
    },
  };
}

function addWith(exam: Exam, changes: JsonObject) {
  return exam.ask('ADD', { conf: { ...confOf(exam.subject, exam.version), ...changes } });
}
