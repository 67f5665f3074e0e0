// Can a pod of one tenant get the network of another, where the list isolates namespaces?

import { must, pod, type Scenario, untilPods, untilRefused } from '../scenario.ts';
import { definition, NETWORKS, STATUS } from './definitions.ts';

export const tenants: Scenario = {
  name: 'two tenants',
  leaves: /^br-private$/,
  async play(cluster, namespace, saw) {
    const { kubectl, nodes } = cluster;
    const other = `${namespace}-other`;
    const spec = { nodeName: nodes[0]?.place.name };
    const wanting = (where: string, name: string, networks: string) =>
      pod(name, { metadata: { namespace: where, annotations: { [NETWORKS]: networks } }, spec });
    await kubectl('create', 'namespace', other);
    try {
      await kubectl.apply(definition(other, 'private', 64), wanting(other, 'owner', 'private'));
      const [owner] = await untilPods(cluster, other, 1);
      must(
        owner?.metadata.annotations[STATUS]?.includes(`"${other}/private"`),
        `the owner has not its network: ${owner?.metadata.annotations[STATUS]}`,
      );
      saw('a pod of the namespace that has the definition gets the network');
      await kubectl.apply(
        wanting(namespace, 'thief', `${other}/private`),
        wanting(namespace, 'guesser', 'private'),
      );
      const refused = await untilRefused(cluster, namespace, 'thief');
      must(
        refused.includes('namespaceIsolation'),
        `the pod of another namespace is refused with: ${refused}`,
      );
      const unknown = await untilRefused(cluster, namespace, 'guesser');
      must(unknown.includes(`${namespace}/private`), `the plain name is refused with: ${unknown}`);
      saw('one of another namespace is refused, by full name and by plain name');
    } finally {
      await kubectl('delete', 'namespace', other, '--timeout=110s');
    }
  },
};
