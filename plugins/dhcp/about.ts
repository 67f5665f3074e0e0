// What can tools know about dhcp without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { DhcpConf, validateDhcpConf } from './config.ts';

/** The dhcp plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'ipam',
  summary: 'obtains an address from a DHCP server on the network; the daemon renews it',
  capabilities: [],
  config: DhcpConf,
  validate: validateDhcpConf,
});
