// Does a plugin attach and detach containers as the protocol demands: ADD and its result, its chain, CHECK, DEL and GC?
import { describeError, ErrorCode } from '../../cni/errors.ts';
import { isObject, type JsonObject } from '../../cni/json.ts';
import { atLeast, parseResult, type Result, SINCE, type SpecVersion } from '../../cni/result.ts';
import { findIfnameProblem } from '../../net/interface.ts';
import { findCidr, renderCidr } from '../../net/ip.ts';
import { listAddresses } from '../../netlink/rtnl/addr.ts';
import { createLink, findLink, removeLink } from '../../netlink/rtnl/link.ts';
import type { Reply } from '../call.ts';
import type { TestHost } from '../testing/host.ts';
import {
  type Asking,
  describeReply,
  type Exam,
  insist,
  insistError,
  insistNone,
  insistOk,
  must,
  type Pod,
  type PodVerb,
  PRACTICE,
  type Rule,
  type Scene,
  SKELETON,
  Skipped,
  should,
  skipUnless,
  tableOf,
} from './exam.ts';

const ADD = 'SPEC: ADD';
const SUCCESS = 'SPEC: Success';
const OVERVIEW = 'SPEC: Overview';
const STATUS = 'SPEC: STATUS';
const KUBERNETES_ARGS = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod';
const BIG_REQUEST_BYTES = 1 << 20;
const AT_ONCE = 4;

type Step = (scene: Scene) => unknown;

/** Plays steps on a fresh host. */
function fresh(exam: Exam, ...steps: readonly Step[]): Promise<void> {
  return exam.scene(async scene => {
    for (const step of steps) await step(scene);
  });
}

/** Plays steps on a host on which the plugin has run before. */
function warm(exam: Exam, ...steps: readonly Step[]): Promise<void> {
  return fresh(exam, scene => scene.warm(), ...steps);
}

/** Plays steps for a pod after its ADD, which must succeed, and always runs DEL. */
function attached(exam: Exam, ...steps: readonly Step[]): Promise<void> {
  return attachedWith(exam, {}, ...steps);
}

function attachedWith(exam: Exam, asking: Asking, ...steps: readonly Step[]): Promise<void> {
  return fresh(exam, async scene => {
    try {
      for (const step of [ok('ADD', 'ADD', asking), ...steps]) await step(scene);
    } finally {
      await scene.del(scene.pod);
    }
  });
}

/** A call for the pod, whatever comes of it. */
function tried(verb: PodVerb): Step {
  return scene => scene.ask(verb, scene.pod);
}

/** A call for the pod that must succeed. */
function ok(verb: PodVerb, what: string = verb, asking: Asking = {}): Step {
  return async scene => insistOk(await scene.ask(verb, scene.pod, asking), what);
}

/** A call for the pod that must fail. */
function fails(verb: PodVerb, what: string = verb, asking: Asking = {}): Step {
  return async scene => insistError(await scene.ask(verb, scene.pod, asking), what);
}

/** The pod is made: what follows changes one that exists. */
const pod: Step = scene => scene.pod;
/** From here on, nothing may change that is not undone. */
const mark: Step = scene => scene.mark();
const unchanged: Step = async scene => insistNone(await scene.changes());
const leave: Step = scene => scene.leave(scene.pod);

