// Is damage reported once, repaired with growing pauses, and left alone when repairs do not last?
import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { addNetwork } from '../../../src/chain/run/run.ts';
import { attachmentLister } from '../../../src/watch/attachments.ts';
import {
  afterCheck,
  afterRepair,
  Caretaker,
  type Condition,
  giveUp,
  pauseBefore,
} from '../../../src/watch/caretaker.ts';
import { ATTACHMENT, listOf, makeNoopChain } from '../../helpers/noop-chain.ts';

function lose(problemLeft: string | undefined): { news: unknown[]; pauses: unknown[]; end: Condition } {
  let condition: Condition | undefined;
  const [news, pauses]: unknown[][] = [[], []];
  for (let now = 1_000; ; ) {
    const after = afterCheck(condition, 'gone', now);
    news?.push(after.news);
    const pause = pauseBefore(after.condition, now);
    pauses?.push(pause);
    if (pause === 'never')
      return { news: news ?? [], pauses: pauses ?? [], end: giveUp(after.condition, now) };
    now += pause;
    condition = afterRepair(after.condition, problemLeft, now);
  }
}

describe('a condition', () => {
  test.each([
    ['that do not last', undefined],
    ['that fail', 'gone'],
  ])('repairs %s end', (_, left) => {
    const { news, pauses, end } = lose(left);
    expect(news).toEqual(['drifted', undefined, undefined, undefined, undefined]);
    expect(pauses).toEqual([0, 1_000, 2_000, 4_000, 'never']);
    const later = afterCheck(end, 'gone', 10_000_000);
    expect(later).toEqual({ condition: end, news: undefined });
    expect(afterCheck(end, undefined, 20_000)).toMatchObject({
      news: 'sound again',
      condition: { repairs: 0 },
    });
  });

  test('damage now and then, as by an operator who reloads a firewall, is repaired at once and reported', () => {
    let condition: Condition | undefined;
    const [news, pauses]: unknown[][] = [[], []];
    for (let i = 0; i < 5; i++) {
      const now = 1_000 + i * 3_000;
      const after = afterCheck(condition, 'flushed', now);
      news?.push(after.news);
      pauses?.push(pauseBefore(after.condition, now));
      condition = afterRepair(after.condition, undefined, now + 100);
    }
    expect(news).toEqual(Array(5).fill('drifted'));
    expect(pauses).toEqual(Array(5).fill(0));
  });

  test('damage every few seconds for ever is repaired with growing pauses, reported less, and given up', () => {
    let condition: Condition | undefined;
    let now = 1_000;
    const [news, pauses]: unknown[][] = [[], []];
    for (;;) {
      const after = afterCheck(condition, 'flushed', now);
      news?.push(after.news);
      const pause = pauseBefore(after.condition, now);
      if (pause === 'never') break;
      pauses?.push(pause);
      condition = afterRepair(after.condition, undefined, now + pause);
      now += pause + 3_000;
    }
    expect(news?.filter(Boolean)).toEqual([...Array(6).fill('drifted'), 'damaged often']);
    expect(pauses?.slice(0, 12)).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 0, 1_000, 5_000, 13_000]);
    expect(pauses).toHaveLength(20);
    expect(Math.max(...(pauses as number[]))).toBe(57_000);
  });

  test('other damage later is repaired at once', () => {
    const first = afterCheck(undefined, 'gone', 1_000).condition;
    const other = afterCheck(afterRepair(first, undefined, 1_000), 'down', 3_000);
    expect(other.news).toBe('drifted');
    expect(pauseBefore(other.condition, 3_000)).toBe(0);
  });
});

/** Visits an attachment whose CHECK runs a line of shell. @returns what was logged, checked and doubted */
async function visitTwice(check: string, isGone: boolean) {
  const chain = makeNoopChain();
  try {
    const netns = path.join(chain.dir, 'netns');
    fs.writeFileSync(netns, '');
    const plugin = `#!/bin/sh\ncat > /dev/null\n[ "$CNI_COMMAND" = CHECK ] || exec echo '{"cniVersion":"1.1.0"}'\n${check}\n`;
    fs.writeFileSync(path.join(chain.dir, 'own'), plugin, { mode: 0o755 });
    const runtime = { ...chain.runtime, pluginDirs: [chain.dir], deadlineMs: { CHECK: 500 } };
    await addNetwork(listOf('1.1.0', [{ type: 'own' }]), { ...ATTACHMENT, netns }, runtime);
    const [one] = attachmentLister([], runtime.cacheDir, () => false)();
    if (one === undefined) throw new Error('the attachment is not listed');
    if (isGone) fs.rmSync(netns);
    const [logged, doubted] = [[] as string[], [] as string[]];
    const caretaker = new Caretaker(
      {
        runtime,
        log: (level, message) => void logged.push(`${level} ${message.slice(0, 14)}`),
        acted() {},
        traced: (_verb, _one, own, work) => work(own),
      },
      {
        find: () => one,
        policyOf: () => 'observe',
        workOn: () => undefined,
        doubt: ({ containerId }) => void doubted.push(containerId),
        again() {},
      },
    );
    for (let i = 0; i < 2; i++) await caretaker.visit(one.key, async () => {});
    return { logged, doubted, checks: caretaker.state.checks };
  } finally {
    chain.dispose();
  }
}

describe('a visit', () => {
  test('asks a plugin that hangs once in ten minutes', async () => {
    expect(await visitTwice('exec sleep 60', false)).toEqual({
      logged: ['warn a plugin hangs'],
      doubted: [],
      checks: { unknown: 1 },
    });
  });

  test('doubts what was listed if the namespace is gone', async () => {
    expect(await visitTwice('exit 0', true)).toEqual({
      logged: [],
      doubted: ['c1', 'c1'],
      checks: { gone: 2 },
    });
    expect((await visitTwice('exit 0', false)).checks).toEqual({ sound: 2 });
  });
});
