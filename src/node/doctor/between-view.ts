// Is what the daemon keeps between nodes in the kernel as planned?

import { hostLinksOf } from '../../between/host.ts';
import { readNote } from '../../between/note.ts';
import { planWays } from '../../between/plan.ts';
import { findDifferences } from '../../between/settle.ts';
import type { BetweenView } from '../../between/state.ts';
import type { Tables } from '../../netlink/tables.ts';

/**
 * Plans as the daemon does, from the nodes that it was told last, and compares. Undefined if no daemon keeps routes to other nodes.
 * @throws Error without the right to look
 */
export function viewBetween(runDir: string, kernel: Tables): BetweenView | undefined {
  const note = readNote(runDir);
  if (note === undefined) return undefined;
  const { own, nodes } = note;
  const plan = planWays(nodes, hostLinksOf(kernel), note);
  const others = nodes.filter(({ name }) => name !== own).length;
  if (plan === undefined) {
    const problems = [`this node, "${own}", is not among the ${nodes.length} nodes`];
    return { own, nodes: others, routes: 0, problems, differences: [] };
  }
  const { ways, problems } = plan;
  return { own, nodes: others, routes: ways.length, problems, differences: findDifferences(plan) };
}
