// What can tools know about tuning without running it?
import { decode } from '../../src/cni/json.ts';
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { DEFAULT_DATA_DIR, TuningConf } from './config.ts';
import { planTuning } from './plan.ts';

export const about = aboutPlugin({
  kind: 'meta',
  summary: 'sets sysctls and attributes of the interface in the container',
  capabilities: ['mac'],
  config: TuningConf,
  validate: conf => void planTuning(conf, [], 'eth0'),
  filesOf: ({ dataDir }) => ({
    backupDir: typeof dataDir === 'string' && dataDir ? dataDir : DEFAULT_DATA_DIR,
  }),
  mtuOf: ({ mtu }) => (typeof mtu === 'number' ? mtu : undefined),
  effectsOf(request) {
    const { sysctl = {} } = decode(TuningConf, request, 'request');
    return { policies: Object.entries(sysctl).map(([name, value]) => `has ${name} = ${value}`) };
  },
});
