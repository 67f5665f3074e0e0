// What can tools know about the delegate runner without running it?

import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { CURRENT_VERSION } from '../../src/cni/result.ts';
import { makeNetwork, refuseRecursion } from '../../src/delegate/find-network.ts';
import { listConfigured } from '../../src/delegate/wanted.ts';
import { CatenaConf, optionsOf } from './config.ts';

export const about = aboutPlugin({
  kind: 'main',
  summary: 'attaches the container to several networks, each with a chain of its own',
  // Its delegates may use any of them.
  capabilities: [
    'aliases',
    'bandwidth',
    'deviceID',
    'dns',
    'infinibandGUID',
    'ipRanges',
    'ips',
    'mac',
    'portMappings',
    'CNIDeviceInfoFile',
    'cgroupPath',
    'io.kubernetes.cri.pod-annotations',
  ],
  config: CatenaConf,
  validate(conf) {
    const options = optionsOf(conf, conf.name ?? 'network', CURRENT_VERSION);
    for (const { selection } of listConfigured(options)) {
      const { config, name } = selection;
      if (config === undefined) continue;
      const what = `delegate "${name}"`;
      refuseRecursion(makeNetwork(config, { name, cniVersion: options.version }, what), options.ownTypes);
    }
  },
});
