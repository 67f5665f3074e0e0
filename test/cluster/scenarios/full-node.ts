// Does a node take 110 pods, which is as many as kubelet allows by default?

import { deployment, must, type Scenario, untilPods } from '../scenario.ts';

const PODS = 110;

export const fullNode: Scenario = {
  name: '110 pods on a node',
  async play(cluster, namespace, saw) {
    const { kubectl, nodes } = cluster;
    const spec = { nodeName: nodes[0]?.place.name };
    await kubectl.apply({ ...deployment('web', PODS, { spec }), metadata: { name: 'web', namespace } });
    const started = performance.now();
    const pods = await untilPods(cluster, namespace, PODS, 600);
    const addresses = new Set(pods.map(({ status }) => status.podIP));
    must(addresses.size === PODS, `${PODS} pods have ${addresses.size} addresses`);
    saw(
      `ready after ${((performance.now() - started) / 1000).toFixed(0)} s, each with an address of its own`,
    );
    const deleted = performance.now();
    await kubectl('delete', '-n', namespace, 'deployment', 'web');
    await untilPods(cluster, namespace, 0, 600);
    saw(`gone after ${((performance.now() - deleted) / 1000).toFixed(0)} s`);
  },
};
