// How long does one plugin take as a bare process, without a runner: ours and the reference's in turns?

import { startDaemon } from '../helpers/daemon.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { type Contestant, renewed, type Samples, settle, takeTurns, timed } from './measure.ts';

/** Configurations of bridge: a minimal one, and that of most clusters. */
export const BRIDGE_CONFIGURATIONS = {
  'IPv4, gateway': { ipMasq: false, families: ['10.{net}.0.0/16'] },
  'both families, gateway, ipMasq': { ipMasq: true, families: ['10.{net}.0.0/16', 'fd{net}::/64'] },
} as const;

/** ADD and DEL of bridge with host-local, called as a runtime calls them, one at a time; `warm` means with a daemon. */
export function measureBridge(
  configuration: keyof typeof BRIDGE_CONFIGURATIONS,
  rounds: number,
): Promise<Samples> {
  return withHosts(async (lab, served) => {
    const daemon = await startDaemon(served);
    const warm = await contestant(served, configuration, 'warm', BIN_DIR, 87);
    const contestants = [
      await contestant(lab, configuration, 'ours', BIN_DIR, 88),
      await contestant(lab, configuration, 'reference', REFERENCE_BIN_DIR, 89),
      warm,
    ];
    await settle(warm);
    const samples = await takeTurns(contestants, rounds);
    await daemon.stop();
    return samples;
  });
}

function withHosts<T>(body: (lab: Lab, served: Lab) => Promise<T>): Promise<T> {
  const options = { directly: true };
  return withHost(lab => withHost(served => body(lab, served), options), options);
}

async function contestant(
  lab: Lab,
  configuration: keyof typeof BRIDGE_CONFIGURATIONS,
  name: string,
  binDir: string,
  net: number,
): Promise<Contestant> {
  const { families, ipMasq } = BRIDGE_CONFIGURATIONS[configuration];
  const ranges = families.map(family => [{ subnet: family.replace('{net}', String(net)) }]);
  const ipam = { type: 'host-local', ranges, dataDir: `${lab.tmp}/${name}` };
  const bridge = { type: 'bridge', bridge: `br-${net}`, isDefaultGateway: true, ipMasq, ipam };
  const conf = { cniVersion: '1.0.0', name, ...bridge };
  const call = async (command: string, one: Container, prevResult?: unknown): Promise<unknown> => {
    const reply = await lab.plugin('bridge', { command, conf, container: one, binDir, prevResult });
    if (reply.exitCode !== 0) throw new Error(`Cannot ${command} with ${binDir}/bridge: ${reply.stdout}`);
    return reply.result;
  };
  // A node is never empty: the bridge exists, and has a port.
  await call('ADD', await lab.container());
  const container = await lab.container();
  return {
    name,
    async round(i) {
      const one = renewed(container, i);
      let result: unknown;
      const ADD = await timed(async () => {
        result = await call('ADD', one);
      });
      return { ADD, DEL: await timed(() => call('DEL', one, result)) };
    },
  };
}
