// Does DEL undo everything, whatever still exists?
import { atLeast, SINCE } from '../../cni/version.ts';
import type { Exam } from '../exam.ts';
import { warm } from '../play.ts';
import type { Pod } from '../pod.ts';
import { insist, insistOk, type Rule, skipUnless } from '../rule.ts';
import type { Scene } from '../scene.ts';

const SOURCE = 'SPEC: DEL';

/** Rules of DEL. */
export const DEL_RULES: readonly Rule[] = [
  {
    id: 'del/clean',
    title: 'after ADD, DEL and deletion of the container, the host is unchanged',
    level: 'must',
    source: SOURCE,
    needs: 'attachment',
    check: exam =>
      warm(exam, async scene => {
        const before = scene.state();
        const pod = scene.pod();
        insistOk(await scene.add(pod), 'ADD');
        insistOk(await scene.del(pod), 'DEL');
        await scene.leave(pod);
        const left = await scene.changes(before);
        insist(!left.length, left.join('; '));
      }),
  },
  {
    id: 'del/undoes',
    title: 'after ADD and DEL, host and container are unchanged',
    level: 'should',
    source: SOURCE,
    needs: 'attachment',
    check: exam =>
      warm(exam, async scene => {
        const pod = scene.pod();
        const before = scene.state();
        insistOk(await scene.add(pod), 'ADD');
        insistOk(await scene.del(pod), 'DEL');
        const left = await scene.changes(before);
        insist(!left.length, left.join('; '));
      }),
  },
  {
    id: 'del/twice',
    title: 'DEL can be repeated',
    level: 'must',
    source: SOURCE,
    needs: 'attachment',
    check: exam =>
      added(exam, async (scene, pod) => {
        insistOk(await scene.del(pod), 'DEL');
        insistOk(await scene.del(pod), 'DEL, a second time');
      }),
  },
  {
    id: 'del/never-added',
    title: 'DEL of an attachment that was never added succeeds',
    level: 'must',
    source: SOURCE,
    needs: 'configuration',
    check: exam => exam.scene(async scene => insistOk(await scene.del(scene.pod()), 'DEL')),
  },
  {
    id: 'del/without-netns',
    title: 'DEL does not require CNI_NETNS',
    level: 'must',
    source: SOURCE,
    needs: 'attachment',
    check: exam =>
      added(exam, async (scene, pod) => {
        insistOk(await scene.del(pod, { env: { CNI_NETNS: undefined } }), 'DEL without CNI_NETNS');
        insistOk(await scene.del(pod, { env: { CNI_NETNS: '' } }), 'DEL with an empty CNI_NETNS');
      }),
  },
  {
    id: 'del/netns-gone',
    title: 'DEL succeeds when the namespace no longer exists',
    level: 'must',
    source: SOURCE,
    needs: 'attachment',
    check: exam =>
      added(exam, async (scene, pod) => {
        await scene.leave(pod);
        insistOk(await scene.del(pod), 'DEL without a namespace at CNI_NETNS');
      }),
  },
  {
    id: 'del/netns-gone-clean',
    title: 'that DEL leaves nothing on the host',
    level: 'should',
    source: SOURCE,
    needs: 'attachment',
    check: exam =>
      warm(exam, async scene => {
        const before = scene.state();
        const pod = scene.pod();
        await scene.add(pod);
        await scene.leave(pod);
        await scene.del(pod);
        const left = await scene.changes(before);
        skipUnless(
          exam.subject.device === undefined || !left.length,
          'the device was deleted with the namespace',
        );
        insist(!left.length, left.join('; '));
      }),
  },
  {
    id: 'del/without-result',
    title: 'DEL does not require prevResult',
    level: 'must',
    source: SOURCE,
    needs: 'attachment',
    async check(exam) {
      skipUnless(atLeast(exam.version, SINCE.prevResultOnDel), 'it supports no version that has it');
      await added(exam, async (scene, pod) => {
        insistOk(await scene.del(pod, { prevResult: null }), 'DEL without prevResult');
      });
    },
  },
  {
    id: 'del/without-path',
    title: 'CNI_PATH is not required if nothing is delegated',
    level: 'should',
    source: SOURCE,
    needs: 'attachment',
    async check(exam) {
      const { kind } = await exam.trial();
      skipUnless(kind === 'ipam' || exam.subject.conf?.ipam === undefined, 'it delegates to an IPAM plugin');
      await added(exam, async (scene, pod) => {
        insistOk(await scene.del(pod, { env: { CNI_PATH: undefined } }), 'DEL without CNI_PATH');
      });
    },
  },
];

async function added(exam: Exam, play: (scene: Scene, pod: Pod) => Promise<void>): Promise<void> {
  await exam.scene(async scene => {
    const pod = scene.pod();
    insistOk(await scene.add(pod), 'ADD');
    await play(scene, pod);
    // The tested call may have left something outside the fake host.
    await scene.del(pod);
  });
}
