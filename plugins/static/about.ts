// What can tools know about static without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { CURRENT_VERSION } from '../../src/cni/result.ts';
import { StaticConf } from './config.ts';
import { planAddresses } from './plan.ts';

export const about = aboutPlugin({
  kind: 'ipam',
  summary: 'reports addresses given in the configuration or by the runtime',
  capabilities: ['ips'],
  config: StaticConf,
  // Without addresses of its own, it gets them from the runtime.
  idleWithout: ({ ipam }) => (ipam.addresses?.length ? undefined : 'ips'),
  validate(conf) {
    planAddresses(conf, [], CURRENT_VERSION);
  },
});
