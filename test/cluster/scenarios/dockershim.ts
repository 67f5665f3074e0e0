// Do pods of a kubelet that calls plugins itself, for docker, have their networks and ports, also after a restart of docker?

import type { Row } from '../../helpers/netns.ts';
import { awaiting } from '../awaiting.ts';
import { isReady } from '../cluster.ts';
import { unpackDocker } from '../docker.ts';
import { differences, holdingsOf } from '../holdings.ts';
import { manual } from '../manual.ts';
import { answerOf, fetchFrom, must, pod, type Scenario, untilAnswers, untilPods } from '../scenario.ts';

const PORT = 8080;
/** Before the manifest's. */
const LIST = '/etc/cni/net.d/00-0-docker.conflist';

/** The manual's list, as it has it for such a kubelet. */
function listForKubelet(): string {
  const { cniVersions: _, ...list } = JSON.parse(manual('pods.conflist'));
  return JSON.stringify({ ...list, cniVersion: '0.4.0' });
}

export const dockershim: Scenario = {
  name: 'kubelet with docker',
  async play(cluster, namespace, saw) {
    const missing = await unpackDocker();
    if (missing !== undefined) return saw(`skipped: ${missing}`);
    const { kubectl, wire } = cluster;
    const node = await cluster.join('docker');
    const { machine, place } = node;
    const own = { ...cluster, nodes: [...cluster.nodes, node] };
    try {
      await awaiting(`${place.name} to be ready`, 180, async () =>
        isReady(await kubectl.get('node', place.name)),
      );
      machine.write(LIST, listForKubelet());
      const held = await holdingsOf(machine);
      const on = { metadata: { namespace }, spec: { nodeName: place.name, restartPolicy: 'Always' } };
      const ports = [{ hostPort: PORT, containerPort: 80 }];
      await kubectl.apply(pod('one', on), pod('two', on), pod('port', { ...on, container: { ports } }));
      const answer = async (pods: readonly Row[]): Promise<void> => {
        for (const from of pods) {
          for (const { metadata, status } of pods) {
            const question = `${from.metadata.name} asks ${metadata.name}`;
            await untilAnswers(question, metadata.name, () => fetchFrom(own, from, `${status.podIP}:80`));
          }
        }
        const at = `${place.address}:${PORT}`;
        await untilAnswers(`outside asks ${at}`, 'port', () => answerOf(wire.lab, wire.lab.host, at));
      };
      const first = await untilPods(cluster, namespace, 3, 180);
      await answer(first);
      saw(`${first.length} pods answer each other, and one at a port of the host`);
      const before = new Set(first.map(containerOf));
      await node.stopDocker();
      await node.start('docker');
      const again = await awaiting('the pods after the restart of docker', 180, async () => {
        const pods = await untilPods(cluster, namespace, 3, 180);
        return pods.every(one => !before.has(containerOf(one))) && pods;
      });
      await answer(again);
      saw('they do after a restart of docker, which ended them');
      await kubectl('delete', 'pods', '-n', namespace, '--all', '--timeout=110s');
      const after = await answerOf(wire.lab, wire.lab.host, `${place.address}:${PORT}`);
      must(after === undefined, `the port of a deleted pod still answers ${after}`);
      let leaks: string[] = [];
      await awaiting(`${place.name} to hold what it did`, 90, async () => {
        leaks = differences(held, await holdingsOf(machine));
        return leaks.length === 0;
      }).catch(() => must(false, `${leaks.length} leaks: ${leaks.slice(0, 8).join(', ')}`));
      saw(`${place.name} holds nothing of deleted pods`);
    } finally {
      await node.close();
      await kubectl('delete', 'node', place.name);
    }
  },
};

function containerOf({ status }: Row): string {
  return String(status.containerStatuses?.[0]?.containerID);
}
