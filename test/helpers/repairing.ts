// Which tests does a node of a runtime pass under a daemon that repairs?
import { expect, test } from 'bun:test';
import { BEYOND_REPAIR, scenesApart } from './damage-scenes.ts';
import {
  type DamagedNode,
  damageOneByOne,
  expectOutcomes,
  prepareNode,
  startRepairing,
} from './damage-table.ts';
import type { WholeNode, WithNode } from './damaged-nodes.ts';
import { expectWays } from './node-damage.ts';

/** @param onNode makes a node of the runtime */
export function testRepairing(onNode: WithNode): void {
  const onRepairing = (body: (node: DamagedNode, whole: WholeNode) => Promise<void>) =>
    onNode(async whole => {
      await startRepairing(whole.machine);
      await body(await prepareNode(whole), whole);
    });

  test.each(scenesApart(3))(
    'are repaired after each damage, or the reason why not is told; a transfer of a neighbour goes on, part %#',
    (...scenes) => onRepairing(node => expectOutcomes(node, scenes)),
  );

  test('are repaired after damages of the node; a damage beyond repair is told', () =>
    onRepairing(async (node, { maker }) => {
      if (maker) await expectWays(node, maker);
      const [told] = await damageOneByOne(node, [BEYOND_REPAIR]);
      expect(told?.outcome).toBe(BEYOND_REPAIR.outcome);
    }));
}
