// Is every request tried, and all garbage reported?
import { describe, expect, test } from 'bun:test';
import type { Reply } from '../../../../src/lab/call.ts';
import { sweepFaults } from '../../../../src/lab/testing/sweep.ts';

const OK: Reply = { exitCode: 0, stdout: '', stderr: '', durationMs: 0 };

/** A plugin whose ADD takes three steps and forgets some of them when it fails. */
function plugin({ forgets = [] as number[], survives = [] as number[] } = {}) {
  const present = new Set<number>();
  return {
    async add(failAt: number): Promise<Reply> {
      for (let step = 1; step <= 3; step++) {
        if (step !== failAt) {
          present.add(step);
          continue;
        }
        const fault = { request: step, what: `step ${step}` };
        if (survives.includes(step)) return { ...OK, fault };
        for (const one of present) if (!forgets.includes(one)) present.delete(one);
        return { ...OK, exitCode: 1, error: { code: 999, msg: 'no' }, fault };
      }
      return OK;
    },
    async del() {
      present.clear();
      return OK;
    },
    state: () => [...present],
    diff: (before: number[], after: number[]) =>
      after.filter(one => !before.includes(one)).map(one => `step ${one}`),
  };
}

describe('sweepFaults()', () => {
  test('reports one ADD per request', async () => {
    const reports = await sweepFaults(plugin({ survives: [2] }));
    expect(reports.map(({ request, failed, left }) => [request, failed, left])).toEqual([
      [1, true, []],
      [2, false, []],
      [3, true, []],
    ]);
  });

  test('throws with everything that was left, and continues after the first', () => {
    expect(sweepFaults(plugin({ forgets: [1, 2] }))).rejects.toThrow(
      'Failed ADDs leave something behind:\n  request 2 (step 2): step 1\n  request 3 (step 3): step 1; step 2',
    );
  });

  test('reports that nothing can be made to fail', () => {
    const deaf = { ...plugin(), add: async () => OK };
    expect(sweepFaults(deaf)).rejects.toThrow('Cannot inject a fault');
  });

  test('reports that ADD does not work', () => {
    const broken = { ...plugin(), add: async () => ({ ...OK, exitCode: 1, stdout: 'oops' }) };
    expect(sweepFaults(broken)).rejects.toThrow(
      'Cannot run ADD even without an injected fault: exit status 1: oops',
    );
  });
});