export const ADD_RULES: readonly Rule[] = tableOf({ source: SUCCESS, needs: 'attachment' }, [
  {
    ...must('add/works', 'ADD succeeds and prints a result', ADD, async exam => {
      const { added } = await exam.trial();
      if (/not supported/i.test(added.error?.msg ?? ''))
        throw new Skipped(`not supported by this kernel: ${describeReply(added)}`);
      insistOk(added, 'ADD');
      insist(added.result, `ADD: ${describeReply(added)}`);
    }),
    needs: 'configuration',
  },
  must('add/version', 'the result has the cniVersion of the configuration', exam =>
    eachVersion(exam, ({ cniVersion }, version) =>
      insist(cniVersion === version, `asked for ${version}, it replies with ${JSON.stringify(cniVersion)}`),
    ),
  ),
  must('add/layout', 'the result has the format of its version; addresses and indexes are valid', exam =>
    eachVersion(exam, (result, version) => {
      const problems = findLayoutProblems(result, version);
      insist(!problems.length, `in version ${version}: ${problems.join('; ')}`);
    }),
  ),
  must('add/interfaces-exist', 'the interfaces of the result exist where it says', exam =>
    attached(exam, ({ result, host, pod }) => {
      skipUnless(result?.interfaces?.length, 'the result names no interface');
      insistNone(findFalseInterfaces(result, host, pod));
    }),
  ),
  should('add/addresses-exist', 'the addresses of the result are assigned to their interfaces', exam =>
    attached(exam, ({ result, pod }) => {
      const placed = result?.ips?.some(({ interface: index }) => index !== undefined);
      skipUnless(result && placed, 'the result assigns no address to an interface');
      insistNone(findFalseAddresses(result, pod));
    }),
  ),
  must('add/ifname', 'the interface in the container is called CNI_IFNAME', ADD, async exam => {
    skipUnless((await exam.trial()).kind === 'main', 'it creates no interface');
    const { ifname } = exam.subject;
    await attached(exam, ({ result, pod }) => {
      insist(findLink(pod.container.route, ifname), `there is no ${ifname} in the container`);
      const listed = result?.interfaces?.some(one => one.name === ifname && one.sandbox);
      insist(listed || !atLeast(exam.version, '0.3.0'), `the result does not list ${ifname}`);
    });
  }),
  should('add/unknown-keys', 'unknown configuration keys are ignored', 'SPEC: Configuration format', exam =>
    attachedWith(exam, { conf: { 'example.org/unknown': { a: [1, null, 'ü'] } } }),
  ),
  must('add/big-request', 'a configuration of one mebibyte is read completely', OVERVIEW, exam =>
    attachedWith(exam, { conf: { 'example.org/big': 'x'.repeat(BIG_REQUEST_BYTES) } }),
  ),
  must(
    'add/args',
    'CNI_ARGS with IgnoreUnknown and the Kubernetes arguments are accepted',
    'conventions: CNI_ARGS',
    exam => attachedWith(exam, { env: { CNI_ARGS: KUBERNETES_ARGS } }),
  ),
  should('add/without-path', 'CNI_PATH is not required if nothing is delegated', ADD, async exam => {
    const { kind } = await exam.trial();
    skipUnless(kind === 'ipam' || !isObject(exam.subject.conf?.ipam), 'it delegates to an IPAM plugin');
    await attachedWith(exam, { env: { CNI_PATH: undefined } });
  }),
  must(
    'add/at-once',
    'several containers can be added at once, each with its own addresses',
    OVERVIEW,
    exam => addAtOnce(exam),
  ),
]);

async function addAtOnce(exam: Exam): Promise<void> {
  const isShared = (await exam.trial()).kind !== 'chained' && exam.subject.device === undefined;
  skipUnless(isShared, 'it needs a resource that exists only once');
  await fresh(exam, async scene => {
    const addressesOf = (pods: readonly Pod[]) =>
      pods.flatMap(pod => scene.resultOf(pod)?.ips ?? []).map(({ address }) => address);
    const oneByOne = [scene.newPod(), scene.newPod()];
    for (const pod of oneByOne) await scene.add(pod);
    // Repeated addresses mean that the configuration fixes them.
    const fixed = hasRepetition(addressesOf(oneByOne));
    const pods = Array.from({ length: AT_ONCE }, () => scene.newPod());
    const replies = await Promise.all(pods.map(pod => scene.add(pod, { alongside: true })));
    const addresses = addressesOf([...oneByOne, ...pods]);
    for (const pod of [...oneByOne, ...pods]) await scene.del(pod);
    for (const reply of replies) insistOk(reply, 'ADD in parallel');
    insist(fixed || !hasRepetition(addresses), `two containers share an address of ${addresses.join(', ')}`);
  });
}

