// Does ADD refuse impossible requests, and leave nothing behind?
import { ErrorCode } from '../../cni/errors.ts';
import { createLink, findLink } from '../../netlink/rtnl/link.ts';
import type { Exam } from '../exam.ts';
import { warm } from '../play.ts';
import type { Pod } from '../pod.ts';
import { insist, insistError, insistOk, type Rule, skipUnless } from '../rule.ts';
import type { Scene } from '../scene.ts';

const ADD = 'SPEC: ADD';

/** Rules of an ADD that cannot succeed. */
export const REFUSE_RULES: readonly Rule[] = [
  {
    id: 'add/existing-interface',
    title: 'ADD fails when the container already has an interface of that name',
    level: 'must',
    source: ADD,
    needs: 'attachment',
    check: exam =>
      occupied(exam, async (scene, pod) => {
        insistError(await scene.add(pod), 'ADD');
        const { ifname } = exam.subject;
        insist(findLink(pod.container.route, ifname), `${ifname}, which existed before, no longer exists`);
      }),
  },
  {
    id: 'add/failure-clean',
    title: 'a failed ADD leaves nothing behind',
    level: 'should',
    source: ADD,
    needs: 'attachment',
    check: exam =>
      occupied(exam, async (scene, pod) => {
        const before = scene.state();
        await scene.add(pod);
        const left = await scene.changes(before);
        insist(!left.length, left.join('; '));
      }),
  },
  {
    id: 'add/failure-then-del',
    title: 'DEL removes what a failed ADD has left behind',
    level: 'must',
    source: ADD,
    needs: 'attachment',
    check: exam =>
      occupied(exam, async (scene, pod, before) => {
        await scene.add(pod);
        insistOk(await scene.del(pod), 'DEL');
        await scene.leave(pod);
        const left = await scene.changes(before);
        insist(!left.length, left.join('; '));
      }),
  },
  {
    id: 'add/no-netns',
    title: 'ADD fails when CNI_NETNS does not exist',
    level: 'must',
    source: ADD,
    needs: 'attachment',
    async check(exam) {
      const { kind, made } = await exam.trial();
      const enters = kind === 'main' || made.some(line => !/^(host|files): /.test(line));
      skipUnless(enters, 'it does nothing in the container');
      await warm(exam, async scene => {
        const pod = scene.pod();
        insistError(await scene.add(pod, { env: { CNI_NETNS: `${scene.host.dir}/none` } }), 'ADD');
      });
    },
  },
  {
    id: 'add/own-netns',
    title: "ADD rejects the plugin's own namespace with code 8",
    level: 'should',
    source: 'reference skeleton',
    needs: 'attachment',
    check: exam => intoOwnNetns(exam, reply => insistError(reply, 'ADD', ErrorCode.invalidNetns)),
  },
  {
    id: 'add/own-netns-untouched',
    title: "that ADD leaves the host's interfaces unchanged",
    level: 'should',
    source: 'good practice',
    needs: 'attachment',
    check: exam => intoOwnNetns(exam, (_, left) => insist(!left.length, left.join('; '))),
  },
];

/** Plays a scene with a pod that already has an interface of that name. */
async function occupied(
  exam: Exam,
  play: (scene: Scene, pod: Pod, before: ReturnType<Scene['state']>) => Promise<void>,
): Promise<void> {
  const { kind, makesInterface } = await exam.trial();
  skipUnless(kind === 'main' && makesInterface, 'it does not create CNI_IFNAME');
  await warm(exam, async scene => {
    const before = scene.state();
    const pod = scene.pod();
    const peer = { name: 'occupant' };
    createLink(pod.container.route, { name: exam.subject.ifname, kind: 'veth', peer });
    await play(scene, pod, before);
  });
}

async function intoOwnNetns(
  exam: Exam,
  look: (reply: Awaited<ReturnType<Scene['add']>>, left: string[]) => void,
) {
  skipUnless((await exam.trial()).kind !== 'ipam', 'it does nothing in the container');
  await warm(exam, async scene => {
    const pod = scene.pod();
    const before = scene.state();
    const reply = await scene.add(pod, { env: { CNI_NETNS: scene.host.namespace.path } });
    look(reply, await scene.changes(before));
  });
}
