// How long do the verbs of a whole chain take with our links and with the reference's, run by the same runner?
import { fullChain, mixedBinDir, writeChain } from '../helpers/chain.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { type Contestant, quantile, type Samples, takeTurns, timed } from './measure.ts';

const LINKS = ['bridge', 'host-local', 'portmap', 'bandwidth', 'tuning'];

/** ADD, CHECK and DEL of bridge with host-local, portmap, bandwidth and tuning through `catena`, one at a time. */
export async function measureChain(rounds: number): Promise<Samples> {
  return await withHost(async lab => {
    const contestants = [await single(lab, 'ours', 88), await single(lab, 'reference', 89)];
    return await takeTurns(contestants, rounds);
  });
}

/** What a burst did: milliseconds of a verb under load, and attachments per second. */
export interface Burst {
  readonly medianMs: number;
  readonly perSecond: number;
}

/** ADD and DEL of many containers, eight at a time. */
export async function measureBurst(
  name: 'ours' | 'reference',
  containers: number,
): Promise<{ ADD: Burst; DEL: Burst }> {
  return await withHost(async lab => {
    const { chain, binDir, capFor } = prepare(lab, name, 88);
    const all: Container[] = [];
    for (let i = 0; i < containers; i++) all.push(await lab.container());
    return {
      ADD: await burst(all, (one, i) => chain.add(one, { binDir, cap: capFor(i) })),
      DEL: await burst(all, async one => check(await chain.run('del', one, { binDir }))),
    };
  });
}

async function single(lab: Lab, name: 'ours' | 'reference', net: number): Promise<Contestant> {
  const { chain, binDir, capFor } = prepare(lab, name, net);
  // A node is never empty: the bridge exists, and so do the shared rules.
  await chain.add(await lab.container(), { binDir, cap: capFor(1000) });
  const [container, checked] = [await lab.container(), await lab.container()];
  // CHECK of Debian's portmap (1.1.1) fails on every mapping of a single family, so none is given.
  await chain.add(checked, { binDir });
  return {
    name,
    async round(i) {
      const cap = capFor(i);
      return {
        ADD: await timed(() => chain.add(container, { binDir, cap })),
        'CHECK, no port mapping': await timed(async () =>
          check(await chain.run('check', checked, { binDir })),
        ),
        DEL: await timed(async () => check(await chain.run('del', container, { binDir }))),
      };
    },
  };
}

function prepare(lab: Lab, name: 'ours' | 'reference', net: number) {
  const list = fullChain(lab, { cniVersion: '1.0.0', rate: 800_000_000 });
  list.name = name;
  list.plugins[0].bridge = `br-${net}`;
  list.plugins[0].ipam.ranges = [[{ subnet: `10.${net}.0.0/16` }]];
  const chain = writeChain(lab, list);
  const binDir = name === 'ours' ? BIN_DIR : mixedBinDir(lab, REFERENCE_BIN_DIR, ...LINKS);
  const capFor = (i: number) => ({
    portMappings: [{ hostPort: net * 200 + i, containerPort: 80, protocol: 'tcp' }],
  });
  return { chain, binDir, capFor };
}

async function burst(
  all: readonly Container[],
  work: (one: Container, i: number) => Promise<unknown>,
): Promise<Burst> {
  const queue = [...all.entries()];
  const times: number[] = [];
  const worker = async (): Promise<void> => {
    for (let next = queue.shift(); next; next = queue.shift()) {
      const [i, one] = next;
      times.push(await timed(() => work(one, i)));
    }
  };
  const whole = await timed(() => Promise.all(Array.from({ length: 8 }, worker)));
  return { medianMs: quantile(times), perSecond: (all.length * 1000) / whole };
}

function check({ exitCode, stderr }: { exitCode: number; stderr: string }): void {
  if (exitCode !== 0) throw new Error(`catena failed with ${exitCode}: ${stderr}`);
}
