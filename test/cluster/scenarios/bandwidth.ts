// Do the annotations of rates limit what a pod sends and receives?

import type { Namespace } from '../../helpers/netns.ts';
import { measureRate, steadily } from '../../helpers/traffic.ts';
import { MACHINES } from '../addresses.ts';
import { must, netnsOf, pod, type Scenario, untilPods } from '../scenario.ts';

/** Megabits per second. */
const LIMITS = { ingress: 16, egress: 8 } as const;
/** By how much a measured rate may be off. */
const TOLERANCE = 0.2;

export const bandwidth: Scenario = {
  name: 'bandwidth annotations',
  async play(cluster, namespace, saw) {
    const { kubectl, nodes, wire } = cluster;
    const [node] = nodes;
    if (node === undefined) throw new Error('a cluster has a node');
    const nodeName = node.place.name;
    const annotations = Object.fromEntries(
      Object.entries(LIMITS).map(([way, megabits]) => [`kubernetes.io/${way}-bandwidth`, `${megabits}M`]),
    );
    await kubectl.apply(
      pod('limited', { metadata: { namespace, annotations }, spec: { nodeName } }),
      pod('free', { metadata: { namespace }, spec: { nodeName } }),
    );
    const found = await untilPods(cluster, namespace, 2);
    const measure = async (name: string, way: keyof typeof LIMITS): Promise<number> => {
      const one = found.find(({ metadata }) => metadata.name === name) ?? {};
      const inside = await netnsOf(cluster, one);
      const megabits = async (from: Namespace, to: Namespace, address: string) =>
        ((await measureRate(wire.lab, { from, to, address, seconds: 4 })) * 8) / 1e6;
      // Outside there is no route to pods.
      return way === 'ingress'
        ? megabits(node.machine.lab.host, inside, one.status.podIP)
        : megabits(inside, wire.lab.host, MACHINES.outside);
    };
    for (const way of ['ingress', 'egress'] as const) {
      const wanted = LIMITS[way];
      const isWanted = (rate: number) => Math.abs(rate - wanted) < wanted * TOLERANCE;
      const is = await steadily(() => measure('limited', way), isWanted);
      must(isWanted(is), `${way} of ${wanted} Mbit/s is ${is.toFixed(1)} Mbit/s`);
      const free = await measure('free', way);
      must(free > 3 * wanted, `${way} of a pod without limit is ${free.toFixed(1)} Mbit/s`);
      saw(`${way} ${wanted} Mbit/s: ${is.toFixed(1)}, without limit ${free.toFixed(0)}`);
    }
  },
};
