// Is a node that joins not ready until Catena is, and do its pods wait for that?

import type { Row } from '../../helpers/netns.ts';
import { awaiting } from '../awaiting.ts';
import { isReady } from '../cluster.ts';
import { must, pod, type Scenario, untilPods } from '../scenario.ts';

const LIST = '/etc/cni/net.d';

export const readiness: Scenario = {
  name: 'readiness',
  async play(cluster, namespace, saw) {
    const { kubectl } = cluster;
    const node = await cluster.join();
    const { name } = node.place;
    try {
      await kubectl.apply(pod('early', { metadata: { namespace }, spec: { nodeName: name } }));
      const first = await condition(await kubectl.get('node', name));
      must(first.status === 'False', `${name} is ready before it has a network`);
      saw(`${name} joins: ${first.message.slice(0, 160)}`);
      const started = performance.now();
      let early = 0;
      await awaiting(`${name} to be ready`, 120, async () => {
        const object = await kubectl.get('node', name);
        const { exitCode } = await node.machine.run(['test', '-x', '/opt/cni/bin/flannel']);
        if (isReady(object) && exitCode !== 0) early++;
        return isReady(object);
      });
      must(early === 0, `${name} was ready without plugins`);
      const lists = await node.machine.ok(['ls', LIST]);
      await untilPods(cluster, namespace, 1);
      const seconds = ((performance.now() - started) / 1000).toFixed(0);
      saw(`ready, and its pod, ${seconds} s later with ${lists.split('\n').join(', ')} in ${LIST}`);
      await kubectl('delete', 'pod', '-n', namespace, 'early', '--timeout=110s');
      const status = async () => {
        const { exitCode, stdout, stderr } = await node.machine.run([
          '/opt/cni/bin/catena',
          'status',
          'pods',
        ]);
        return { exitCode, said: `${stdout}${stderr}`.trim().replaceAll('\n', ' ') };
      };
      const good = await status();
      must(good.exitCode === 0, `STATUS fails on a node that is ready: ${good.said}`);
      await node.machine.ok(['mv', '/run/flannel/subnet.env', '/run/flannel/away']);
      const bad = await status();
      must(bad.exitCode !== 0, 'STATUS does not tell that the node has no subnet');
      await node.machine.ok(['mv', '/run/flannel/away', '/run/flannel/subnet.env']);
      saw(`STATUS without the node's subnet: ${bad.said.slice(0, 200)}`);
    } finally {
      await node.close();
      await kubectl('delete', 'node', name);
    }
  },
};

function condition({ status }: Row): Row {
  return status.conditions.find(({ type }: Row) => type === 'Ready');
}
