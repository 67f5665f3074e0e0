// What can tools know about dhcp without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { DhcpConf, validateDhcpConf } from './config.ts';

export const about = aboutPlugin({
  kind: 'ipam',
  summary: 'obtains addresses from DHCP servers and routers on the network; the daemon renews leases',
  capabilities: [],
  config: DhcpConf,
  validate: validateDhcpConf,
  ipamFor: addresses => (addresses === 'server' ? { type: 'dhcp' } : undefined),
});
