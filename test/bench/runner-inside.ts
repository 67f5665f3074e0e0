// How long do a chain's verbs take alone, and called by the delegate runner? Run by runner.ts inside a fake host.
import { addNetwork, checkNetwork, deleteNetwork, parseNetwork, type Runtime } from '../../src/index.ts';
import { directories } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { takeTurns, timed } from './measure.ts';

const [netns = '', tmp = '', links = '', rounds = '20', whose = ''] = process.argv.slice(2);
const VERBS = { ADD: addNetwork, CHECK: checkNetwork, DEL: deleteNetwork } as const;

const runtime: Runtime = {
  pluginDirs: [links, BIN_DIR],
  cacheDir: `${tmp}/cni`,
  env: { ...process.env, ...directories(tmp) },
};

function contestant(name: string, plugins: readonly object[]) {
  const list = parseNetwork(JSON.stringify({ cniVersion: '1.0.0', name, plugins }));
  return {
    name,
    async round(i: number) {
      const attachment = { containerId: `bench-${name}-${i}`, netns, ifname: 'eth0' };
      const times: Record<string, number> = {};
      for (const [verb, call] of Object.entries(VERBS)) {
        times[verb] = await timed(() => call(list, attachment, runtime));
      }
      return times;
    },
  };
}

function chain(net: number): object[] {
  if (whose === 'idle') return Array(4).fill({ type: 'idle' });
  const limits = { ingressRate: 8e8, ingressBurst: 8e6, egressRate: 8e8, egressBurst: 8e6 };
  const ipam = { type: 'host-local', subnet: `10.${net}.0.0/16`, dataDir: `${tmp}/leases` };
  return [
    { type: 'bridge', bridge: `br-${net}`, isDefaultGateway: true, ipam },
    { type: 'portmap', capabilities: { portMappings: true } },
    { type: 'bandwidth', ...limits },
    { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' }, dataDir: `${tmp}/tuning` },
  ];
}

const delegates = [{ cniVersion: '1.0.0', name: 'inner', plugins: chain(72) }];
const contestants = [contestant('bare', chain(71)), contestant('runner', [{ type: 'catena', delegates }])];
const samples = await takeTurns(contestants, Number(rounds));
process.stdout.write(JSON.stringify([...samples]));
process.exit(0);
