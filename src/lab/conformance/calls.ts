// Does a plugin answer single calls as the protocol demands: VERSION, its environment, its request, and every reply?
import { ErrorCode } from '../../cni/errors.ts';
import { isObject, type JsonObject, tryParse } from '../../cni/json.ts';
import { atLeast, CURRENT_VERSION, isSpecVersion, SINCE, type SpecVersion } from '../../cni/result.ts';
import {
  confOf,
  describeReply,
  type Exam,
  insist,
  insistError,
  insistOk,
  must,
  type Recorded,
  type Rule,
  type RuleRow,
  SKELETON,
  should,
  skipUnless,
  tableOf,
} from './exam.ts';

const ERROR = 'SPEC: Error';
const FORMAT = 'SPEC: Configuration format';
const OVERVIEW = 'SPEC: Overview';
const PARAMETERS = 'SPEC: Parameters';

/** Rules of VERSION, and of being run by hand. */
export const VERSION_RULES: readonly Rule[] = tableOf({ source: 'SPEC: VERSION', needs: 'nothing' }, [
  must('version/answers', 'VERSION replies with cniVersion and supportedVersions', async exam => {
    const reply = await askVersion(exam);
    insistOk(reply, 'VERSION');
    insist(reply.result, `VERSION: ${describeReply(reply)}`);
    const { cniVersion, supportedVersions } = reply.result;
    insist(typeof cniVersion === 'string' && cniVersion, `"cniVersion" is ${JSON.stringify(cniVersion)}`);
    const wellFormed =
      Array.isArray(supportedVersions) &&
      supportedVersions.length > 0 &&
      supportedVersions.every(one => typeof one === 'string');
    insist(wellFormed, `"supportedVersions" is ${JSON.stringify(supportedVersions)}`);
  }),
  must('version/needs-command-only', 'VERSION requires no variable except CNI_COMMAND', async exam => {
    const names = ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME', 'CNI_ARGS', 'CNI_PATH'];
    const env = Object.fromEntries(names.map(name => [name, undefined]));
    insistOk(await exam.ask('VERSION', { conf: { cniVersion: CURRENT_VERSION }, env }), 'VERSION');
  }),
  should('version/released', 'supportedVersions are released versions without duplicates', async exam => {
    const { result } = await askVersion(exam);
    const listed = Array.isArray(result?.supportedVersions) ? result.supportedVersions : [];
    const odd = listed.filter((one, i) => !isSpecVersion(String(one)) || listed.indexOf(one) !== i);
    insist(!odd.length, `it lists ${odd.map(one => JSON.stringify(one)).join(', ')}`);
  }),
  should('version/current', `the current version, ${CURRENT_VERSION}, is supported`, exam => {
    insist(exam.versions.includes(CURRENT_VERSION), `the newest is ${exam.versions.at(-1) ?? 'none'}`);
  }),
  should('version/echoes', 'the cniVersion of the reply is that of the request', async exam => {
    const asked = exam.versions.find(version => version !== CURRENT_VERSION) ?? '1.0.0';
    const { result } = await exam.ask('VERSION', { conf: { cniVersion: asked } });
    insist(
      result?.cniVersion === asked,
      `asked with ${asked}, it replies with ${JSON.stringify(result?.cniVersion)}`,
    );
  }),
  should('version/without-stdin', 'VERSION works with empty standard input', SKELETON, async exam => {
    insistOk(await exam.ask('VERSION', { conf: '' }), 'VERSION');
  }),
  should(
    'version/about',
    'called without CNI_COMMAND, it describes itself on standard error and succeeds',
    SKELETON,
    async exam => {
      const reply = await exam.ask('', { conf: '' });
      insistOk(reply, 'without CNI_COMMAND');
      insist(reply.stdout === '', `it prints ${JSON.stringify(reply.stdout)} on standard output`);
      insist(/version/i.test(reply.stderr), `standard error: ${JSON.stringify(reply.stderr)}`);
    },
  ),
]);

function askVersion(exam: Exam) {
  return exam.ask('VERSION', { conf: { cniVersion: CURRENT_VERSION } });
}

const CONTAINER_IDS = ['../escape', '-begins', '.begins', 'has space', 'has/slash', 'line\nbreak', 'ü'];
const IFNAMES = ['sixteen-bytes-xx', '.', '..', 'a/b', 'a:b', 'a b'];

