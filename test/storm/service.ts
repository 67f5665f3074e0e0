// Does a Service that was there before all pods keep its ports, whichever pods map the same ones?

import { createServer } from 'node:net';
import { ask } from './actors/listeners.ts';
import type { Violation } from './history.ts';
import { HOST_PORTS } from './networks.ts';
import { tool } from './node.ts';

const ADDRESS = '10.96.0.1';
const TOKEN = 'service';
const BACKEND_PORT = 7000;

/** As kube-proxy does in its mode iptables. Call after all rules were lost. */
export async function writeService(): Promise<void> {
  const ports = [HOST_PORTS[0], HOST_PORTS.at(-1)].join(':');
  const rule = ['OUTPUT', '-d', ADDRESS, '-p', 'tcp', '--dport', ports, '-j', 'DNAT'];
  await tool(['iptables', '-t', 'nat', '-A', ...rule, '--to', `${ADDRESS}:${BACKEND_PORT}`]);
}

/** Makes the Service, whose address is the node's. */
export async function openService(): Promise<void> {
  await tool(['ip', 'address', 'add', `${ADDRESS}/32`, 'dev', 'lo']);
  await writeService();
  const server = createServer(socket => {
    socket.on('error', () => {});
    socket.end(JSON.stringify({ token: TOKEN, somaxconn: '' }));
  });
  const listening = Promise.withResolvers<void>();
  server.listen(BACKEND_PORT, ADDRESS, listening.resolve);
  server.unref();
  await listening.promise;
}

/** Ports of the Service at which something else answers, or nothing: a pod without a way back to its address is silent. */
export async function findTakenService(): Promise<Violation[]> {
  const answers = await Promise.all(HOST_PORTS.map(async port => (await isOwn(port)) || isOwn(port)));
  return answers.flatMap((own, i) =>
    own
      ? []
      : [{ rule: 'a host port takes the traffic of a Service', text: `${ADDRESS} port ${HOST_PORTS[i]}` }],
  );
}

async function isOwn(port: number): Promise<boolean> {
  const answer = await ask(ADDRESS, port);
  return typeof answer !== 'string' && answer.token === TOKEN;
}
