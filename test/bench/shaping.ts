// What does it cost to limit only some traffic: a tree of classes compared with one bucket, and with no queue at all?
import { connect, type Pod } from '../helpers/connected-pod.ts';
import { type Lab, withHost } from '../helpers/netns.ts';
import { type Contestant, type Samples, takeTurns } from './measure.ts';

const MBIT = 1_000_000;
const PORT = 5201;
/** Short, with many turns, so that other load on the machine affects all alike. */
const TRANSFER_S = 1;
const DEADLINE_MS = 30_000;
/** Other load on the machine should not decide which of two is faster, but half of the machine is left to it. */
const FIRST = ['chrt', '--rr', '1'];

/** A rate that is common for pods, and one that no pair of these machines reaches. */
export const LIMIT_BITS = 200 * MBIT;
const UNREACHED_BITS = 1_000_000 * MBIT;

/** Ways to limit: nothing, everything, and some traffic, where the transfer is limited or not. */
const SHAPES = {
  none: undefined,
  bucket: {},
  'tree, limited': { unshapedSubnets: ['192.0.2.0/24', '2001:db8::/32'] },
  'tree, not limited': { unshapedSubnets: ['192.0.2.0/24', '10.77.0.0/16'] },
} as const;
type Shape = keyof typeof SHAPES;

/** Mbit/s that pods get at a rate that limits them, in each direction: `<shape> towards` and `<shape> from`. */
export function measureLimited(rounds: number): Promise<Samples> {
  return measureShapes(['bucket', 'tree, limited'], LIMIT_BITS, rounds);
}

/** Mbit/s that pods get if only the machine limits them. */
export function measureUnreached(rounds: number): Promise<Samples> {
  return measureShapes(['none', 'bucket', 'tree, limited', 'tree, not limited'], UNREACHED_BITS, rounds);
}

function measureShapes(shapes: readonly Shape[], rateBits: number, rounds: number): Promise<Samples> {
  return withHost(async lab => {
    const contestants: Contestant[] = [];
    for (const [i, shape] of shapes.entries()) {
      const pod = await connect(lab, i + 1);
      const subnets = SHAPES[shape];
      if (subnets) await limit(lab, pod, { ingressRate: rateBits, egressRate: rateBits, ...subnets });
      lab.start(pod.container, [...FIRST, 'iperf3', '--server', '--port', String(PORT)]);
      contestants.push({
        name: shape,
        round: async () => ({
          towards: await transfer(lab, pod),
          from: await transfer(lab, pod, '--reverse'),
        }),
      });
    }
    return await takeTurns(contestants, rounds);
  });
}

async function limit(lab: Lab, pod: Pod, limits: object): Promise<void> {
  const conf = { cniVersion: '1.0.0', name: 'podnet', type: 'bandwidth', ...limits };
  const { container, prevResult } = pod;
  const reply = await lab.plugin('bandwidth', { command: 'ADD', conf, container, prevResult });
  if (reply.exitCode !== 0) throw new Error(`Cannot limit a pod: ${reply.stdout}`);
}

/** Repeats a transfer if the server was not ready yet, or still busy with the previous one. */
async function transfer(lab: Lab, pod: Pod, ...more: string[]): Promise<number> {
  const to = ['--client', pod.v4, '--port', String(PORT), '--time', String(TRANSFER_S)];
  const argv = [...FIRST, 'iperf3', '--json', ...to, ...more];
  for (const deadline = Date.now() + DEADLINE_MS; ; await Bun.sleep(50)) {
    const { stdout } = await lab.run(lab.host, argv, { timeoutMs: DEADLINE_MS });
    const { end, error } = JSON.parse(stdout);
    if (error === undefined) return end.sum_received.bits_per_second / MBIT;
    if (Date.now() > deadline) throw new Error(`Cannot transfer: ${error}`);
  }
}
