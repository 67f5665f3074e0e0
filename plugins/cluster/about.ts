// What can tools know about the plugin without running it?
import { join } from 'node:path';
import { isObject } from '../../src/cni/json.ts';
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { DEFAULT_DATA_DIR } from '../../src/ipam/lease-store.ts';
import { ClusterConf } from './config.ts';
import { refuseUnusable } from './plan.ts';

/** The cluster plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'ipam',
  summary: 'allocates addresses that are unique in a cluster, from blocks that each node holds',
  capabilities: [],
  config: ClusterConf,
  validate: refuseUnusable,
  filesOf({ ipam }, network) {
    const dataDir = isObject(ipam) && typeof ipam.dataDir === 'string' ? ipam.dataDir : '';
    return { leaseDir: join(dataDir || DEFAULT_DATA_DIR, network) };
  },
});
