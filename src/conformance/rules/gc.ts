// Does GC delete exactly the attachments that are not listed as valid, and is STATUS answered?
import { ErrorCode } from '../../cni/errors.ts';
import { atLeast, SINCE } from '../../cni/version.ts';
import type { Exam } from '../exam.ts';
import { warm } from '../play.ts';
import { describeReply, insist, insistOk, type Rule, skipUnless } from '../rule.ts';
import { confOf } from '../subject.ts';

/** Rules of GC and STATUS. */
export const GC_RULES: readonly Rule[] = [
  {
    id: 'gc/idle',
    title: 'GC succeeds when there is nothing to collect',
    level: 'must',
    source: 'SPEC: GC',
    needs: 'attachment',
    async check(exam) {
      skipIfOlder(exam);
      await exam.scene(async scene => insistOk(await scene.gc([]), 'GC'));
    },
  },
  {
    id: 'gc/keeps-valid',
    title: 'GC keeps the valid attachments',
    level: 'must',
    source: 'SPEC: GC',
    needs: 'attachment',
    async check(exam) {
      skipIfOlder(exam);
      await exam.scene(async scene => {
        const pod = scene.pod();
        insistOk(await scene.add(pod), 'ADD');
        const before = scene.state();
        insistOk(await scene.gc([pod]), 'GC');
        const lost = await scene.changes(before);
        await scene.del(pod);
        insist(!lost.length, lost.join('; '));
      });
    },
  },
  {
    id: 'gc/removes-stale',
    title: 'GC removes what other attachments have left on the host',
    level: 'should',
    source: 'SPEC: GC',
    needs: 'attachment',
    async check(exam) {
      skipIfOlder(exam);
      const { made } = await exam.trial();
      const outside = made.filter(line => /^(host|files): /.test(line));
      skipUnless(outside.length, 'it leaves nothing on the host');
      await warm(exam, async scene => {
        const before = scene.state();
        const pod = scene.pod();
        insistOk(await scene.add(pod), 'ADD');
        await scene.leave(pod);
        insistOk(await scene.gc([]), 'GC');
        const changed = await scene.changes(before);
        await scene.del(pod);
        // What the network kept for its next attachment may go, too.
        const left = changed.filter(line => !/^[^:]+: - /.test(line));
        insist(!left.length, left.join('; '));
      });
    },
  },
  {
    id: 'status/answers',
    title: 'STATUS succeeds, or reports in an error object why ADD would fail',
    level: 'must',
    source: 'SPEC: STATUS',
    needs: 'configuration',
    async check(exam) {
      skipIfOlder(exam);
      const reply = await askStatus(exam);
      insist(reply.exitCode === 0 || reply.error, describeReply(reply));
    },
  },
  {
    id: 'status/ready',
    title: 'STATUS succeeds if ADD does',
    level: 'should',
    source: 'SPEC: STATUS',
    needs: 'attachment',
    async check(exam) {
      skipIfOlder(exam);
      const reply = await askStatus(exam);
      insist(reply.error?.code !== ErrorCode.unavailable, describeReply(reply));
      insistOk(reply, 'STATUS');
    },
  },
];

function askStatus(exam: Exam) {
  return exam.scene(async ({ host }) =>
    exam.call(host, 'STATUS', { conf: confOf(exam.subject, exam.version) }),
  );
}

function skipIfOlder(exam: Exam): void {
  skipUnless(atLeast(exam.version, SINCE.gc), `it supports no version newer than ${exam.version}`);
}
