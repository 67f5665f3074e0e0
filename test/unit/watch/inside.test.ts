// Does a container in which things change all the time cost little, and do the others have their turn?
import { expect, test } from 'bun:test';
import { Credit } from '../../../src/watch/credit.ts';
import { visitInside } from '../../../src/watch/inside.ts';

/** Lets what has been asked for happen. */
const settle = () => new Promise(resolve => setTimeout(resolve, 20));

function harness(left: number) {
  const credit = new Credit(50);
  credit.spend(performance.now(), 2_000 - left);
  const [visited, pauses] = [[] as string[], [] as number[]];
  const resume: (() => void)[] = [];
  let found = 0;
  const ask = visitInside({
    credit,
    async visit(key) {
      visited.push(key);
      if (key.startsWith('damaged')) found += 1;
      else await Bun.sleep(5);
    },
    found: () => found,
    later(work, ms) {
      pauses.push(ms);
      resume.push(work);
    },
  });
  return { ask, visited, pauses, resume };
}

test('each is visited once, however often it is asked for', async () => {
  const { ask, visited } = harness(1_000);
  ask(['a', 'b', 'a']);
  ask(['b']);
  await settle();
  expect(visited).toEqual(['a', 'b']);
});

test('without credit they wait, once for all; one that changes again has its turn after the others', async () => {
  const { ask, visited, pauses, resume } = harness(-100);
  ask(['noisy']);
  ask(['quiet', 'noisy']);
  await settle();
  expect([visited, pauses.length, resume.length]).toEqual([[], 1, 1]);
  expect(pauses[0]).toBeGreaterThan(4_000);
});

test('visits that find damage cost no credit', async () => {
  const { ask, visited, pauses } = harness(3);
  ask(['damaged 1', 'damaged 2', 'damaged 3', 'sound', 'next']);
  await settle();
  expect(visited).toEqual(['damaged 1', 'damaged 2', 'damaged 3', 'sound']);
  expect(pauses).toHaveLength(1);
});
