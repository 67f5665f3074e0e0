// How much longer does an ADD take with an address of a block that this node holds than with one of host-local's?

import { startDaemon } from '../helpers/daemon.ts';
import { type Lab, withHost } from '../helpers/netns.ts';
import { processorMs } from './chain.ts';
import { type Contestant, differences, quantile, type Samples, settle, takeTurns, timed } from './measure.ts';

const CONFIGURATIONS = {
  'host-local': { type: 'host-local', ranges: [[{ subnet: '10.90.0.0/24' }], [{ subnet: 'fd90::/120' }]] },
  cluster: {
    ...{ type: 'cluster', subnets: [{ ipv4: '10.91.0.0/16', ipv6: 'fd91::/112' }], blockSize: 256 },
    // The daemon would claim a further block in the middle of a round.
    lowWater: 0,
  },
};

/** How both are run. */
export type AllocatorMode = 'without a daemon' | 'with a daemon';

/** ADD and DEL of both families, one at a time, beside twenty leases that stay; samples are named `<plugin> <verb>`. */
export function measureAllocators(mode: AllocatorMode, rounds: number): Promise<Samples> {
  return withHost(
    async lab => {
      const daemon = mode === 'with a daemon' ? await startDaemon(lab) : undefined;
      try {
        const contestants = [
          await contestant(lab, 'host-local', daemon?.pid),
          await contestant(lab, 'cluster', daemon?.pid),
        ];
        if (daemon) for (const one of contestants) await settle(one);
        return await takeTurns(contestants, rounds);
      } finally {
        await daemon?.stop();
      }
    },
    { directly: true },
  );
}

/** Milliseconds that the block costs more, by round: the median, and the middle half. */
export function surplusOf(samples: Samples, part: string): readonly [number, number, number] {
  const more = differences(samples.get(`cluster ${part}`), samples.get(`host-local ${part}`));
  return [quantile(more), quantile(more, 0.25), quantile(more, 0.75)];
}

async function contestant(
  lab: Lab,
  name: keyof typeof CONFIGURATIONS,
  daemon: number | undefined,
): Promise<Contestant> {
  const ipam = { ...CONFIGURATIONS[name], dataDir: `${lab.tmp}/leases` };
  const conf = { cniVersion: '1.1.0', name: `net-${name}`, type: 'bridge', ipam };
  const call = async (command: string, id: string): Promise<void> => {
    const container = { id, path: '/run/netns/unused' };
    const reply = await lab.plugin(name, { command, conf, container });
    if (reply.exitCode !== 0) throw new Error(`Cannot ${command} with ${name}: ${reply.stdout}`);
  };
  for (let i = 0; i < 20; i++) await call('ADD', `stays-${i}`);
  return {
    name,
    async round(i) {
      const before = processorMs(daemon);
      const ADD = await timed(() => call('ADD', `round-${i}`));
      const spent = processorMs(daemon) - before;
      return { ADD, 'ADD, processor time': spent, DEL: await timed(() => call('DEL', `round-${i}`)) };
    },
  };
}
