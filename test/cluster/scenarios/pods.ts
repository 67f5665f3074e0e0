// Do pods on different nodes get networks, and reach each other and the client outside?

import { MACHINES } from '../addresses.ts';
import { fetchFrom, inPod, must, pod, type Scenario, untilAnswers, untilPods } from '../scenario.ts';

export const pods: Scenario = {
  name: 'pods answer across nodes',
  async play(cluster, namespace, saw) {
    const { kubectl, nodes } = cluster;
    const wanted = nodes.flatMap(({ place }) =>
      ['a', 'b'].map(letter =>
        pod(`${place.name}-${letter}`, { metadata: { namespace }, spec: { nodeName: place.name } }),
      ),
    );
    await kubectl.apply(...wanted);
    const found = await untilPods(cluster, namespace, wanted.length);
    for (const { metadata, spec, status } of found) {
      const place = nodes.find(({ place }) => place.name === spec.nodeName)?.place;
      const start = place?.pods.replace(/0\/24$/, '') ?? '';
      must(status.podIP.startsWith(start), `${metadata.name} has ${status.podIP}, not of ${place?.pods}`);
    }
    let answers = 0;
    for (const from of found.slice(0, 3)) {
      for (const { metadata, status } of found) {
        const question = `${from.metadata.name} asks ${metadata.name}`;
        await untilAnswers(question, metadata.name, () => fetchFrom(cluster, from, `${status.podIP}:80`));
        answers++;
      }
    }
    // One of three: a packet can be late on a machine that does other things.
    for (const from of found)
      await inPod(cluster, from, 'ping', '-n', '-c', '3', '-W', '2', MACHINES.outside);
    saw(
      `${found.length} pods on ${nodes.length} nodes; ${answers} requests between them answered by the right one`,
    );
  },
};
