// Which scenarios are played, in which order, and what is reported of each?

import fs from 'node:fs';
import path from 'node:path';
import { awaiting } from './awaiting.ts';
import { type Cluster, isReady, type Say } from './cluster.ts';
import { collect } from './collect.ts';
import { differences, type Holdings, holdingsOf } from './holdings.ts';
import { type FiguresAsked, type Scenario, untilPods } from './scenario.ts';
import { SCENARIOS } from './scenarios.ts';

/** Plays those whose name contains one of the words. @returns the exit code */
export async function playScenarios(
  cluster: Cluster,
  words: readonly string[],
  asked: FiguresAsked,
  say: Say,
): Promise<number> {
  const chosen = SCENARIOS.filter(
    ({ name }) => words.length === 0 || words.some(word => name.includes(word)),
  );
  if (chosen.length === 0) {
    say(`No scenario has such a name: ${SCENARIOS.map(({ name }) => name).join(', ')}`);
    return 2;
  }
  const rows: string[] = ['| scenario | seconds | saw |', '|---|---|---|'];
  let failed = 0;
  for (const scenario of chosen) {
    const started = performance.now();
    const saw: string[] = [];
    say(scenario.name);
    const see = (line: string): void => {
      saw.push(line);
      say(`    ${line}`);
    };
    await play(cluster, scenario, asked, see).catch(error => {
      failed++;
      for (const line of [
        `FAILED: ${error instanceof Error ? error.message.trim().replaceAll('\n', ' ') : error}`,
        `see ${placeOf(cluster, scenario)}`,
      ])
        see(line);
    });
    const seconds = ((performance.now() - started) / 1000).toFixed(0);
    rows.push(`| ${scenario.name} | ${seconds} | ${saw.join('; ')} |`);
    say(`    ${seconds} s`);
  }
  const table = `${rows.join('\n')}\n`;
  fs.writeFileSync(path.join(cluster.logs, 'scenarios.md'), table);
  say(`\n${table}\n${chosen.length - failed} scenarios passed, ${failed} failed`);
  return failed === 0 ? 0 : 1;
}

/** Plays one in a namespace of its own, and compares what the nodes hold before and after. */
async function play(
  cluster: Cluster,
  scenario: Scenario,
  asked: FiguresAsked,
  see: (line: string) => void,
): Promise<void> {
  const { kubectl, nodes } = cluster;
  const namespace = `s-${scenario.name.replaceAll(/[^a-z0-9]+/g, '-')}`;
  const look = () => Promise.all(nodes.map(({ machine }) => holdingsOf(machine)));
  // What an earlier scenario that failed has left is on its way out.
  let held: Holdings[] = [];
  await awaiting('the nodes to be at rest', 60, async () => {
    const earlier = held;
    await Bun.sleep(1000);
    held = await look();
    return Bun.deepEquals(earlier, held) && (await areNodesFree(cluster));
  });
  await kubectl('create', 'namespace', namespace);
  // That its pods are gone shows on the nodes; the controller takes longer to remove the namespace itself.
  const remove = () => kubectl('delete', 'namespace', namespace, '--wait=false');
  try {
    await scenario.play(cluster, namespace, see, asked);
  } catch (error) {
    // While its pods are there.
    await collect(cluster, placeOf(cluster, scenario));
    // Why it failed says more than what follows from that. What its pods hold must not be taken for what the next scenario found.
    await remove()
      .then(() => untilPods(cluster, namespace, 0))
      .catch(() => {});
    throw error;
  }
  await remove();
  if (scenario.endsCatena) return;
  let last: string[] = [];
  await awaiting('the nodes to hold what they did', 150, async () => {
    const now = await look();
    last = now.flatMap((one, i) =>
      differences(held[i] ?? one, one, scenario.leaves).map(line => `${nodes[i]?.place.name}: ${line}`),
    );
    return last.length === 0;
  }).catch(async () => {
    await collect(cluster, placeOf(cluster, scenario));
    const shown = last.slice(0, 8).map(line => line.slice(0, 200));
    throw new Error(`${last.length} leaks: ${shown.join(', ')}`);
  });
  see('0 leaks');
}

/** A node that was away is ready a moment before pods may come to it. */
async function areNodesFree({ kubectl }: Cluster): Promise<boolean> {
  return (await kubectl.list('nodes')).every(node => isReady(node) && !node.spec.taints?.length);
}

function placeOf({ logs }: Cluster, { name }: Scenario): string {
  return path.join(logs, `failed-${name.replaceAll(' ', '-')}`);
}
