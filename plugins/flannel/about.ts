// What can tools know about flannel without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { FlannelConf, validateFlannelConf } from './config.ts';

export const about = aboutPlugin({
  kind: 'main',
  summary: 'connects the container to the subnet that flanneld obtained for the node, through another plugin',
  // Its delegate may use any of them.
  capabilities: ['mac', 'ips', 'ipRanges', 'portMappings', 'bandwidth', 'dns', 'aliases'],
  completesIpam: true,
  config: FlannelConf,
  validate: validateFlannelConf,
});
