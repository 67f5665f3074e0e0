// Do pods come and go while kubelet, containerd or the API server is killed in the middle and started again?

import type { Cluster } from '../cluster.ts';
import { deployment, type Scenario, untilPods } from '../scenario.ts';

const PODS = 18;
/** When they are killed: some pods have their network then, some are about to. */
const AFTER_MS = 2500;
const AWAY_MS = 3000;

const VICTIMS: Readonly<
  Record<string, (cluster: Cluster) => { kill(): Promise<void>; start(): Promise<void> }>
> = {
  kubelet: ({ nodes }) => ({
    kill: () => each(nodes, node => node.kill('kubelet')),
    start: () => each(nodes, node => node.start('kubelet')),
  }),
  containerd: ({ nodes }) => ({
    kill: () => each(nodes, node => node.kill('containerd')),
    start: () => each(nodes, node => node.start('containerd')),
  }),
  'the API server': ({ control }) => ({
    kill: () => control.killApiServer(),
    start: () => control.startApiServer(),
  }),
};

/** One scenario for each of them. */
export const restarts: readonly Scenario[] = Object.entries(VICTIMS).map(([name, victim]) => ({
  name: `${name.replace('the API server', 'api server')} killed`,
  async play(cluster, namespace, saw) {
    const { kubectl } = cluster;
    const { kill, start } = victim(cluster);
    await kubectl.apply({ ...deployment('web', 0), metadata: { name: 'web', namespace } });
    for (const [replicas, verb] of [[PODS, 'ADD'] as const, [0, 'DEL'] as const]) {
      const started = performance.now();
      await kubectl('scale', '-n', namespace, 'deployment/web', `--replicas=${replicas}`);
      await Bun.sleep(AFTER_MS);
      await kill();
      await Bun.sleep(AWAY_MS);
      await start();
      await untilPods(cluster, namespace, replicas, 240);
      const seconds = ((performance.now() - started) / 1000).toFixed(0);
      saw(`${name} killed during ${verb}: ${replicas} pods after ${seconds} s`);
    }
  },
}));

async function each<T>(all: readonly T[], act: (one: T) => Promise<void>): Promise<void> {
  await Promise.all(all.map(act));
}