function hasRepetition(texts: readonly string[]): boolean {
  return new Set(texts).size < texts.length;
}

/** Inspects the result in every supported version that has what the plugin needs. */
async function eachVersion(
  exam: Exam,
  look: (result: JsonObject, version: SpecVersion) => void,
): Promise<void> {
  const { ips } = (await exam.trial()).added.result ?? {};
  const hasAddress = Array.isArray(ips) && ips.length > 0;
  for (const [version, reply] of await exam.addInEachVersion()) {
    // Results of old versions must contain addresses.
    if (!atLeast(version, '0.3.0') && reply.exitCode !== 0 && !hasAddress) continue;
    insistOk(reply, `ADD in ${version}`);
    insist(reply.result, `ADD in ${version}: ${describeReply(reply)}`);
    look(reply.result, version);
  }
}

/** The container has an interface of that name before ADD. */
const occupied: Step = ({ pod, exam: { subject } }) => {
  const peer = { name: 'occupant' };
  createLink(pod.container.route, { name: subject.ifname, kind: 'veth', peer });
};

async function needsInterface(exam: Exam): Promise<void> {
  const { kind, makesInterface } = await exam.trial();
  skipUnless(kind === 'main' && makesInterface, 'it does not create CNI_IFNAME');
}

/** Plays an ADD into the plugin's own namespace. */
async function intoOwnNetns(exam: Exam, look: (scene: Scene, reply: Reply) => unknown): Promise<void> {
  skipUnless((await exam.trial()).kind !== 'ipam', 'it does nothing in the container');
  await warm(exam, pod, mark, async scene => {
    const env = { CNI_NETNS: scene.host.namespace.path };
    await look(scene, await scene.add(scene.pod, { env }));
  });
}

/** Rules of an ADD that cannot succeed. */
export const REFUSE_RULES: readonly Rule[] = tableOf({ source: ADD, needs: 'attachment' }, [
  must(
    'add/existing-interface',
    'ADD fails when the container already has an interface of that name',
    async exam => {
      await needsInterface(exam);
      await warm(exam, occupied, fails('ADD'), ({ pod }) => {
        const { ifname } = exam.subject;
        insist(findLink(pod.container.route, ifname), `${ifname}, which existed before, no longer exists`);
      });
    },
  ),
  should('add/failure-clean', 'a failed ADD leaves nothing behind', async exam => {
    await needsInterface(exam);
    await warm(exam, occupied, mark, tried('ADD'), unchanged);
  }),
  must('add/failure-then-del', 'DEL removes what a failed ADD has left behind', async exam => {
    await needsInterface(exam);
    await warm(exam, mark, occupied, tried('ADD'), ok('DEL'), leave, unchanged);
  }),
  must('add/no-netns', 'ADD fails when CNI_NETNS does not exist', async exam => {
    const { kind, made } = await exam.trial();
    const enters = kind === 'main' || made.some(line => !/^(host|files): /.test(line));
    skipUnless(enters, 'it does nothing in the container');
    await warm(exam, async scene => {
      const env = { CNI_NETNS: `${scene.host.dir}/none` };
      insistError(await scene.add(scene.pod, { env }), 'ADD');
    });
  }),
  should('add/own-netns', "ADD rejects the plugin's own namespace with code 8", SKELETON, exam =>
    intoOwnNetns(exam, (_, reply) => insistError(reply, 'ADD', ErrorCode.invalidNetns)),
  ),
  should('add/own-netns-untouched', "that ADD leaves the host's interfaces unchanged", PRACTICE, exam =>
    intoOwnNetns(exam, unchanged),
  ),
]);

