// What can tools know about vlan without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { VlanConf, validateVlanConf } from './config.ts';

export const about = aboutPlugin({
  kind: 'main',
  summary: 'connects the container to a VLAN of a host interface',
  capabilities: ['mac'],
  config: VlanConf,
  needsGatewayInSubnet: true,
  validate: validateVlanConf,
  reachOf: () => ['containers and machines in the VLAN reach each other, through the network of the master'],
});
