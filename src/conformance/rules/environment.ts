// Are invalid and missing variables refused and named?
import { ErrorCode } from '../../cni/errors.ts';
import { atLeast, SINCE } from '../../cni/version.ts';
import type { Exam } from '../exam.ts';
import { describeReply, insist, insistError, type Rule, skipUnless } from '../rule.ts';

const PARAMETERS = 'SPEC: Parameters';
const ERRORS = 'SPEC: Error';

const CONTAINER_IDS = ['../escape', '-begins', '.begins', 'has space', 'has/slash', 'line\nbreak', 'ü'];
const IFNAMES = ['sixteen-bytes-xx', '.', '..', 'a/b', 'a:b', 'a b'];

/** Rules of the environment. */
export const ENVIRONMENT_RULES: readonly Rule[] = [
  {
    id: 'env/unknown-command',
    title: 'an unknown CNI_COMMAND is rejected with code 4',
    level: 'must',
    source: ERRORS,
    needs: 'nothing',
    async check(exam) {
      for (const command of ['NONSENSE', 'add']) {
        insistError(await exam.ask(command), command, ErrorCode.invalidEnvironment);
      }
    },
  },
  {
    id: 'env/unknown-command-text',
    title: 'the message is "unknown CNI_COMMAND: …", which runtimes look for',
    level: 'should',
    source: 'reference skeleton',
    needs: 'nothing',
    async check(exam) {
      const reply = await exam.ask('NONSENSE');
      insist(reply.error?.msg === 'unknown CNI_COMMAND: NONSENSE', describeReply(reply));
    },
  },
  missing('add', 'ADD', ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME']),
  missing('check', 'CHECK', ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME']),
  missing('del', 'DEL', ['CNI_CONTAINERID', 'CNI_IFNAME']),
  {
    id: 'env/missing-all',
    title: 'the error names all missing variables',
    level: 'should',
    source: ERRORS,
    needs: 'nothing',
    async check(exam) {
      const names = ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME'];
      await insistNamed(exam, 'ADD', names);
    },
  },
  {
    id: 'env/container-id',
    title: 'an invalid CNI_CONTAINERID is rejected with code 4',
    level: 'must',
    source: PARAMETERS,
    needs: 'nothing',
    async check(exam) {
      for (const value of CONTAINER_IDS) await insistRefused(exam, 'CNI_CONTAINERID', value);
    },
  },
  {
    id: 'env/ifname',
    title: 'an invalid CNI_IFNAME is rejected with code 4',
    level: 'must',
    source: PARAMETERS,
    needs: 'nothing',
    async check(exam) {
      for (const value of IFNAMES) await insistRefused(exam, 'CNI_IFNAME', value);
    },
  },
];

function missing(name: string, verb: 'ADD' | 'CHECK' | 'DEL', variables: readonly string[]): Rule {
  return {
    id: `env/missing-${name}`,
    title: `${verb} without ${variables.join(', ')} is rejected with code 4 and the name`,
    level: 'must',
    source: ERRORS,
    needs: 'nothing',
    async check(exam) {
      const exists = verb !== 'CHECK' || atLeast(exam.version, SINCE.check);
      skipUnless(exists, `it supports no version that has ${verb}`);
      for (const variable of variables) await insistNamed(exam, verb, [variable]);
    },
  };
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