/** Rules of plugins that receive a prevResult. */
export const CHAIN_RULES: readonly Rule[] = tableOf(
  {
    source: PRACTICE,
    needs: 'attachment',
    when(exam) {
      skipUnless(exam.subject.chained, 'it is not tested as a chained plugin');
      skipUnless(atLeast(exam.version, '0.3.0'), 'it supports no version that has prevResult');
    },
  },
  [
    must(
      'chain/passes-result',
      'interfaces, addresses, routes and DNS of prevResult are in the result',
      'SPEC: ADD, prevResult',
      async exam => {
        const { given, got } = await pass(exam, {});
        const lost = findLost(given, got);
        insist(!lost.length, `missing: ${lost.join(', ')}`);
      },
    ),
    should('chain/keeps-unknown-keys', 'unknown keys of prevResult are in the result', async exam => {
      const { got } = await pass(exam, { 'example.org/unknown': 'kept' });
      insist(got['example.org/unknown'] === 'kept', 'they are missing');
    }),
    should('chain/needs-result', 'ADD without prevResult is rejected', exam =>
      fresh(exam, fails('ADD', 'ADD without prevResult', { prevResult: null })),
    ),
  ],
);

async function pass(exam: Exam, more: Result): Promise<{ given: Result; got: Result }> {
  return exam.scene(async scene => {
    const given = { ...scene.pod.prevResult, ...more };
    insistOk(await scene.add(scene.pod, { prevResult: given }), 'ADD');
    const got = scene.result;
    await scene.del(scene.pod);
    insist(got, 'its reply is not a result');
    return { given, got };
  });
}

function findLost(given: Result, got: Result): string[] {
  const partsOf = ({ interfaces = [], ips = [], routes = [], dns }: Result) => [
    ...interfaces.map(({ name, sandbox = '' }) => `interface ${name}${sandbox ? ` in ${sandbox}` : ''}`),
    ...ips.map(({ address }) => `address ${address}`),
    ...routes.map(({ dst }) => `route to ${dst}`),
    ...(dns?.nameservers ?? []).map(server => `name server ${server}`),
  ];
  const there = partsOf(got);
  return partsOf(given).filter(one => !there.includes(one));
}

export const CHECK_RULES: readonly Rule[] = tableOf(
  {
    source: 'SPEC: CHECK',
    needs: 'attachment',
    when: exam => skipUnless(atLeast(exam.version, SINCE.check), 'it supports no version that has CHECK'),
  },
  [
    must('check/after-add', 'CHECK succeeds after ADD', exam =>
      attached(exam, ok('CHECK'), ok('CHECK', 'CHECK, a second time')),
    ),
    must('check/changes-nothing', 'CHECK changes nothing', exam =>
      attached(exam, mark, tried('CHECK'), unchanged),
    ),
    must('check/missing-interface', 'CHECK fails when the interface no longer exists', async exam => {
      await needsInterface(exam);
      const { ifname } = exam.subject;
      const remove: Step = ({ pod }) => removeLink(pod.container.route, ifname);
      await attached(exam, remove, fails('CHECK', `CHECK without ${ifname}`));
    }),
    must('check/after-del', 'CHECK fails when what ADD created no longer exists', async exam => {
      skipUnless((await exam.trial()).made.length, 'ADD creates nothing observable');
      const gone: Step = async scene => {
        const left = await scene.changes();
        skipUnless(!left.length, `DEL does not remove it: ${left.join('; ')}`);
      };
      await warm(exam, pod, mark, tried('ADD'), tried('DEL'), gone, fails('CHECK', 'CHECK after DEL'));
    }),
  ],
);

