// How long does `podman run` take with one network and with ten: with the reference's plugins, with ours, and with a daemon?
import { existsSync } from 'node:fs';
import { IMAGE } from '../helpers/busybox.ts';
import { type Machine, withMachine } from '../helpers/machine.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { requiresPodman, startPodman } from '../helpers/podman.ts';
import { until } from '../helpers/until.ts';
import { type Contestant, type Samples, settle, takeTurns, timed } from './measure.ts';
import { RUNTIME_SIDES, type RuntimeSide } from './sides.ts';

/** Numbers of networks of one container. */
export const NETWORK_COUNTS = [1, 10] as const;

/** A `podman run` takes long, and calls each plugin of every network. */
const SETTLED_ROUNDS = 3;

const CONF = '/etc/containers/containers.conf';

/**
 * Times `run` and `rm` of a container with a published port; samples are named `<side> <verb> <number of networks>`. The lists are
 * those that `podman network create` writes: bridge, portmap, firewall, tuning.
 * @throws Error if there is no Podman that runs chains
 */
export async function measurePodman(rounds: number): Promise<Samples> {
  const obstacle = requiresPodman();
  if (obstacle) throw new Error(`${obstacle}; npm test -- e2e/podman unpacks it`);
  return await withContestants(async contestants => {
    for (const one of contestants) if (one.name === 'runtime-warm') await settle(one, SETTLED_ROUNDS);
    return await takeTurns(contestants, rounds);
  });
}

async function withContestants<T>(
  body: (all: Contestant[]) => Promise<T>,
  all: readonly Contestant[] = [],
): Promise<T> {
  const side = RUNTIME_SIDES[all.length];
  if (side === undefined) return await body([...all]);
  return await withMachine(async machine => withContestants(body, [...all, await contestant(machine, side)]));
}

async function contestant(machine: Machine, name: RuntimeSide): Promise<Contestant> {
  const podman = await startPodman(machine);
  if (name === 'runtime-reference') {
    const conf = await machine.ok(['cat', CONF]);
    machine.write(CONF, conf.replace('/opt/cni/bin', REFERENCE_BIN_DIR));
  }
  if (name === 'runtime-warm') {
    machine.start(['/opt/cni/bin/catena', 'daemon'], `${machine.lab.tmp}/daemon.log`);
    await until(async () => existsSync(machine.path('/run/catena/catena.sock')));
  }
  const networks = Array.from({ length: Math.max(...NETWORK_COUNTS) }, (_, i) => `net${i}`);
  for (const [i, network] of networks.entries())
    await podman.run('network', 'create', '--subnet', `10.${120 + i}.0.0/24`, network);
  return {
    name,
    async round() {
      const parts: Record<string, number> = {};
      for (const count of NETWORK_COUNTS) {
        const given = ['--network', networks.slice(0, count).join(','), '--publish', '8080:80'];
        const options = ['--name', 'web', '--cgroup-parent', `/${machine.cgroup}`, ...given];
        parts[`run ${count}`] = await timed(() => podman.run('run', '--detach', ...options, IMAGE));
        parts[`rm ${count}`] = await timed(() => podman.run('rm', '--force', '--time', '0', 'web'));
      }
      return parts;
    },
  };
}
