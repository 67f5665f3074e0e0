// Are Deployments scaled up and down without a trace?

import { deployment, type Scenario, untilPods } from '../scenario.ts';

const UP = 30;

export const deployments: Scenario = {
  name: 'deployments scaled',
  async play(cluster, namespace, saw) {
    const { kubectl } = cluster;
    await kubectl.apply({ ...deployment('web', 1), metadata: { name: 'web', namespace } });
    await untilPods(cluster, namespace, 1);
    const times: string[] = [];
    for (const replicas of [UP, 2, UP, 0]) {
      const started = performance.now();
      await kubectl('scale', '-n', namespace, 'deployment/web', `--replicas=${replicas}`);
      await untilPods(cluster, namespace, replicas, 240);
      times.push(`${replicas} after ${((performance.now() - started) / 1000).toFixed(0)} s`);
    }
    saw(times.join(', '));
  },
};
