// What do tools know of the delegate runner without running it?

import { aboutLink } from '../../src/cni/link-about.ts';
import { CURRENT_VERSION } from '../../src/cni/version.ts';
import { listConfigured } from '../../src/delegate/wanted.ts';
import { CatenaConf, optionsOf } from './config.ts';

/** The delegate runner, as `catena validate` and the published schemas see it. */
export const about = aboutLink({
  kind: 'main',
  // Its delegates may read any of them.
  capabilities: [
    ...[
      'aliases',
      'bandwidth',
      'deviceID',
      'dns',
      'infinibandGUID',
      'ipRanges',
      'ips',
      'mac',
      'portMappings',
    ],
    ...['cgroupPath', 'io.kubernetes.cri.pod-annotations'],
  ],
  config: CatenaConf,
  validate(conf) {
    listConfigured(optionsOf(conf, conf.name ?? 'network', CURRENT_VERSION));
  },
});
