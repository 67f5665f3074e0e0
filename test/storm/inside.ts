// What runs inside a node: one seed, or one history again.

import fs from 'node:fs';
import { Driver } from './driver.ts';
import { FEATURES } from './features.ts';
import { finish } from './finish.ts';
import type { History, NodeReport, Round, Violation } from './history.ts';
import { Place } from './place.ts';
import { Planner } from './plan.ts';
import { Random } from './random.ts';

/** What a node is to do, as JSON in the first argument. */
export interface Order {
  /** Directory of the storm, and this node's name in it. */
  readonly root: string;
  readonly node: string;
  readonly seed: number;
  readonly steps: number;
  readonly seconds: number;
  readonly without: readonly string[];
  /** Rounds to run instead of those of the seed. */
  readonly rounds?: readonly Round[];
  readonly report: string;
}

const order = JSON.parse(process.argv[2] ?? '{}') as Order;
const started = performance.now();
const features = new Set(FEATURES.filter(feature => !order.without.includes(feature)));
const driver = new Driver(new Place(order.root, order.node), features);
const planner = new Planner(new Random(order.seed), driver.model, features);
const rounds: Round[] = [];
const violations: Violation[] = [];

try {
  await driver.open();
  while (violations.length === 0) {
    const round = order.rounds ? order.rounds[rounds.length] : planner.next();
    const isOver = driver.steps >= order.steps || performance.now() - started > order.seconds * 1000;
    if (round === undefined || (isOver && !order.rounds)) break;
    if (round.length === 0) continue;
    rounds.push(round);
    violations.push(...(await driver.run(round)));
  }
  if (violations.length === 0) violations.push(...(await finish(driver)));
} catch (error) {
  violations.push({ rule: 'the storm itself failed', text: String((error as Error).stack ?? error) });
}
const history: History = { seed: order.seed, rounds };
const report: NodeReport = {
  ...{
    seed: order.seed,
    steps: driver.steps,
    rounds: rounds.length,
    kinds: driver.kinds,
    violations,
    history,
  },
  ...{ log: driver.log, seconds: (performance.now() - started) / 1000 },
};
fs.writeFileSync(order.report, JSON.stringify(report));
process.exit(0);