export const ENVIRONMENT_RULES: readonly Rule[] = tableOf({ source: ERROR, needs: 'nothing' }, [
  must('env/unknown-command', 'an unknown CNI_COMMAND is rejected with code 4', async exam => {
    for (const command of ['NONSENSE', 'add']) {
      insistError(await exam.ask(command), command, ErrorCode.invalidEnvironment);
    }
  }),
  should(
    'env/unknown-command-text',
    'the message is "unknown CNI_COMMAND: …", which runtimes look for',
    SKELETON,
    async exam => {
      const reply = await exam.ask('NONSENSE');
      insist(reply.error?.msg === 'unknown CNI_COMMAND: NONSENSE', describeReply(reply));
    },
  ),
  missing('add', 'ADD', ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME']),
  missing('check', 'CHECK', ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME']),
  missing('del', 'DEL', ['CNI_CONTAINERID', 'CNI_IFNAME']),
  should('env/missing-all', 'the error names all missing variables', async exam => {
    const names = ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME'];
    await insistNamed(exam, 'ADD', names);
  }),
  must('env/container-id', 'an invalid CNI_CONTAINERID is rejected with code 4', PARAMETERS, async exam => {
    for (const value of CONTAINER_IDS) await insistRefused(exam, 'CNI_CONTAINERID', value);
  }),
  must('env/ifname', 'an invalid CNI_IFNAME is rejected with code 4', PARAMETERS, async exam => {
    for (const value of IFNAMES) await insistRefused(exam, 'CNI_IFNAME', value);
  }),
]);

function missing(name: string, verb: 'ADD' | 'CHECK' | 'DEL', variables: readonly string[]): RuleRow {
  const title = `${verb} without ${variables.join(', ')} is rejected with code 4 and the name`;
  return must(`env/missing-${name}`, title, async exam => {
    const exists = verb !== 'CHECK' || atLeast(exam.version, SINCE.check);
    skipUnless(exists, `it supports no version that has ${verb}`);
    for (const variable of variables) await insistNamed(exam, verb, [variable]);
  });
}

async function insistNamed(exam: Exam, verb: string, names: readonly string[]): Promise<void> {
  const what = `${verb} without ${names.join(', ')}`;
  const reply = await exam.ask(verb, { env: Object.fromEntries(names.map(name => [name, undefined])) });
  insistError(reply, what, ErrorCode.invalidEnvironment);
  const said = `${reply.error?.msg} ${reply.error?.details ?? ''}`;
  const unnamed = names.filter(name => !said.includes(name));
  insist(!unnamed.length, `${what}: ${describeReply(reply)} does not name ${unnamed.join(', ')}`);
}

async function insistRefused(exam: Exam, name: string, value: string): Promise<void> {
  const reply = await exam.ask('ADD', { env: { [name]: value } });
  insistError(reply, `${name}=${JSON.stringify(value)}`, ErrorCode.invalidEnvironment);
}

const NO_JSON = ['', '{', '[]', '"text"', '{"name": "a"} {"name": "b"}', 'name: a'];

/** Rules about standard input. */
export const REQUEST_RULES: readonly Rule[] = tableOf({ source: ERROR, needs: 'nothing' }, [
  must('request/not-json', 'input that is not one JSON object is rejected with code 6', async exam => {
    for (const conf of NO_JSON) {
      const what = `standard input ${JSON.stringify(conf)}`;
      insistError(await exam.ask('ADD', { conf }), what, ErrorCode.decodingFailure);
    }
  }),
  must('request/no-name', 'a configuration without a name is rejected with code 7', exam =>
    insistNamesRefused(exam, [undefined, '']),
  ),
  must('request/bad-name', 'an invalid network name is rejected with code 7', FORMAT, exam =>
    insistNamesRefused(exam, ['../escape', '-begins', 'has space', 'has/slash']),
  ),
  must('request/version', 'an unsupported version is rejected with code 1', async exam => {
    for (const cniVersion of ['9.9.9', '1.0', 'nonsense']) {
      const what = `cniVersion ${JSON.stringify(cniVersion)}`;
      // A text that is not a version at all may also count as undecodable.
      const codes = [
        ErrorCode.incompatibleVersion,
        ...(cniVersion === 'nonsense' ? [ErrorCode.decodingFailure] : []),
      ];
      insistError(await addWith(exam, { cniVersion }), what, ...codes);
    }
  }),
  should(
    'request/version-names-supported',
    'that error names the supported versions',
    SKELETON,
    async exam => {
      const reply = await addWith(exam, { cniVersion: '9.9.9' });
      const said = `${reply.error?.msg} ${reply.error?.details ?? ''}`;
      insist(
        exam.versions.every(version => said.includes(version)),
        describeReply(reply),
      );
    },
  ),
  should(
    'request/version-type',
    'a cniVersion that is not a string is rejected with code 6',
    SKELETON,
    async exam => {
      insistError(await addWith(exam, { cniVersion: 1 }), 'cniVersion 1', ErrorCode.decodingFailure);
    },
  ),
  gate('CHECK', SINCE.check, '0.3.1'),
  gate('GC', SINCE.gc, '1.0.0'),
  gate('STATUS', SINCE.status, '1.0.0'),
]);

/** The command must be refused for a configuration of a version that does not have it. */
function gate(verb: 'CHECK' | 'GC' | 'STATUS', since: SpecVersion, older: SpecVersion): RuleRow {
  const title = `${verb} is rejected for versions before ${since}`;
  return must(`request/gate-${verb.toLowerCase()}`, title, `SPEC: ${verb}`, async exam => {
    skipUnless(exam.versions.includes(older), `it does not support ${older}`);
    const known = exam.versions.some(version => atLeast(version, since));
    // A plugin that never supported the command may treat it as unknown.
    const codes = [ErrorCode.incompatibleVersion, ...(known ? [] : [ErrorCode.invalidEnvironment])];
    const reply = await exam.ask(verb, { conf: confOf(exam.subject, older) });
    insistError(reply, `${verb} with ${older}`, ...codes);
  });
}

async function insistNamesRefused(exam: Exam, names: readonly (string | undefined)[]): Promise<void> {
  for (const name of names)
    insistError(await addWith(exam, { name }), `name ${JSON.stringify(name)}`, ErrorCode.invalidConfig);
}

function addWith(exam: Exam, changes: JsonObject) {
  return exam.ask('ADD', { conf: { ...confOf(exam.subject, exam.version), ...changes } });
}

/** Rules examined last, about all calls of the examination. */
export const REPLY_RULES: readonly Rule[] = tableOf({ source: ERROR, needs: 'nothing' }, [
  must('reply/only-protocol', 'standard output contains one JSON object, or nothing', OVERVIEW, exam =>
    forAll(exam, ({ reply }) => reply.stdout.trim() === '' || isObject(tryParse(reply.stdout))),
  ),
  must(
    'reply/failure-has-error',
    'a failure has a non-zero exit status and an error object on standard output',
    exam =>
      forAll(exam, ({ reply, late }) => {
        const printed = tryParse(reply.stdout);
        const isError = isObject(printed) && typeof printed.code === 'number' && 'msg' in printed;
        return late || (reply.exitCode === 0 ? !isError : isError);
      }),
  ),
  must('reply/error-form', 'code is a non-negative number, msg and details are strings', exam =>
    forAllErrors(exam, ({ code, msg, details }) => {
      const numbered = typeof code === 'number' && Number.isInteger(code) && code >= 0;
      return (
        numbered && typeof msg === 'string' && msg !== '' && ['string', 'undefined'].includes(typeof details)
      );
    }),
  ),
  should('reply/error-code', 'codes below 100 are defined by the specification', exam =>
    forAllErrors(
      exam,
      ({ code }) => Number(code) >= 100 || (Object.values(ErrorCode) as unknown[]).includes(code),
    ),
  ),
  should('reply/error-version', 'an error has the cniVersion of the configuration', exam =>
    forAllErrors(exam, ({ code, cniVersion }, { request }) => {
      const asked = tryParse(request);
      const given = isObject(asked) ? asked.cniVersion : undefined;
      // Problems with the environment are found before the configuration is read.
      return code === ErrorCode.invalidEnvironment || typeof given !== 'string' || cniVersion === given;
    }),
  ),
  should('reply/quiet', 'CHECK, DEL, GC and STATUS print nothing when they succeed', 'SPEC: Success', exam =>
    forAll(
      exam,
      ({ verb, reply }) =>
        reply.exitCode !== 0 ||
        !['CHECK', 'DEL', 'GC', 'STATUS'].includes(verb) ||
        reply.stdout.trim() === '',
    ),
  ),
  must('process/ends', 'every call ends before its deadline', OVERVIEW, exam => {
    const late = exam.calls.find(call => call.late);
    insist(!late, `${late?.verb} was still running after ${exam.subject.deadlineMs} ms`);
  }),
  must('process/leaves-none', 'no process is left running', OVERVIEW, exam => {
    const found = exam.calls.find(({ running }) => running.length);
    insist(!found, `${found?.verb} leaves ${found?.running.join(', ')}`);
  }),
]);

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
