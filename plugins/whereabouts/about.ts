// What can tools know about the plugin without running it?
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { leaseDirOf } from '../../src/ipam/lease-files.ts';
import { WhereaboutsConf } from './config.ts';
import { planRanges } from './plan.ts';

export const about = aboutPlugin({
  kind: 'ipam',
  summary: "allocates addresses that are unique in a cluster, in whereabouts' objects",
  capabilities: [],
  config: WhereaboutsConf,
  validate({ ipam }) {
    // The ranges may be in the flat file.
    if (ipam.range || ipam.ipRanges?.length) planRanges(ipam);
  },
  notesLeases: true,
  filesOf: (conf, network) => ({ leaseDir: leaseDirOf(conf, network) }),
});
