// Do all pods of a node come back after it was rebooted, with networks that work?

import type { Row } from '../../helpers/netns.ts';
import { awaiting } from '../awaiting.ts';
import { isReady } from '../cluster.ts';
import { answerOf, deployment, type Scenario, untilAnswers, untilPods } from '../scenario.ts';

const PODS = 8;

export const reboot: Scenario = {
  name: 'node reboot',
  // Bridges of earlier scenarios.
  leaves: /^br-/,
  async play(cluster, namespace, saw) {
    const { kubectl, nodes, wire } = cluster;
    const node = nodes.at(-1);
    if (node === undefined) throw new Error('a cluster has a node');
    const spec = { nodeName: node.place.name };
    await kubectl.apply({
      ...deployment('web', PODS, { spec, container: { ports: [{ containerPort: 80 }] } }),
      metadata: { name: 'web', namespace },
    });
    const before = await untilPods(cluster, namespace, PODS);
    const ids = new Set(before.map(idOf));
    const started = performance.now();
    await node.reboot();
    const after = await awaiting('the pods after the reboot', 180, async () => {
      const pods = await kubectl.list('pods', '-n', namespace);
      const back = pods.filter(pod => isReady(pod) && !ids.has(idOf(pod)));
      return back.length === PODS && pods.length === PODS && back;
    });
    const seconds = ((performance.now() - started) / 1000).toFixed(0);
    const other = nodes[0]?.machine.lab.host ?? wire.lab.host;
    for (const { metadata, status } of after) {
      await untilAnswers(`${metadata.name} is asked`, metadata.name, () =>
        answerOf(wire.lab, other, `${status.podIP}:80`),
      );
    }
    saw(`${PODS} pods of ${node.place.name} were back ${seconds} s after the reboot, and answer`);
  },
};

function idOf({ status }: Row): string {
  return status.containerStatuses?.[0]?.containerID;
}
