// Does a pod get the address of the pod before it, which an IPAMClaim keeps?

import { must, pod, type Scenario, untilPods } from '../scenario.ts';
import { definition, NETWORKS, STATUS } from './definitions.ts';

export const claims: Scenario = {
  name: 'address claims',
  leaves: /^br-kept$/,
  async play(cluster, namespace, saw) {
    const { kubectl, nodes } = cluster;
    const spec = { nodeName: nodes[0]?.place.name };
    const start = async (name: string, claim?: string): Promise<string> => {
      const networks = JSON.stringify([
        { name: 'kept', ...(claim === undefined ? {} : { 'ipam-claim-reference': claim }) },
      ]);
      const before = (await kubectl.list('pods', '-n', namespace)).length;
      await kubectl.apply(
        pod(name, { metadata: { namespace, annotations: { [NETWORKS]: networks } }, spec }),
      );
      const all = await untilPods(cluster, namespace, before + 1);
      const one = all.find(({ metadata }) => metadata.name === name);
      const [, kept] = JSON.parse(one?.metadata.annotations[STATUS] ?? '[]');
      return String(kept?.ips?.[0]);
    };
    const claim = async () => (await kubectl.get('ipamclaims', '-n', namespace, 'disk')).status?.ips;
    await kubectl.apply(definition(namespace, 'kept', 65), {
      apiVersion: 'k8s.cni.cncf.io/v1alpha1',
      kind: 'IPAMClaim',
      metadata: { name: 'disk', namespace },
      spec: { network: 'kept', interface: 'net1' },
    });
    const first = await start('first', 'disk');
    must(
      JSON.stringify(await claim()) === JSON.stringify([`${first}/24`]),
      `the pod has ${first}, the claim ${JSON.stringify(await claim())}`,
    );
    await kubectl('delete', 'pod', '-n', namespace, 'first', '--timeout=110s');
    const other = await start('other');
    const second = await start('second', 'disk');
    must(second === first, `the second pod of the claim has ${second}, not ${first}`);
    must(other !== first, `a pod without claim has ${other}, too`);
    saw(`two pods of a claim, one after the other, have ${first}; one without it has ${other}`);
  },
};
