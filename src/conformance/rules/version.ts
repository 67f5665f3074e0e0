// Does the plugin report what it is and which versions it supports?
import { CURRENT_VERSION, isSpecVersion } from '../../cni/version.ts';
import type { Exam } from '../exam.ts';
import { describeReply, insist, insistOk, type Rule } from '../rule.ts';

const SOURCE = 'SPEC: VERSION';

/** Rules of VERSION, and of being run by hand. */
export const VERSION_RULES: readonly Rule[] = [
  {
    id: 'version/answers',
    title: 'VERSION replies with cniVersion and supportedVersions',
    level: 'must',
    source: SOURCE,
    needs: 'nothing',
    async check(exam) {
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
    },
  },
  {
    id: 'version/needs-command-only',
    title: 'VERSION requires no variable except CNI_COMMAND',
    level: 'must',
    source: SOURCE,
    needs: 'nothing',
    async check(exam) {
      const names = ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME', 'CNI_ARGS', 'CNI_PATH'];
      const env = Object.fromEntries(names.map(name => [name, undefined]));
      insistOk(await exam.ask('VERSION', { conf: { cniVersion: CURRENT_VERSION }, env }), 'VERSION');
    },
  },
  {
    id: 'version/released',
    title: 'supportedVersions are released versions without duplicates',
    level: 'should',
    source: SOURCE,
    needs: 'nothing',
    async check(exam) {
      const { result } = await askVersion(exam);
      const listed = Array.isArray(result?.supportedVersions) ? result.supportedVersions : [];
      const odd = listed.filter((one, i) => !isSpecVersion(String(one)) || listed.indexOf(one) !== i);
      insist(!odd.length, `it lists ${odd.map(one => JSON.stringify(one)).join(', ')}`);
    },
  },
  {
    id: 'version/current',
    title: `the current version, ${CURRENT_VERSION}, is supported`,
    level: 'should',
    source: SOURCE,
    needs: 'nothing',
    check(exam) {
      insist(exam.versions.includes(CURRENT_VERSION), `the newest is ${exam.versions.at(-1) ?? 'none'}`);
    },
  },
  {
    id: 'version/echoes',
    title: 'the cniVersion of the reply is that of the request',
    level: 'should',
    source: SOURCE,
    needs: 'nothing',
    async check(exam) {
      const asked = exam.versions.find(version => version !== CURRENT_VERSION) ?? '1.0.0';
      const { result } = await exam.ask('VERSION', { conf: { cniVersion: asked } });
      insist(
        result?.cniVersion === asked,
        `asked with ${asked}, it replies with ${JSON.stringify(result?.cniVersion)}`,
      );
    },
  },
  {
    id: 'version/without-stdin',
    title: 'VERSION works with empty standard input',
    level: 'should',
    source: 'reference skeleton',
    needs: 'nothing',
    async check(exam) {
      insistOk(await exam.ask('VERSION', { conf: '' }), 'VERSION');
    },
  },
  {
    id: 'version/about',
    title: 'called without CNI_COMMAND, it describes itself on standard error and succeeds',
    level: 'should',
    source: 'reference skeleton',
    needs: 'nothing',
    async check(exam) {
      const reply = await exam.ask('', { conf: '' });
      insistOk(reply, 'without CNI_COMMAND');
      insist(reply.stdout === '', `it prints ${JSON.stringify(reply.stdout)} on standard output`);
      insist(/version/i.test(reply.stderr), `standard error: ${JSON.stringify(reply.stderr)}`);
    },
  },
];

function askVersion(exam: Exam) {
  return exam.ask('VERSION', { conf: { cniVersion: CURRENT_VERSION } });
}