export const DEL_RULES: readonly Rule[] = tableOf({ source: 'SPEC: DEL', needs: 'attachment' }, [
  must('del/clean', 'after ADD, DEL and deletion of the container, the host is unchanged', exam =>
    warm(exam, mark, ok('ADD'), ok('DEL'), leave, unchanged),
  ),
  should('del/undoes', 'after ADD and DEL, host and container are unchanged', exam =>
    warm(exam, pod, mark, ok('ADD'), ok('DEL'), unchanged),
  ),
  must('del/twice', 'DEL can be repeated', exam =>
    attached(exam, ok('DEL'), ok('DEL', 'DEL, a second time')),
  ),
  must('del/leaves-others', 'DEL changes nothing of another container', exam =>
    warm(exam, async scene => {
      const { device } = exam.subject;
      const other = scene.newPod();
      try {
        insistOk(await scene.add(other), 'ADD');
        const isThere = device === undefined || findLink(scene.host.namespace.route, device);
        skipUnless(isThere, 'the device is in the other container');
        scene.mark();
        const added = await scene.add(scene.pod);
        skipUnless(added.exitCode === 0, `it adds no second container: ${describeReply(added)}`);
        insistOk(await scene.del(scene.pod), 'DEL');
        await scene.leave(scene.pod);
        insistNone(await scene.changes());
      } finally {
        await scene.del(other);
      }
    }),
  ),
  {
    ...must('del/never-added', 'DEL of an attachment that was never added succeeds', exam =>
      fresh(exam, ok('DEL')),
    ),
    needs: 'configuration',
  },
  must('del/without-netns', 'DEL does not require CNI_NETNS', exam => {
    const [none, empty] = [undefined, ''].map(CNI_NETNS => ({ env: { CNI_NETNS } }));
    const unset = ok('DEL', 'DEL without CNI_NETNS', none);
    return attached(exam, unset, ok('DEL', 'DEL with an empty CNI_NETNS', empty));
  }),
  must('del/netns-gone', 'DEL succeeds when the namespace no longer exists', exam =>
    attached(exam, leave, ok('DEL', 'DEL without a namespace at CNI_NETNS')),
  ),
  should('del/netns-gone-clean', 'that DEL leaves nothing on the host', exam =>
    warm(exam, mark, tried('ADD'), leave, tried('DEL'), async scene => {
      const left = await scene.changes();
      const isFree = exam.subject.device === undefined || !left.length;
      skipUnless(isFree, 'the device was deleted with the namespace');
      insistNone(left);
    }),
  ),
  must('del/without-result', 'DEL does not require prevResult', exam => {
    skipUnless(atLeast(exam.version, SINCE.prevResultOnDel), 'it supports no version that has it');
    return attached(exam, ok('DEL', 'DEL without prevResult', { prevResult: null }));
  }),
  should('del/without-path', 'CNI_PATH is not required if nothing is delegated', async exam => {
    const { kind } = await exam.trial();
    skipUnless(kind === 'ipam' || exam.subject.conf?.ipam === undefined, 'it delegates to an IPAM plugin');
    await attached(exam, ok('DEL', 'DEL without CNI_PATH', { env: { CNI_PATH: undefined } }));
  }),
]);

/** GC with nothing to keep. */
const gcAll: Step = async scene => insistOk(await scene.gc([]), 'GC');

/** Rules of GC and STATUS. */
export const GC_RULES: readonly Rule[] = tableOf(
  {
    source: 'SPEC: GC',
    needs: 'attachment',
    when: exam =>
      skipUnless(atLeast(exam.version, SINCE.gc), `it supports no version newer than ${exam.version}`),
  },
  [
    must('gc/idle', 'GC succeeds when there is nothing to collect', exam => fresh(exam, gcAll)),
    must('gc/keeps-valid', 'GC keeps the valid attachments', exam =>
      attached(exam, mark, async scene => insistOk(await scene.gc([scene.pod]), 'GC'), unchanged),
    ),
    should('gc/removes-stale', 'GC removes what other attachments have left on the host', async exam => {
      const { made } = await exam.trial();
      const outside = made.filter(line => /^(host|files): /.test(line));
      skipUnless(outside.length, 'it leaves nothing on the host');
      await warm(exam, mark, ok('ADD'), leave, gcAll, async scene => {
        const changed = await scene.changes();
        await scene.del(scene.pod);
        // What the network kept for its next attachment may go, too.
        insistNone(changed.filter(line => !/^[^:]+: - /.test(line)));
      });
    }),
    {
      ...must(
        'status/answers',
        'STATUS succeeds, or reports in an error object why ADD would fail',
        STATUS,
        exam =>
          fresh(exam, async scene => {
            const reply = await scene.status();
            insist(reply.exitCode === 0 || reply.error, describeReply(reply));
          }),
      ),
      needs: 'configuration',
    },
    should('status/ready', 'STATUS succeeds if ADD does', STATUS, exam =>
      fresh(exam, async scene => {
        const reply = await scene.status();
        insist(reply.error?.code !== ErrorCode.unavailable, describeReply(reply));
        insistOk(reply, 'STATUS');
      }),
    ),
  ],
);

