// Do Services of kube-proxy lead to pods, from pod, node and outside?

import { awaiting } from '../awaiting.ts';
import { answerOf, deployment, fetchFrom, must, pod, type Scenario, untilPods } from '../scenario.ts';

const NODE_PORT = 30080;

export const services: Scenario = {
  name: 'services of kube-proxy',
  async play(cluster, namespace, saw) {
    const { kubectl, nodes, wire } = cluster;
    const metadata = { name: 'web', namespace };
    await kubectl.apply(
      { ...deployment('web', 4), metadata },
      {
        apiVersion: 'v1',
        kind: 'Service',
        metadata,
        spec: { type: 'NodePort', selector: { app: 'web' }, ports: [{ port: 80, nodePort: NODE_PORT }] },
      },
      ...nodes.map(({ place }) =>
        pod(`client-${place.name}`, { metadata: { namespace }, spec: { nodeName: place.name } }),
      ),
    );
    const found = await untilPods(cluster, namespace, 4 + nodes.length);
    const podNamed = (name: string) => found.find(({ metadata }) => metadata.name === name) ?? {};
    const behind = found
      .filter(({ metadata }) => metadata.labels?.app === 'web')
      .map(({ metadata }) => metadata.name);
    const { spec } = await kubectl.get('service', '-n', namespace, 'web');
    await awaiting('the endpoints', 30, async () => {
      const { subsets = [] } = await kubectl.get('endpoints', '-n', namespace, 'web');
      return subsets[0]?.addresses?.length === 4;
    });
    const check = async (from: string, ask: () => Promise<string | undefined>): Promise<void> => {
      const seen = new Set<string>();
      // kube-proxy writes its rules a moment later.
      await awaiting(`an answer of the service to ${from}`, 30, async () => {
        const answer = await ask();
        return answer !== undefined && behind.includes(answer);
      });
      for (let i = 0; i < 12; i++) {
        const answer = await ask();
        must(answer !== undefined && behind.includes(answer), `the service answers ${answer} to ${from}`);
        seen.add(answer ?? '');
      }
      saw(`from ${from}: 12 of 12 answered, by ${seen.size} of 4 pods`);
    };
    for (const { place, machine } of nodes) {
      await check(`a pod of ${place.name}`, () =>
        fetchFrom(cluster, podNamed(`client-${place.name}`), `${spec.clusterIP}:80`),
      );
      await check(place.name, () => answerOf(wire.lab, machine.lab.host, `${spec.clusterIP}:80`));
    }
    for (const { place } of nodes) {
      await check(`outside at ${place.name}`, () =>
        answerOf(wire.lab, wire.lab.host, `${place.address}:${NODE_PORT}`),
      );
    }
    // A pod that is chosen to answer itself, which needs hairpin mode.
    const [own = ''] = behind;
    let answered = 0;
    for (let i = 0; i < 12; i++) {
      const answer = await fetchFrom(cluster, podNamed(own), `${spec.clusterIP}:80`);
      if (answer !== undefined) answered++;
    }
    must(answered === 12, `a pod behind the service got ${answered} of 12 answers`);
    saw('a pod behind it: 12 of 12');
    const bridged = await wire.lab.run(nodes[0]?.machine.lab.host ?? wire.lab.host, [
      ...['cat', '/proc/sys/net/bridge/bridge-nf-call-iptables'],
    ]);
    saw(`bridge-nf-call-iptables ${bridged.stdout.trim() || 'is not in this kernel'}`);
  },
};
