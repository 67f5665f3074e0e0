// Does a chained plugin pass on its prevResult?
import type { Result } from '../../cni/result.ts';
import { atLeast } from '../../cni/version.ts';
import type { Exam } from '../exam.ts';
import { insist, insistError, insistOk, type Rule, skipUnless } from '../rule.ts';

const SOURCE = 'SPEC: ADD, prevResult';

/** Rules of plugins that receive a prevResult. */
export const CHAIN_RULES: readonly Rule[] = [
  {
    id: 'chain/passes-result',
    title: 'interfaces, addresses, routes and DNS of prevResult are in the result',
    level: 'must',
    source: SOURCE,
    needs: 'attachment',
    async check(exam) {
      insistChained(exam);
      const { given, got } = await pass(exam, {});
      const lost = findLost(given, got);
      insist(!lost.length, `missing: ${lost.join(', ')}`);
    },
  },
  {
    id: 'chain/keeps-unknown-keys',
    title: 'unknown keys of prevResult are in the result',
    level: 'should',
    source: 'good practice',
    needs: 'attachment',
    async check(exam) {
      insistChained(exam);
      const { got } = await pass(exam, { 'example.org/unknown': 'kept' });
      insist(got['example.org/unknown'] === 'kept', 'they are missing');
    },
  },
  {
    id: 'chain/needs-result',
    title: 'ADD without prevResult is rejected',
    level: 'should',
    source: 'good practice',
    needs: 'attachment',
    async check(exam) {
      insistChained(exam);
      await exam.scene(async scene => {
        insistError(await scene.add(scene.pod(), { prevResult: null }), 'ADD without prevResult');
      });
    },
  },
];

function insistChained(exam: Exam): void {
  skipUnless(exam.subject.chained, 'it is not tested as a chained plugin');
  skipUnless(atLeast(exam.version, '0.3.0'), 'it supports no version that has prevResult');
}

async function pass(exam: Exam, more: Result): Promise<{ given: Result; got: Result }> {
  return exam.scene(async scene => {
    const pod = scene.pod();
    const given = { ...pod.prevResult, ...more };
    insistOk(await scene.add(pod, { prevResult: given }), 'ADD');
    const got = scene.resultOf(pod);
    await scene.del(pod);
    insist(got, 'its reply is not a result');
    return { given, got };
  });
}

function findLost(given: Result, got: Result): string[] {
  const missing = (wanted: readonly string[] = [], there: readonly string[] = []) =>
    wanted.filter(one => !there.includes(one));
  const interfaces = ({ interfaces = [] }: Result) =>
    interfaces.map(({ name, sandbox = '' }) => `interface ${name}${sandbox ? ` in ${sandbox}` : ''}`);
  const ips = ({ ips = [] }: Result) => ips.map(({ address }) => `address ${address}`);
  const routes = ({ routes = [] }: Result) => routes.map(({ dst }) => `route to ${dst}`);
  const servers = ({ dns }: Result) => (dns?.nameservers ?? []).map(server => `name server ${server}`);
  return [interfaces, ips, routes, servers].flatMap(pick => missing(pick(given), pick(got)));
}
