// Do the pods of a node that is drained move to others, without a trace on it?

import { awaiting } from '../awaiting.ts';
import { isReady, untilReady } from '../cluster.ts';
import { differences, holdingsOf } from '../holdings.ts';
import { deployment, must, type Scenario, untilPods } from '../scenario.ts';

const PODS = 12;

export const drain: Scenario = {
  name: 'node drained',
  async play(cluster, namespace, saw) {
    const { kubectl, nodes } = cluster;
    const node = nodes.at(-1);
    if (node === undefined || nodes.length < 2) return saw('needs two nodes: not played');
    const { name } = node.place;
    await untilReady(cluster);
    const held = await holdingsOf(node.machine);
    await kubectl.apply({ ...deployment('web', PODS), metadata: { name: 'web', namespace } });
    // A scheduler whose watches the API server refused a moment ago may still take the node for one that is away.
    const there = await awaiting(`one of ${PODS} pods on ${name}`, 120, async () => {
      const pods = await untilPods(cluster, namespace, PODS);
      const count = pods.filter(({ spec }) => spec.nodeName === name).length;
      if (count > 0) return count;
      await kubectl('rollout', 'restart', 'deployment/web', '-n', namespace);
      await kubectl('rollout', 'status', 'deployment/web', '-n', namespace, '--timeout=60s');
      return undefined;
    });
    try {
      await kubectl('drain', name, '--ignore-daemonsets', '--timeout=100s');
      const after = await awaiting(`${PODS} pods elsewhere`, 120, async () => {
        const pods = await kubectl.list('pods', '-n', namespace);
        return pods.length === PODS && pods.every(isReady) && pods;
      });
      must(
        after.every(({ spec }) => spec.nodeName !== name),
        `pods came to ${name}, which is drained`,
      );
      let left: string[] = [];
      await awaiting('the drained node to hold what it did', 60, async () => {
        left = differences(held, await holdingsOf(node.machine));
        return left.length === 0;
      }).catch(() => must(false, `${name} keeps ${left.join(', ')}`));
    } finally {
      await kubectl('uncordon', name);
    }
    saw(`${there} of ${PODS} pods moved; ${name} holds nothing of them`);
  },
};
