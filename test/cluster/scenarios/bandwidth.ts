// Do the annotations of rates limit what a pod sends and receives?

import type { Namespace } from '../../helpers/netns.ts';
import { measureRate } from '../../helpers/traffic.ts';
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
    const measure = async (name: string): Promise<Record<keyof typeof LIMITS, number>> => {
      const one = found.find(({ metadata }) => metadata.name === name) ?? {};
      const inside = await netnsOf(cluster, one);
      const megabits = async (from: Namespace, to: Namespace, address: string) =>
        ((await measureRate(wire.lab, { from, to, address, seconds: 4 })) * 8) / 1e6;
      return {
        // Outside there is no route to pods.
        ingress: await megabits(node.machine.lab.host, inside, one.status.podIP),
        egress: await megabits(inside, wire.lab.host, MACHINES.outside),
      };
    };
    const [limited, free] = [await measure('limited'), await measure('free')];
    for (const way of ['ingress', 'egress'] as const) {
      const [is, wanted] = [limited[way], LIMITS[way]];
      must(
        Math.abs(is - wanted) < wanted * TOLERANCE,
        `${way} of ${wanted} Mbit/s is ${is.toFixed(1)} Mbit/s`,
      );
      must(free[way] > 3 * wanted, `${way} of a pod without limit is ${free[way].toFixed(1)} Mbit/s`);
      saw(`${way} ${wanted} Mbit/s: ${is.toFixed(1)}, without limit ${free[way].toFixed(0)}`);
    }
  },
};
