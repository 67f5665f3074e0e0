// Do names of the greatest length get through records, cgroups and files?

import { must, pod, type Scenario, untilPods } from '../scenario.ts';
import { definition, NETWORKS, STATUS } from './definitions.ts';

/** kubelet's directory of logs is named by namespace, name and uid, in 255 bytes. */
const LONGEST = 255 - 36 - '__'.length;

export const longNames: Scenario = {
  name: 'long names',
  leaves: /^br-long$/,
  async play(cluster, namespace, saw) {
    const { kubectl, nodes } = cluster;
    const own = `${namespace}-`.padEnd(63, 'n');
    const name = ''.padEnd(LONGEST - own.length, 'p').replace(/.{60}/g, part => `${part.slice(0, 58)}.p`);
    const network = ''.padEnd(240, 'd').replace(/.{60}/g, part => `${part.slice(0, 58)}.d`);
    await kubectl('create', 'namespace', own);
    try {
      const lan = definition(own, network, 62, 'long');
      await kubectl.apply(lan);
      const annotations = { [NETWORKS]: `${own}/${network}@interface-of-15` };
      const spec = { nodeName: nodes[0]?.place.name };
      await kubectl.apply(pod(name, { metadata: { namespace: own, annotations }, spec }));
      const [found] = await untilPods(cluster, own, 1, 60);
      const [, extra] = JSON.parse(found?.metadata.annotations[STATUS] ?? '[]');
      must(extra?.interface === 'interface-of-15', `the status names ${extra?.interface}`);
    } finally {
      await kubectl('delete', 'namespace', own, '--timeout=110s');
    }
    saw(
      `a namespace of 63, a pod of ${name.length}, a network of ${network.length}, an interface of 15 characters`,
    );
  },
};
