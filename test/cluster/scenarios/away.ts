// Do pods work, go, and come back, while the API server is away for five minutes?

import type { Row } from '../../helpers/netns.ts';
import { awaiting } from '../awaiting.ts';
import { type Cluster, isReady } from '../cluster.ts';
import { answerOf, deployment, type Scenario, untilPods } from '../scenario.ts';

const PODS = 12;
const AWAY_S = 300;

export const away: Scenario = {
  name: 'api server away',
  async play(cluster, namespace, saw) {
    const { kubectl, control } = cluster;
    await kubectl.apply({ ...deployment('web', PODS), metadata: { name: 'web', namespace } });
    const before = await untilPods(cluster, namespace, PODS);
    await control.killApiServer();
    const since = Date.now();
    let asked = 0;
    try {
      // kubelet deletes the rest of such a pod, and makes it again, for which the runner has to report its networks.
      const victims = before.filter((_, i) => i % 2 === 0);
      for (const victim of victims) await killSandbox(cluster, victim);
      const others = before.filter(pod => !victims.includes(pod));
      while (Date.now() - since < AWAY_S * 1000) {
        for (const pod of others) {
          await awaiting(`an answer of ${pod.metadata.name} without the API server`, 30, () =>
            answers(cluster, pod),
          );
          asked++;
        }
        await Bun.sleep(5000);
      }
      const there = await Promise.all(victims.map(pod => answers(cluster, pod)));
      saw(`away for ${AWAY_S} s: ${asked} requests to ${others.length} pods answered`);
      saw(
        `${victims.length} sandboxes killed then: ${there.filter(one => one).length} of these pods answer without it`,
      );
    } finally {
      await control.startApiServer();
    }
    const started = performance.now();
    await awaiting('all pods after the API server is back', 240, async () => {
      const pods = await kubectl.list('pods', '-n', namespace);
      const all = await Promise.all(pods.map(pod => answers(cluster, pod)));
      return pods.length === PODS && pods.every(isReady) && all.every(one => one);
    });
    saw(`all ${PODS} answer ${((performance.now() - started) / 1000).toFixed(0)} s after it is back`);
  },
};

/** Ends the process that holds a pod's namespaces. */
async function killSandbox({ nodes }: Cluster, { metadata, spec }: Row): Promise<void> {
  const node = nodes.find(({ place }) => place.name === spec.nodeName);
  const ctr = async (...args: string[]): Promise<string> =>
    (await node?.machine.ok(['ctr', '--namespace', 'k8s.io', ...args])) ?? '';
  const labels = ['io.cri-containerd.kind==sandbox', `io.kubernetes.pod.name==${metadata.name}`];
  const filter = labels.map(one => one.replace(/^(.*)==/, 'labels."$1"==')).join();
  const [id = ''] = (await ctr('containers', 'ls', '--quiet', filter)).split('\n');
  await ctr('task', 'kill', '--signal', 'SIGKILL', id);
}

/** Whether a pod answers a node with its name. */
async function answers({ nodes, wire }: Cluster, { metadata, status }: Row): Promise<boolean> {
  const from = nodes[0]?.machine.lab.host ?? wire.lab.host;
  return (await answerOf(wire.lab, from, `${status.podIP}:80`)) === metadata.name;
}
