// Do pods that are deleted by force, also while they start, leave anything?

import { deployment, pod, type Scenario, untilPods } from '../scenario.ts';

const PODS = 12;

export const force: Scenario = {
  name: 'pods deleted by force',
  async play(cluster, namespace, saw) {
    const { kubectl, nodes } = cluster;
    const now = ['--grace-period=0', '--force'];
    await kubectl.apply({ ...deployment('web', PODS), metadata: { name: 'web', namespace } });
    await untilPods(cluster, namespace, PODS);
    await kubectl('delete', 'pod', '-n', namespace, '--all', ...now);
    await untilPods(cluster, namespace, PODS);
    saw(`${PODS} ready pods deleted by force, and as many in their place`);
    const made = nodes.flatMap(({ place }, i) =>
      [0, 1, 2, 3].map(j =>
        pod(`short-${i}-${j}`, { metadata: { namespace }, spec: { nodeName: place.name } }),
      ),
    );
    await kubectl.apply(...made);
    await Bun.sleep(700);
    await kubectl('delete', '-n', namespace, 'pod', ...now, ...made.map(({ metadata }) => metadata.name));
    await kubectl('delete', '-n', namespace, 'deployment', 'web');
    await untilPods(cluster, namespace, 0);
    saw(`${made.length} pods deleted by force while they started`);
  },
};
