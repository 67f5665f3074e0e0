// Do ports of the host lead to their pods, with addresses and protocols?

import { answerOf, must, pod, type Scenario, untilAnswers, untilPods } from '../scenario.ts';

export const hostPorts: Scenario = {
  name: 'host ports',
  async play(cluster, namespace, saw) {
    const { kubectl, nodes, wire } = cluster;
    const [first, second] = nodes;
    if (first === undefined) throw new Error('a cluster has a node');
    const { name, address } = first.place;
    const ports = (...all: object[]) => ({ container: { ports: all } });
    const on = { metadata: { namespace }, spec: { nodeName: name } };
    await kubectl.apply(
      pod('any', { ...on, ...ports({ hostPort: 8080, containerPort: 80 }) }),
      // The same port once more, at another address, which another pod may have.
      pod('local', { ...on, ...ports({ hostPort: 8081, containerPort: 80, hostIP: '127.0.0.1' }) }),
      pod('node', { ...on, ...ports({ hostPort: 8081, containerPort: 80, hostIP: address }) }),
      pod('udp', {
        ...on,
        container: {
          command: ['sh', '-c', 'while true; do echo udp | busybox nc -u -l -p 53 -w 1; done'],
          ports: [{ hostPort: 8080, containerPort: 53, protocol: 'UDP' }],
        },
      }),
    );
    await untilPods(cluster, namespace, 4);
    const asked: [string, string, string, typeof wire.lab.host][] = [
      ['outside', `${address}:8080`, 'any', wire.lab.host],
      ['outside', `${address}:8081`, 'node', wire.lab.host],
      ['node', '127.0.0.1:8080', 'any', first.machine.lab.host],
      ['node', '127.0.0.1:8081', 'local', first.machine.lab.host],
      ['node', `${address}:8080`, 'any', first.machine.lab.host],
    ];
    if (second) asked.push(['another node', `${address}:8080`, 'any', second.machine.lab.host]);
    for (const [from, at, wanted, ns] of asked) {
      await untilAnswers(`${from} asks ${at}`, wanted, () => answerOf(wire.lab, ns, at));
    }
    saw(`${asked.length} requests from outside, node and another node came to the right pod`);
    await kubectl('delete', 'pod', '-n', namespace, 'any', '--timeout=110s');
    const after = await answerOf(wire.lab, wire.lab.host, `${address}:8080`);
    must(after === undefined, `${address}:8080 still answers ${after}`);
    saw('a port is closed with its pod');
  },
};
