// What is the shortest history that shows a violation?
//
// Much depends on chance, so a shorter history is run several times before it counts as one that does not show it.

import type { History, NodeReport, Round } from './history.ts';
import { runNode } from './spawn-node.ts';

/** A history that was made shorter. */
export interface Shrunk {
  readonly history: History;
  /** The last run that showed the violation. */
  readonly report: NodeReport;
  /** Histories that were tried. */
  readonly tries: number;
}

interface Limits {
  readonly shrinkSeconds: number;
  readonly nodes: number;
  readonly signal: AbortSignal;
}

/** Runs of one candidate until it counts as sound. */
const RUNS = 4;
const RUN_SECONDS = 120;

/** Removes rounds, then actions, as long as the same rule is broken. */
export async function shrink(found: NodeReport, root: string, limits: Limits): Promise<Shrunk> {
  const rule = found.violations[0]?.rule ?? '';
  const giveUpAt = performance.now() + limits.shrinkSeconds * 1000;
  const isOver = () => performance.now() > giveUpAt || limits.signal.aborted;
  let report = found;
  let tries = 0;
  const shows = async (rounds: readonly Round[]): Promise<boolean> => {
    tries += 1;
    const order = { root, seed: found.seed, steps: 0, seconds: RUN_SECONDS, without: [], rounds };
    const one = () => runNode(order, { signal: limits.signal });
    const runs = await Promise.all(Array.from({ length: Math.min(RUNS, limits.nodes) }, one));
    const hit = runs.find(run => run?.violations.some(violation => violation.rule === rule));
    if (hit) report = hit;
    return hit !== undefined;
  };
  // What was found after the round before is found by fewer rounds.
  let rounds: readonly Round[] = found.history.rounds;
  rounds = await reduce(rounds, shows, isOver);
  for (let i = 0; i < rounds.length && !isOver(); i++) {
    const withRound = (round: Round) => rounds.toSpliced(i, 1, round);
    const round = await reduce(rounds[i] ?? [], less => shows(withRound(less)), isOver);
    rounds = withRound(round);
  }
  rounds = rounds.filter(round => round.length > 0);
  return { history: { seed: found.seed, rounds }, report, tries };
}

/** Leaves out as many items as possible, in pieces that become smaller. */
async function reduce<T>(
  all: readonly T[],
  shows: (items: readonly T[]) => Promise<boolean>,
  isOver: () => boolean,
): Promise<readonly T[]> {
  let items = all;
  for (
    let size = Math.ceil(items.length / 2);
    size >= 1 && items.length > 1;
    size = size === 1 ? 0 : Math.ceil(size / 2)
  ) {
    for (let from = 0; from < items.length && items.length > 1 && !isOver(); ) {
      const less = items.toSpliced(from, size);
      if (less.length > 0 && (await shows(less))) items = less;
      else from += size;
    }
  }
  return items;
}
