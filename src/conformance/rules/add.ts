// Does ADD do what it reports?
import { isObject, type JsonObject } from '../../cni/json.ts';
import { atLeast, type SpecVersion } from '../../cni/version.ts';
import { findLink } from '../../netlink/rtnl/link.ts';
import type { Exam } from '../exam.ts';
import { attached } from '../play.ts';
import type { Pod } from '../pod.ts';
import { findFalseAddresses, findFalseInterfaces, findLayoutProblems } from '../result-check.ts';
import { describeReply, insist, insistOk, type Rule, Skipped, skipUnless } from '../rule.ts';
import type { Scene } from '../scene.ts';

const ADD = 'SPEC: ADD';
const SUCCESS = 'SPEC: Success';
const BIG_REQUEST_BYTES = 1 << 20;
const AT_ONCE = 4;

/** Rules of ADD. */
export const ADD_RULES: readonly Rule[] = [
  {
    id: 'add/works',
    title: 'ADD succeeds and prints a result',
    level: 'must',
    source: ADD,
    needs: 'configuration',
    async check(exam) {
      const { added } = await exam.trial();
      if (/not supported/i.test(added.error?.msg ?? ''))
        throw new Skipped(`not supported by this kernel: ${describeReply(added)}`);
      insistOk(added, 'ADD');
      insist(added.result, `ADD: ${describeReply(added)}`);
    },
  },
  {
    id: 'add/version',
    title: 'the result has the cniVersion of the configuration',
    level: 'must',
    source: SUCCESS,
    needs: 'attachment',
    check: exam =>
      eachVersion(exam, (result, version) => {
        insist(
          result.cniVersion === version,
          `asked for ${version}, it replies with ${JSON.stringify(result.cniVersion)}`,
        );
      }),
  },
  {
    id: 'add/layout',
    title: 'the result has the format of its version; addresses and indexes are valid',
    level: 'must',
    source: SUCCESS,
    needs: 'attachment',
    check: exam =>
      eachVersion(exam, (result, version) => {
        const problems = findLayoutProblems(result, version);
        insist(!problems.length, `in version ${version}: ${problems.join('; ')}`);
      }),
  },
  {
    id: 'add/interfaces-exist',
    title: 'the interfaces of the result exist where it says',
    level: 'must',
    source: SUCCESS,
    needs: 'attachment',
    check: exam =>
      attached(exam, (scene, pod) => {
        const result = scene.resultOf(pod);
        skipUnless(result?.interfaces?.length, 'the result names no interface');
        const wrong = findFalseInterfaces(result, scene.host, pod);
        insist(!wrong.length, wrong.join('; '));
      }),
  },
  {
    id: 'add/addresses-exist',
    title: 'the addresses of the result are assigned to their interfaces',
    level: 'should',
    source: SUCCESS,
    needs: 'attachment',
    check: exam =>
      attached(exam, (scene, pod) => {
        const result = scene.resultOf(pod);
        const placed = result?.ips?.some(({ interface: index }) => index !== undefined);
        skipUnless(result && placed, 'the result assigns no address to an interface');
        const wrong = findFalseAddresses(result, pod);
        insist(!wrong.length, wrong.join('; '));
      }),
  },
  {
    id: 'add/ifname',
    title: 'the interface in the container is called CNI_IFNAME',
    level: 'must',
    source: ADD,
    needs: 'attachment',
    async check(exam) {
      skipUnless((await exam.trial()).kind === 'main', 'it creates no interface');
      const { ifname } = exam.subject;
      await attached(exam, (scene, pod) => {
        insist(findLink(pod.container.route, ifname), `there is no ${ifname} in the container`);
        const listed = scene.resultOf(pod)?.interfaces?.some(one => one.name === ifname && one.sandbox);
        insist(listed || !atLeast(exam.version, '0.3.0'), `the result does not list ${ifname}`);
      });
    },
  },
  {
    id: 'add/unknown-keys',
    title: 'unknown configuration keys are ignored',
    level: 'should',
    source: 'SPEC: Configuration format',
    needs: 'attachment',
    check: exam => works(exam, { conf: { 'example.org/unknown': { a: [1, null, 'ü'] } } }),
  },
  {
    id: 'add/big-request',
    title: 'a configuration of one mebibyte is read completely',
    level: 'must',
    source: 'SPEC: Overview',
    needs: 'attachment',
    check: exam => works(exam, { conf: { 'example.org/big': 'x'.repeat(BIG_REQUEST_BYTES) } }),
  },
  {
    id: 'add/args',
    title: 'CNI_ARGS with IgnoreUnknown and the Kubernetes arguments are accepted',
    level: 'must',
    source: 'conventions: CNI_ARGS',
    needs: 'attachment',
    check: exam =>
      works(exam, { env: { CNI_ARGS: 'IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod' } }),
  },
  {
    id: 'add/without-path',
    title: 'CNI_PATH is not required if nothing is delegated',
    level: 'should',
    source: 'SPEC: ADD',
    needs: 'attachment',
    async check(exam) {
      const { kind } = await exam.trial();
      skipUnless(kind === 'ipam' || !isObject(exam.subject.conf?.ipam), 'it delegates to an IPAM plugin');
      await works(exam, { env: { CNI_PATH: undefined } });
    },
  },
  {
    id: 'add/at-once',
    title: 'several containers can be added at once, each with its own addresses',
    level: 'must',
    source: 'SPEC: Overview',
    needs: 'attachment',
    async check(exam) {
      const { kind } = await exam.trial();
      skipUnless(
        kind !== 'chained' && exam.subject.device === undefined,
        'it needs a resource that exists only once',
      );
      await exam.scene(async scene => {
        const addressesOf = (pods: readonly Pod[]) =>
          pods.flatMap(pod => scene.resultOf(pod)?.ips ?? []).map(({ address }) => address);
        const oneByOne = [scene.pod(), scene.pod()];
        for (const pod of oneByOne) await scene.add(pod);
        // Repeated addresses mean that the configuration fixes them.
        const fixed = hasRepetition(addressesOf(oneByOne));
        const pods = Array.from({ length: AT_ONCE }, () => scene.pod());
        const replies = await Promise.all(pods.map(pod => scene.add(pod, { alongside: true })));
        const addresses = addressesOf([...oneByOne, ...pods]);
        for (const pod of [...oneByOne, ...pods]) await scene.del(pod);
        for (const reply of replies) insistOk(reply, 'ADD in parallel');
        insist(
          fixed || !hasRepetition(addresses),
          `two containers share an address of ${addresses.join(', ')}`,
        );
      });
    },
  },
];

function hasRepetition(texts: readonly string[]): boolean {
  return new Set(texts).size < texts.length;
}

/** Inspects the result in every supported version that has what the plugin needs. */
async function eachVersion(
  exam: Exam,
  look: (result: JsonObject, version: SpecVersion) => void,
): Promise<void> {
  for (const [version, reply] of await exam.addInEachVersion()) {
    // Results of old versions must contain addresses.
    if (!atLeast(version, '0.3.0') && reply.exitCode !== 0 && (await isWithoutAddress(exam))) continue;
    insistOk(reply, `ADD in ${version}`);
    insist(reply.result, `ADD in ${version}: ${describeReply(reply)}`);
    look(reply.result, version);
  }
}

async function isWithoutAddress(exam: Exam): Promise<boolean> {
  const { result } = (await exam.trial()).added;
  return !(Array.isArray(result?.ips) && result.ips.length);
}

async function works(exam: Exam, asking: Parameters<Scene['add']>[1]): Promise<void> {
  await exam.scene(async scene => {
    const pod = scene.pod();
    const reply = await scene.add(pod, asking);
    await scene.del(pod);
    insistOk(reply, 'ADD');
  });
}