/** Human-readable problems with the form of a result object. */
export function findLayoutProblems(object: JsonObject, version: SpecVersion): string[] {
  let result: Result;
  try {
    result = parseResult(object, version);
  } catch (thrown) {
    return [describeError(thrown)];
  }
  const isOld = !atLeast(version, '0.3.0');
  const misplaced = (isOld ? ['ips', 'interfaces'] : ['ip4', 'ip6'])
    .filter(key => key in object)
    .map(key => `"${key}" does not exist in version ${version}`);
  if (isOld) {
    const isAddressed = isObject(object.ip4) || isObject(object.ip6);
    return [...misplaced, ...(isAddressed ? [] : ['it has neither "ip4" nor "ip6"'])];
  }
  return [
    ...misplaced,
    ...interfaceProblems(result),
    ...ipProblems(result),
    ...(atLeast(version, '1.0.0') ? [] : familyProblems(object)),
  ];
}

function interfaceProblems({ interfaces = [] }: Result): string[] {
  return interfaces.flatMap(({ name, mac }, i) => {
    const problem = findIfnameProblem(name);
    return [
      ...(problem ? [`interfaces[${i}].name ${JSON.stringify(name)}: ${problem}`] : []),
      ...(mac && !/^([0-9a-f]{2}:)+[0-9a-f]{2}$/i.test(mac)
        ? [`interfaces[${i}].mac is ${JSON.stringify(mac)}`]
        : []),
    ];
  });
}

function ipProblems({ interfaces = [], ips = [] }: Result): string[] {
  return ips.flatMap((ip, i) => {
    const { interface: index } = ip;
    if (index === undefined || (index >= 0 && index < interfaces.length)) return [];
    return [`ips[${i}].interface is ${index}, of ${interfaces.length} interfaces`];
  });
}

/** Before 1.0.0 each address states its family. */
function familyProblems({ ips }: JsonObject): string[] {
  return (Array.isArray(ips) ? ips : []).filter(isObject).flatMap(({ version, address }, i) => {
    const family = String(findCidr(String(address))?.ip.family);
    return version === family ? [] : [`ips[${i}].version is ${JSON.stringify(version)}`];
  });
}

/** Interfaces of the result that do not exist, or differ from its description. */
function findFalseInterfaces({ interfaces = [] }: Result, host: TestHost, { container }: Pod): string[] {
  return interfaces.flatMap(({ name, mac, sandbox }) => {
    const where = sandbox ? 'in the container' : 'on the host';
    if (sandbox && sandbox !== container.path)
      return [`${name}: its sandbox is ${JSON.stringify(sandbox)}, not CNI_NETNS`];
    const link = findLink((sandbox ? container : host.namespace).route, name);
    if (link === undefined) return [`${name} is not ${where}`];
    const differs = mac && link.mac && mac.toLowerCase() !== link.mac.toLowerCase();
    return differs ? [`${name}: its mac is ${link.mac}, not ${mac}`] : [];
  });
}

/** Addresses that the result assigns to interfaces in the container which do not have them. */
function findFalseAddresses({ interfaces = [], ips = [] }: Result, { container }: Pod): string[] {
  return ips.flatMap(({ address, interface: index }) => {
    const owner = index === undefined ? undefined : interfaces[index];
    if (!owner?.sandbox) return [];
    const link = findLink(container.route, owner.name);
    const cidr = findCidr(address);
    const there = link ? listAddresses(container.route, link.index) : [];
    const isThere = cidr && there.some(one => renderCidr(one.cidr) === renderCidr(cidr));
    return isThere ? [] : [`${address} is not on ${owner.name}`];
  });
}
