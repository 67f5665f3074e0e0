// What can tools know about the plugin without running it?
import { decode, type JsonObject } from '../../src/cni/json.ts';
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { leaseDirOf } from '../../src/ipam/lease-files.ts';
import { heldRanges, seenPools } from '../../src/pools/held.ts';
import { ANNOTATIONS, ClusterConf } from './config.ts';
import { refuseUnusable } from './plan.ts';

export const about = aboutPlugin({
  kind: 'ipam',
  summary: 'allocates addresses that are unique in a cluster, from blocks that each node holds',
  capabilities: ['ips', ANNOTATIONS],
  config: ClusterConf,
  validate: refuseUnusable,
  heldRangesOf: (conf, network) => heldRanges(leaseDirOf(conf, network)),
  seenPoolsOf: (conf, network) => seenPools(leaseDirOf(conf, network)),
  async inventoryOf(conf, network) {
    const { takeInventory } = await import('./tools.ts');
    return takeInventory(read(conf, network));
  },
  async giveBackOf(conf, network, dryRun) {
    const { giveBackAll } = await import('./tools.ts');
    return giveBackAll(read(conf, network), network, dryRun);
  },
  filesOf: (conf, network) => ({ leaseDir: leaseDirOf(conf, network) }),
});

function read(conf: JsonObject, network: string): ClusterConf {
  return decode(ClusterConf, conf, `configuration of "cluster" in network "${network}"`);
}
