// Does CHECK succeed when everything is in order, and fail when it is not?
import { atLeast, SINCE } from '../../cni/version.ts';
import { removeLink } from '../../netlink/rtnl/link.ts';
import type { Exam } from '../exam.ts';
import { warm } from '../play.ts';
import { insist, insistError, insistOk, type Rule, skipUnless } from '../rule.ts';

const SOURCE = 'SPEC: CHECK';

/** Rules of CHECK. */
export const CHECK_RULES: readonly Rule[] = [
  {
    id: 'check/after-add',
    title: 'CHECK succeeds after ADD',
    level: 'must',
    source: SOURCE,
    needs: 'attachment',
    async check(exam) {
      skipIfOlder(exam);
      await exam.scene(async scene => {
        const pod = scene.pod();
        await scene.add(pod);
        insistOk(await scene.check(pod), 'CHECK');
        insistOk(await scene.check(pod), 'CHECK, a second time');
        await scene.del(pod);
      });
    },
  },
  {
    id: 'check/changes-nothing',
    title: 'CHECK changes nothing',
    level: 'must',
    source: SOURCE,
    needs: 'attachment',
    async check(exam) {
      skipIfOlder(exam);
      await exam.scene(async scene => {
        const pod = scene.pod();
        await scene.add(pod);
        const before = scene.state();
        await scene.check(pod);
        const changes = await scene.changes(before);
        await scene.del(pod);
        insist(!changes.length, changes.join('; '));
      });
    },
  },
  {
    id: 'check/missing-interface',
    title: 'CHECK fails when the interface no longer exists',
    level: 'must',
    source: SOURCE,
    needs: 'attachment',
    async check(exam) {
      skipIfOlder(exam);
      const { kind, makesInterface } = await exam.trial();
      skipUnless(kind === 'main' && makesInterface, 'it does not create CNI_IFNAME');
      await exam.scene(async scene => {
        const pod = scene.pod();
        await scene.add(pod);
        removeLink(pod.container.route, exam.subject.ifname);
        insistError(await scene.check(pod), `CHECK without ${exam.subject.ifname}`);
        await scene.del(pod);
      });
    },
  },
  {
    id: 'check/after-del',
    title: 'CHECK fails when what ADD created no longer exists',
    level: 'must',
    source: SOURCE,
    needs: 'attachment',
    async check(exam) {
      skipIfOlder(exam);
      const { made } = await exam.trial();
      skipUnless(made.length, 'ADD creates nothing observable');
      await warm(exam, async scene => {
        const pod = scene.pod();
        const before = scene.state();
        await scene.add(pod);
        await scene.del(pod);
        const left = await scene.changes(before);
        skipUnless(!left.length, `DEL does not remove it: ${left.join('; ')}`);
        insistError(await scene.check(pod), 'CHECK after DEL');
      });
    },
  },
];

function skipIfOlder(exam: Exam): void {
  skipUnless(atLeast(exam.version, SINCE.check), 'it supports no version that has CHECK');
}
