// What can tools know about ptp without running it?
import { aboutLink, mtuOf } from '../../src/cni/link-about.ts';
import { PtpConf, validatePtpConf } from './config.ts';

/** The ptp plugin, as `catena validate` and the published schemas see it. */
export const about = aboutLink({
  kind: 'main',
  capabilities: [],
  config: PtpConf,
  validate: conf => void validatePtpConf(conf),
  devicesOf: ({ mtu }) => [{ mtu: mtuOf(mtu) }],
});
